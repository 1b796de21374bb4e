/*
 * simulate -- when each action of a lowered plan begins and ends, for given costs.
 *
 * Longest path through the dependency graph: an action starts when the actions it depends on have
 * ended and the compute lane of its rank is free. A message is there `message` after its SEND,
 * which frees the out buffer: the cost is a latency, in which the next message may already be on its
 * way. It is the span of the RECV and costs no compute time. A SEND takes `send` of the time of its
 * rank, which is the copy of a worker that copies itself: the next compute action of the line begins
 * that much later, whether or not the message had to wait for its landing buffer. Landing and out
 * buffers bind as they do when the plan runs, unless `unbounded`.
 *
 * What a step takes beyond its plan (update, round trip) is no part of this: scheduler/costs.h.
 */
#ifndef SCHEDULER_SIMULATE_H
#define SCHEDULER_SIMULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In any unit of time, per micro-batch; B costs I + W. Whoever names the fields that it knows gets
 * nothing for the others. */
struct plan_costs {
    const double *F; /* borrows; [virtual stage]; a chunk's own cost */
    const double *I;
    const double *W;
    double message; /* latency c of a message */
    const double
        *message_into[LANE_DIRECTIONS]; /* borrows; [virtual stage]: latency of the messages
                                                    of a direction into it; NULL: `message` */
    double send;                        /* time of its rank that a SEND takes */
    double action;  /* time of its rank between what a compute action waits for and its begin */
    double gather;  /* of what a GATHER lets through before F, I or B can begin */
    bool unbounded; /* landing and out buffers never bind */
};

struct simulation {
    double makespan;    /* from 0 to the end of the last compute action */
    double ideal;       /* the largest sum of compute costs of a rank */
    double bubble;      /* makespan - ideal */
    double span_bubble; /* max over ranks (last end - first start) - ideal */
    double **begin;     /* owns; [rank][index in the line] */
    double **end;
    double *times; /* owns; private to simulate.c */
};

/* F, I, W and both message_into: what an owner of costs keeps in one block, which F begins. */
#define PLAN_COSTS_ARRAYS ((size_t)5)

/* How long the action takes: that of a chunk, the latency of a message for a RECV, its copy for a
 * SEND, what a GATHER takes, else nothing. */
double plan_action_cost(const struct plan_costs *costs, const struct action *action);

/* STATUS_ERR_REFUSED where the plan deadlocks (it was not validated then). */
enum status plan_simulate(const struct plan *lowered, const struct plan_costs *costs,
                          struct simulation *simulation_out);
void simulation_release(struct simulation *simulation);

/* The same for whoever has an index of the lowered plan. */
struct plan_index;
enum status plan_simulate_indexed(const struct plan *lowered, const struct plan_index *index,
                                  const struct plan_costs *costs,
                                  struct simulation *simulation_out);

/* Share of the ranks' time that the plan leaves idle at these costs: 1 - busy / (p · makespan), the
 * `bubble_ideal` of a step line. 0 where the costs are. */
enum status plan_idle_share(const struct plan *lowered, const struct plan_costs *costs,
                            double *share_out);

/* The same cost F, I, W a rank and micro-batch on every rank, a chunk 1/v of it, and of that
 * a slice of a sequence 1/k, as `weir plan
 * --costs` takes them. The caller owns the three arrays of *costs_out (plan_costs_release). */
enum status plan_costs_uniform(const struct plan *plan, double F, double I, double W,
                               double message, struct plan_costs *costs_out);

/* A copy that owns its arrays. */
enum status plan_costs_copy(const struct plan_costs *costs, int32_t stages,
                            struct plan_costs *copy_out);

/* Of costs that own their arrays in one block. */
void plan_costs_release(struct plan_costs *costs);

/* Peak of stashes of each rank, in micro-batches over all of a rank's layers: `w_holds` false: a
 * stash ends with I (or B); true: with W (or B). `peak_out` has p elements. */
enum status plan_peaks(const struct plan *plan, bool w_holds, double *peak_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_SIMULATE_H */

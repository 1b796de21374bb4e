/*
 * lower -- from a compute-only plan to the one that runs.
 *
 * For each rank, in the order of its compute actions:
 *   - before F and before I or B: the RECV of its message, as late as that: on the CPU a RECV is
 *     passive. Nothing where there is no neighbour; where it is a chunk of the same rank, its
 *     result is written straight into a landing buffer here, which `target` there and `landing`
 *     here name;
 *   - after F and after I: the SEND of what it made; a B becomes I, SEND, W where early_send and
 *     something is sent, and stays B, SEND otherwise;
 *   - where weights lie in slices (`gather`), GATHER right before F, I or B, and RELEASE right
 *     after: one action after the other has the gathered layers of its rank. A B that becomes two
 *     is GATHER, I, RELEASE, SEND, W: W needs no weights. Which chunks have layers no plan knows;
 *     one without gathers nothing;
 *   - SYNC on the rank of the last virtual stage right after its last F (the head's gradient is
 *     complete then), on the rank of virtual stage 0 before STEP; training plans only;
 *   - REDUCE, with replicas or shards that have rows of their own, behind the last compute action and the last SEND of every rank, and
 *     before the owner's SYNC. The head's SYNC stays where it is: it sums the head's gradient over
 *     the replicas itself, while the pipeline drains;
 *   - STEP at the end of every rank; forward-only plans have neither.
 * Then slots, gradient sets, landing buffers and sequences are numbered, and dependencies written.
 */
#ifndef SCHEDULER_LOWER_H
#define SCHEDULER_LOWER_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/line_source.h"
#include "scheduler/lowering.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `compute` is borrowed for the call; the caller owns *lowered_out. Refuses (STATUS_ERR_REFUSED)
 * what it cannot lower, with rank, index and action. */
enum status plan_lower(const struct plan *compute, struct plan **lowered_out);

/* The same line by line, where the whole need not be there at once. */
struct lowerer {
    struct line_source *lines; /* borrows */
    struct plan *
        lowered; /* owns, until somebody takes it and leaves NULL; with the buffers of all chunks */
    int32_t *stage_of; /* owns; [rank · v + chunk] */
    int32_t *most;     /* owns; [rank]: actions that its line becomes at most */
    struct lowering lowering;
};

/* Counts the buffers of all ranks, or where `rank` is one and not ACTION_NONE, of that one and those that
 * it sends to, which is enough to lower that line alone. Borrows `lines` while the lowerer lives. */
enum status lowerer_init(struct lowerer *lowerer, struct line_source *lines, int32_t rank);

/* Room for all lines at once. Without it each line has memory of its own (plan_pass_memory()). */
enum status lowerer_reserve_all(struct lowerer *lowerer);

/* Makes lowerer->lowered->lines[rank], in any order of ranks. */
enum status lowerer_put_line(struct lowerer *lowerer, int32_t rank);

/* Safe on a zeroed lowerer, and twice. */
void lowerer_release(struct lowerer *lowerer);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_LOWER_H */

/*
 * graph -- what each action of a lowered plan waits for, over all ranks.
 *
 * A marked graph: every action fires once, when everything it waits for has fired. So the plan has
 * no deadlock exactly when the graph has no cycle, and every order of execution gives the same
 * result. The edges are not stored: they follow from the plan and its index, and a walk asks for
 * those of one action at a time.
 *
 * The rules of a plan as it runs: the compute actions of a rank go in the order of its line; a
 * RECV waits for its SEND; a SEND waits for the action that made the message and for the release
 * of the landing buffer it goes to; an action waits for what lowering wrote into its `depends`,
 * among it the SEND that still holds the out buffer. The order of the messages of a lane follows:
 * SEND j → producer of message j + 1 → SEND j + 1. REDUCE and STEP wait for the last compute action
 * of their rank. STEP stands last on every rank, so that its round trip over all ranks adds no
 * cycle and needs no edges.
 *
 * A SEND waits for the compute action before it in the line, too, its producer or not: whoever
 * walks the line may wait inside issue() until that one has ended (scheduler/worker.h), and posts
 * the message only then. Nothing else of this pipeline that stands between can hold up the line: a
 * SEND, a SYNC and a REDUCE name compute actions only, a RELEASE does, a GATHER names the RELEASE
 * before it, and a RECV nothing (scheduler/plan_index.h).
 *
 * Collectives over replicas and TP shards (in F, I and W, GATHER, the head's SYNC, REDUCE) need no edges
 * either. All replicas and shards run the same plan, and a collective joins the same action of
 * each: the graph of the whole job is one copy of this graph a replica and shard, with those nodes
 * merged. Take every node of it to the action that it is a copy of: an edge falls on an edge of
 * this graph, a merged node on one node. So a cycle of the whole job falls on a cycle here, and
 * where there is none here there is none there. The order of the collectives of one group is that
 * of the line on every member.
 *
 * The rules `in_line` are those of a transport that blocks in the order of the line: every action
 * waits for the one before it, and with `depth` landing buffers a lane, given back at receipt,
 * SEND j + depth waits for RECV j; with depth 0 a SEND and its RECV meet.
 */
#ifndef SCHEDULER_GRAPH_H
#define SCHEDULER_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/plan_index.h"

#ifdef __cplusplus
extern "C" {
#endif

/* kind, text */
#define EDGE_TABLE(X)                                                         \
    X(ORDER, "order")     /* the rank does them one after the other */        \
    X(DEPENDS, "depends") /* its input on the same rank */                    \
    X(MESSAGE, "message") /* it arrives from another rank */                  \
    X(LANDING, "landing") /* the landing buffer is still read */              \
    X(OUT, "out buffer")  /* the out buffer still holds the message before */ \
    X(MEET, "meet")       /* the other end of a rendezvous is not there yet */

enum edge_kind {
#define X(kind, text) EDGE_##kind,
    EDGE_TABLE(X)
#undef X
    EDGE_KINDS
};

struct graph_rules {
    bool unbounded; /* landing and out buffers never bind; not with in_line */
    bool in_line;   /* see above */
    int32_t depth;  /* in_line: landing buffers of every lane, 0 = rendezvous */
    int32_t deeper; /* landing buffers of every lane beyond those of the plan; not with in_line */
};

struct graph {
    const struct plan *plan;        /* borrows; lowered */
    const struct plan_index *index; /* borrows; of `plan` */
    struct graph_rules rules;
};

struct graph_node {
    int32_t rank;
    int32_t index; /* in the line of the rank */
};

/* The node it belongs to waits for `from`. */
struct graph_edge {
    struct graph_node from;
    enum edge_kind kind;
};

#define GRAPH_EDGES (ACTION_DEPENDS + 4)

/* Writes the edges of `node`, at most GRAPH_EDGES, and returns how many there are. */
int32_t graph_edges(const struct graph *graph, struct graph_node node, struct graph_edge *out);

/* The one action of another rank that `node` waits for, where there is one. */
bool graph_awaited(const struct graph *graph, struct graph_node node, struct graph_edge *out);

/* Of `microbatch`, a message of `direction` into `target`: makes it the message before in the same
 * landing buffer, whose last reader must have ended. False where it is the first one there. */
bool graph_freed(const struct graph *graph, enum lane_direction direction, int32_t target,
                 int32_t *microbatch);

/* 0 … graph_nodes() - 1. */
int64_t graph_number(const struct graph *graph, struct graph_node node);
int64_t graph_nodes(const struct graph *graph);

/* Steps to the next node in the order of numbers; begin with index -1 of rank 0. False behind the
 * last one. */
bool graph_next(const struct graph *graph, struct graph_node *node);

/* "landing"; a static string. */
const char *edge_text(enum edge_kind kind);

/* What a walk knows of a node. */
enum graph_state {
    GRAPH_NEW,
    GRAPH_OPEN, /* on the path of the walk */
    GRAPH_DONE  /* everything it waits for is done: on no cycle */
};

struct graph_walk {
    uint8_t *state;           /* owns; enum graph_state, by graph_number() */
    struct graph_node *stack; /* owns */
    int64_t stack_count;
    int64_t stack_capacity;
    int64_t turns;              /* how often a rank got on along its line: linear in the messages */
    bool cyclic;                /* the walk met a cycle and stopped */
    struct graph_node on_cycle; /* one node of it */
};

/* Called once for each node, after those it waits for. */
typedef void (*graph_visit_fn)(void *context, struct graph_node node,
                               const struct graph_edge *edges, int32_t count);

/* Walks all nodes in an order in which they may fire, in time linear in nodes and edges.
 * `visit` may be NULL. STATUS_OK also where a cycle was met: walk_out says so, and only then has
 * states. `visit` may have been called for some nodes before. */
enum status graph_walk_run(const struct graph *graph, graph_visit_fn visit, void *context,
                           struct graph_walk *walk_out);

/* The same rank by rank, each along its line as far as it gets: every line is read once from front to
 * back, which is what makes plans of many millions of actions fast. `complete_out` is false where it
 * got stuck, which says that there is a cycle or, in a plan that lowering did not make, that there may
 * be one. Part of graph_walk_run(), which finds out. */
enum status graph_wave_run(const struct graph *graph, graph_visit_fn visit, void *context,
                           bool *complete_out, int64_t *turns_out);

/* Safe on a zeroed walk, and twice. */
void graph_walk_release(struct graph_walk *walk);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_GRAPH_H */

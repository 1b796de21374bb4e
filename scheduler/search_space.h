/*
 * search_space -- what a search for a plan is about: ranks, micro-batches, placement, costs, limits.
 *
 * A rank's order is a list of F, I and W of its virtual stages. A B is I and then W here, as it is
 * lowered with early send. The kinds of actions of one virtual stage are called types; an action is
 * a type and a micro-batch. Within a type, micro-batches always come in ascending order, because
 * gradients are added up so.
 *
 * Nothing here is changed by a search.
 */
#ifndef SCHEDULER_SEARCH_SPACE_H
#define SCHEDULER_SEARCH_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a rank may hold, in bytes or any other unit. Borrows all arrays. */
struct search_memory {
    const int64_t *limit;    /* [rank]; NULL: none, and what follows is not read */
    const int64_t *fixed;    /* [rank]; there for good, whatever is in flight; NULL: nothing */
    const int64_t *stash;    /* [virtual stage]; of one micro-batch, from F to W */
    const int64_t *gradient; /* [virtual stage]; a gradient set, from I to W; NULL: nothing */
    const int64_t *landing; /* [virtual stage]; one landing buffer of its input, and of the gradient
                                of its output; NULL: nothing */
    bool
        together; /* chunks of a rank share their memory: what counts is the largest sum at any time.
                      False: each has buffers of its own, as a stage process plans them, and what
                      counts is the sum of their peaks, landing buffers as lowering numbers them */
};

enum search_kind {
    SEARCH_F,
    SEARCH_I,
    SEARCH_W,
    SEARCH_KINDS
};

#define SEARCH_NONE (-1)

/* Of the actions with this type. `type` below is an index of such, virtual stage · SEARCH_KINDS +
 * kind. */
struct search_type {
    int32_t rank;
    int32_t stage; /* virtual */
    enum search_kind kind;
    int32_t producer; /* type that makes its input, or SEARCH_NONE; for W, none but its I */
    int32_t consumer; /* type on another rank that its message goes to, or SEARCH_NONE */
    int32_t reader;   /* type at whose end the landing buffer of its input is free again */
    int32_t
        lane_in; /* of the message that it waits for, or SEARCH_NONE: nothing comes from elsewhere */
    int32_t lane_out; /* of its message */
    double cost;
    double latency; /* of the message that it waits for */
};

struct search_space {
    int32_t ranks;
    int32_t microbatches;
    int32_t chunks; /* a rank */
    int32_t stages; /* ranks · chunks */
    int32_t length; /* actions of a rank: SEARCH_KINDS · chunks · microbatches */
    int32_t lanes;
    struct plan_shape shape;  /* of the plans to come */
    int32_t *rank_of;         /* owns; [stage] */
    int32_t *chunk_of;        /* owns; [stage] */
    int32_t *stage_of;        /* owns; [rank · chunks + chunk], ascending in each rank */
    struct search_type *type; /* owns; [stage · SEARCH_KINDS + kind] */
    struct plan_costs costs;  /* borrows its arrays */
    struct search_memory memory;
};

/* `rank_of` says where each of the p·v virtual stages is, `chunks` of them on each rank; NULL: a loop.
 * The arrays of `costs` and `memory` must live as long as the space. STATUS_ERR_REFUSED where a
 * shape, placement, cost or limit is none, naming it. */
enum status search_space_init(struct search_space *space, const struct plan_shape *shape,
                              const int32_t *rank_of, const struct plan_costs *costs,
                              const struct search_memory *memory);

/* Safe on a zeroed space, and twice. */
void search_space_release(struct search_space *space);

static inline int32_t search_type_of(int32_t stage, enum search_kind kind)
{
    return stage * SEARCH_KINDS + (int32_t)kind;
}

static inline int64_t search_fixed(const struct search_space *space, int32_t rank)
{
    return space->memory.limit != NULL && space->memory.fixed != NULL ? space->memory.fixed[rank]
                                                                      : 0;
}

/* Units of memory that a stash of `stage` takes, and so on; 0 where nothing is said. */
static inline int64_t search_stash(const struct search_space *space, int32_t stage)
{
    return space->memory.limit != NULL ? space->memory.stash[stage] : 0;
}
static inline int64_t search_gradient(const struct search_space *space, int32_t stage)
{
    return space->memory.limit != NULL && space->memory.gradient != NULL
               ? space->memory.gradient[stage]
               : 0;
}
static inline int64_t search_landing(const struct search_space *space, int32_t stage)
{
    return space->memory.limit != NULL && space->memory.landing != NULL
               ? space->memory.landing[stage]
               : 0;
}

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_SEARCH_SPACE_H */

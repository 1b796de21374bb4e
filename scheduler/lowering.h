/*
 * lowering -- what plan_lower() knows of the line that it is lowering.
 *
 * Tables of one rank, used rank after rank, and the pools from which its buffers are numbered.
 * Part of lower, which alone looks inside.
 */
#ifndef SCHEDULER_LOWERING_H
#define SCHEDULER_LOWERING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers 0, 1, … of equal buffers: the one given back last is taken first, and a new one is made
 * only when none is free, so that `made` ends as the peak. */
struct pool {
    int32_t *free; /* borrows */
    int32_t free_count;
    int32_t made;
};

/* Who is at the other ends of a chunk in one direction, and the messages of it so far. */
struct route {
    int32_t source;        /* rank that its messages come from, or ACTION_NONE */
    int32_t target;        /* rank that they go to, or ACTION_NONE */
    int32_t before;        /* chunk of the same rank that makes its input, or ACTION_NONE */
    int32_t behind;        /* chunk of the same rank that gets its result, or ACTION_NONE */
    int32_t landings_here; /* landing buffers of its messages */
    int32_t landings_there;
    int32_t next_here; /* landing buffer of its next message */
    int32_t next_there;
};

/* The tables are [chunk · m + microbatch] unless said otherwise. */
struct lowering {
    const struct plan *compute;
    const int32_t *stage_of; /* borrows; [rank · v + chunk] */
    struct plan *lowered;    /* borrows; its buffers are counted */
    struct plan_line *line;  /* of `lowered`, with room for what it becomes */
    struct route *routes;    /* owns; [direction · v + chunk] */
    int32_t rank;
    int32_t source;       /* index of the action of the compute line that is being lowered */
    int32_t forwards;     /* of the last virtual stage, so far */
    int32_t last_release; /* index of the RELEASE before */
    int32_t *f_at;        /* index of the F in the lowered line */
    int32_t *i_at;        /* of the I or B */
    int32_t *slot_of;
    int32_t *gradient_of;
    int32_t *local_of[LANE_DIRECTIONS];   /* landing buffer that a chunk of this rank wrote to */
    int32_t *landing_of;                  /* landing buffer of dY, wherever it came from */
    int32_t *free_numbers;                /* of all pools */
    struct pool *slots;                   /* owns; [chunk], the pools below behind it */
    struct pool *gradients;               /* [chunk] */
    struct pool *locals[LANE_DIRECTIONS]; /* [chunk]; of local_of */
    int32_t *sent[LANE_DIRECTIONS];       /* [peer]: messages so far */
    int32_t *received[LANE_DIRECTIONS];   /* [peer] */
    int32_t *last_send[LANE_DIRECTIONS];  /* [peer]: index of the SEND before */
    int32_t *tables;                      /* owns all of the above but the pools */
};

static inline int32_t pool_take(struct pool *pool)
{
    return pool->free_count > 0 ? pool->free[--pool->free_count] : pool->made++;
}

static inline void pool_give(struct pool *pool, int32_t number)
{
    pool->free[pool->free_count++] = number;
}

/* False where memory is short; nothing is held then. */
bool lowering_init(struct lowering *lowering, const struct plan *compute, const int32_t *stage_of,
                   struct plan *lowered);

/* Makes the tables those of `rank`. Clears only the entries that this rank uses, so that the whole
 * stays linear in the ranks. */
void lowering_begin_line(struct lowering *lowering, int32_t rank);

static inline size_t lowering_cell(const struct lowering *lowering, const struct action *action)
{
    return (size_t)action->chunk * (size_t)lowering->compute->shape.microbatches +
           (size_t)action->microbatch;
}

static inline struct route *lowering_route(const struct lowering *lowering,
                                           const struct action *action,
                                           enum lane_direction direction)
{
    return &lowering->routes[(size_t)direction * (size_t)lowering->compute->shape.virtual_stages +
                             action->chunk];
}

void lowering_release(struct lowering *lowering);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_LOWERING_H */

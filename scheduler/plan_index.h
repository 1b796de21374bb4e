/*
 * plan_index -- where each action of a plan stands.
 *
 * Whoever follows a plan across ranks (lowering, validation, the graph, the simulation) asks here
 * for the place of an action by virtual stage and micro-batch. Building it checks each action by
 * itself: known kind, virtual stage on this rank, micro-batch in range, right peer, dependencies
 * that point backwards and to what this kind may wait for, nothing twice. What is missing has
 * ACTION_NONE: completeness is the validator's question.
 *
  * Memory is a few integers a micro-batch and virtual stage. Neighbouring stages of one micro-batch
 * lie side by side (plan_index_cell), because that is how a micro-batch is followed: with a row a
 * stage, a walk over a thousand ranks would touch another page at every step.
 */
#ifndef SCHEDULER_PLAN_INDEX_H
#define SCHEDULER_PLAN_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is looked up for a virtual stage and a micro-batch; a B stands in both I and W. */
enum plan_place {
    PLACE_F,
    PLACE_I,
    PLACE_W,
    PLACE_SEND_F,
    PLACE_SEND_B,
    PLACE_RECV_F,
    PLACE_RECV_B,
    PLACES
};

/* Stages that lie side by side: a cache line of them. */
#define PLAN_INDEX_BLOCK ((size_t)16)

struct plan_index {
    int32_t stages;         /* p·v */
    int32_t microbatches;   /* m */
    int32_t *place[PLACES]; /* owns; index in the line, by cell */
    int32_t *stage_of;      /* owns; [rank · v + chunk] */
    int64_t *first;         /* owns; number of the first action of each rank, p + 1 */
    int32_t sync[2];        /* SYNC of the head's rank and of the owner's */
    /* What follows is about messages into a virtual stage, and is there in lowered plans only. */
    int32_t *order[LANE_DIRECTIONS];   /* owns; micro-batch of the n-th, by cell */
    int32_t *turn[LANE_DIRECTIONS];    /* owns; n of a micro-batch, by cell */
    int32_t *lane_of[LANE_DIRECTIONS]; /* owns; number of the lane they come by, or ACTION_NONE */
    int32_t lanes;
    int64_t *lane_first;    /* owns; where a lane begins in `receives`, lanes + 1 */
    int32_t *lane_received; /* owns; RECVs of each lane */
    int32_t *receives;      /* owns; index of the j-th RECV of a lane in its rank's line */
};

/* Borrows `plan` during the call. STATUS_ERR_REFUSED with rank, index and action. */
enum status plan_index_init(struct plan_index *index, const struct plan *plan);

/* Where (virtual stage, micro-batch) lies in a table. */
static inline size_t plan_index_cell(const struct plan_index *index, int32_t stage,
                                     int32_t microbatch)
{
    return ((size_t)stage / PLAN_INDEX_BLOCK * (size_t)index->microbatches + (size_t)microbatch) *
               PLAN_INDEX_BLOCK +
           (size_t)stage % PLAN_INDEX_BLOCK;
}

/* Index in the line of the rank of `stage`, or ACTION_NONE. */
static inline int32_t plan_index_at(const struct plan_index *index, enum plan_place place,
                                    int32_t stage, int32_t microbatch)
{
    return index->place[place] == NULL
               ? ACTION_NONE
               : index->place[place][plan_index_cell(index, stage, microbatch)];
}

/* Safe on a zeroed index, and twice. */
void plan_index_release(struct plan_index *index);

/* The places of the two ends of a message, and of who consumes and who makes it. */
enum plan_place plan_place_send(enum lane_direction direction);
enum plan_place plan_place_receive(enum lane_direction direction);
enum plan_place plan_place_compute(enum lane_direction direction);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PLAN_INDEX_H */

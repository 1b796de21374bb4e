/*
 * plan_index -- where each action of a plan stands.
 *
 * Whoever follows a plan across ranks (lowering, validation, the graph, the simulation) asks here
 * for the place of an action by virtual stage and micro-batch. Building it checks each action by
 * itself: known kind, virtual stage on this rank, micro-batch in range, right peer, dependencies
 * that point backwards and to what this kind may wait for, nothing twice. What is missing has
 * ACTION_NONE: completeness is the validator's question.
 *
 * Memory is a few integers a micro-batch and virtual stage, with a row a stage (plan_index_cell),
 * because that is how a line is read, and a walk over many ranks reads many lines side by side.
 */
#ifndef SCHEDULER_PLAN_INDEX_H
#define SCHEDULER_PLAN_INDEX_H

#include <stdbool.h>
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

/* What belongs at the end of a line, by index, or ACTION_NONE. */
struct plan_ends {
    int32_t step;         /* the first STEP */
    int32_t reduce;       /* the first REDUCE */
    int32_t reduce_again; /* the second */
};

struct plan_index {
    int32_t stages;       /* p·v */
    int32_t microbatches; /* m */
    bool of_line;         /* knows one line at a time: plan_index_init_line() */
    size_t *base;         /* owns; where the row of a virtual stage begins in the tables by cell */
    int32_t *messages
        [LANE_DIRECTIONS]; /* owns [0]; messages of a direction into a virtual stage so far */
    size_t row;            /* elements of a virtual stage: m, and what keeps the rows of many stages
                               out of each other's cache sets */
    int32_t *tables;       /* owns; those by cell */
    int32_t *place[PLACES];  /* index in the line, by cell */
    int32_t entries[PLACES]; /* of each of them; of one line, where it knows one at a time */
    int32_t *stage_of;       /* owns; [rank · v + chunk] */
    int64_t *first;          /* owns; number of the first action of each rank, p + 1 */
    int32_t sync[2];         /* SYNC of the head's rank and of the owner's */
    struct plan_ends *ends;  /* owns; [rank] */
    /* What follows is about messages into a virtual stage, and is there in lowered plans only. */
    int32_t *order[LANE_DIRECTIONS]; /* micro-batch of the n-th, by cell, where shuffled */
    int32_t *turn[LANE_DIRECTIONS];  /* n of a micro-batch, likewise */
    bool *shuffled
        [LANE_DIRECTIONS]; /* owns [0]; by virtual stage: the n-th is not that of micro-batch n */
    int32_t *lane_of[LANE_DIRECTIONS]; /* owns; number of the lane they come by, or ACTION_NONE */
    int32_t lanes;
    int64_t *lane_first;    /* owns; where a lane begins in `receives`, lanes + 1 */
    int32_t *lane_received; /* owns; RECVs of each lane */
    int32_t *receives;      /* owns; index of the j-th RECV of a lane in its rank's line; NULL in an
                               index of one line */
};

/* Borrows `plan` during the call. STATUS_ERR_REFUSED with rank, index and action. */
enum status plan_index_init(struct plan_index *index, const struct plan *plan);

/* An index of one line at a time of a lowered plan, small enough to stay in the cache while that line
 * is read; plan_index_read_line() says which. Its tables have rows for the chunks of that rank, and `order`
 * and `turn` also for the virtual stages that it sends to; messages into its own chunks are numbered by
 * its RECVs, which are in the order of the SENDs where both ends agree on the lane. Nothing else may
 * be asked for. Other lines need not be there. */
enum status plan_index_init_line(struct plan_index *index, const struct plan *plan);
enum status plan_index_read_line(struct plan_index *index, const struct plan *plan, int32_t rank);

/* Where (virtual stage, micro-batch) lies in a table. */
static inline size_t plan_index_cell(const struct plan_index *index, int32_t stage,
                                     int32_t microbatch)
{
    return index->base[stage] + (size_t)microbatch;
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
static inline enum plan_place plan_place_send(enum lane_direction direction)
{
    return direction == LANE_F ? PLACE_SEND_F : PLACE_SEND_B;
}
static inline enum plan_place plan_place_receive(enum lane_direction direction)
{
    return direction == LANE_F ? PLACE_RECV_F : PLACE_RECV_B;
}
static inline enum plan_place plan_place_compute(enum lane_direction direction)
{
    return direction == LANE_F ? PLACE_F : PLACE_I;
}

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PLAN_INDEX_H */

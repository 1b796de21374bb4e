/*
 * search_move -- small changes of an order that keep it an order of its rank, and their undoing.
 *
 * An action passes another one only where neither needs the other on their rank, both are not of one
 * type, and they do not share a lane: two messages of a lane change places at both of its ends, and
 * so on along their way, or not at all. What other ranks say to a change (a deadlock), and memory, the
 * clock says (scheduler/search_clock.h).
 */
#ifndef SCHEDULER_SEARCH_MOVE_H
#define SCHEDULER_SEARCH_MOVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/search_order.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One op from a place in its line to another, what is between moving up by one; or, where `exchange`,
 * both change places. */
struct search_step {
    int32_t rank;
    int32_t from;
    int32_t to;
    bool exchange;
};

struct search_moves {
    struct search_order *order; /* borrows */
    int32_t *place;             /* owns; by op number, in the line of its rank */
    struct search_step *steps;  /* owns; of the last move, to be undone from the end */
    int32_t count;
    int32_t capacity;
};

enum status search_moves_init(struct search_moves *moves, struct search_order *order);
void search_moves_release(struct search_moves *moves);

/* Reads the places anew: the order has been changed from outside. */
void search_moves_read(struct search_moves *moves);

/* Moves the op at `from` towards `to`, as far as it may pass. False where that is nowhere. */
bool search_move_shift(struct search_moves *moves, int32_t rank, int32_t from, int32_t to);

/* Lets the op at `place` and the next one that shares a lane with it change places, and all those on
 * their ways that must then, too. False where one of them may not, or there is none. */
bool search_move_wave(struct search_moves *moves, int32_t rank, int32_t place);

/* Takes the last move back. */
void search_move_undo(struct search_moves *moves);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_SEARCH_MOVE_H */

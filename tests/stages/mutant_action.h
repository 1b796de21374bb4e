/*
 * mutant_action -- what the begin and the end of an action do to a mutant's world.
 *
 * Compute and messages are in mutant_action.c; SYNC, REDUCE and STEP, which are of a whole rank and
 * read sums, in mutant_ending.c. Private to them and to mutant_world.c.
 */
#ifndef TESTS_STAGES_MUTANT_ACTION_H
#define TESTS_STAGES_MUTANT_ACTION_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/stages/mutant_world.h"

/* An action at one of its two moments. */
struct moment {
    struct mutant_world *world;
    struct world_rank *self;
    struct world_chunk *chunk; /* NULL for a chunk that no rank has */
    const struct action *action;
    int32_t rank;
    int32_t index;
};

/* Notes a fault; false, so that whoever found it can return it. */
static inline bool moment_bad(const struct moment *moment, enum outcome outcome, const char *text)
{
    mutant_world_fault(moment->world, outcome, moment->rank, moment->index, text);
    return false;
}

void moment_begin_sync(const struct moment *moment);
void moment_end_sync(const struct moment *moment);
void moment_end_reduce(const struct moment *moment);
void moment_begin_step(const struct moment *moment);

/* The posted message of a lane, if it has been copied: its SEND has ended, and nobody reads the out
 * buffer any more. */
void mutant_action_note_sent(struct mutant_world *world, int32_t rank, struct world_lane *lane);

/* Whether the sums of a rank's chunks are whole, each in its order. */
bool mutant_action_sums_right(const struct mutant_world *world, int32_t rank);

/* Whether a rank has got the head's gradient as often as it must, and whole. */
bool mutant_action_sync_right(const struct mutant_world *world, int32_t rank);

#endif /* TESTS_STAGES_MUTANT_ACTION_H */

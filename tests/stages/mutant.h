/*
 * mutant -- a lowered plan with one thing wrong, or one thing other.
 *
 * A number names a mutant: schedule, sizes, the mutation and everything chosen at random in it
 * follow from the number alone, so that each can be made again by itself.
 */
#ifndef TESTS_STAGES_MUTANT_H
#define TESTS_STAGES_MUTANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scheduler/plan.h"

/* kind, text */
#define MUTATION_TABLE(X)                                                                   \
    X(SWAP_NEXT, "swap two neighbours") /* in every move dependencies follow the actions */ \
    X(SWAP_FAR, "swap two actions")                                                         \
    X(MOVE, "move an action")                                                               \
    X(DELETE, "delete an action")                                                           \
    X(DUPLICATE, "duplicate an action")                                                     \
    X(KIND, "another kind")                                                                 \
    X(MICROBATCH, "another micro-batch")                                                    \
    X(STAGE, "another virtual stage")                                                       \
    X(CHUNK, "another chunk")                                                               \
    X(PEER, "another peer")                                                                 \
    X(DIRECTION, "the other direction")                                                     \
    X(SEQUENCE, "another sequence")                                                         \
    X(SLOT, "another slot")                                                                 \
    X(GRADIENT, "another gradient set")                                                     \
    X(LANDING, "another landing buffer")                                                    \
    X(TARGET, "another target")                                                             \
    X(DROP, "drop a dependency")                                                            \
    X(REDIRECT, "redirect a dependency")                                                    \
    X(ADD, "add a dependency")                                                              \
    X(COUNT, "another buffer count")                                                        \
    X(LANDINGS, "another count of landing buffers, numbered again")                         \
    X(REORDER, "swap two compute actions and lower again")

enum mutation_kind {
#define X(kind, text) MUTATION_##kind,
    MUTATION_TABLE(X)
#undef X
    MUTATION_KINDS
};

#define MUTANT_MICROBATCHES 6
#define MUTANT_CHUNKS       3
#define MUTANT_RANKS        4

/* What was done; ACTION_NONE where it does not apply. */
struct mutation {
    enum mutation_kind kind;
    int32_t rank;
    int32_t index; /* in the line of the original plan; of COUNT and LANDINGS: the chunk */
    int32_t other; /* SWAP, MOVE, DUPLICATE, REORDER: the other place in the line */
    int32_t was;   /* the field, dependency or count before … */
    int32_t is;    /* … and after */
};

struct mutant {
    struct plan *original; /* owns; accepted */
    struct plan *plan;     /* owns; with the mutation */
    struct mutation mutation;
};

/* Numbers that follow from a seed. */
struct dice {
    uint64_t state;
};

uint64_t dice_next(struct dice *dice);
int32_t dice_roll(struct dice *dice, int32_t sides); /* 0 … sides - 1 */

/* Fails the test where it cannot be made. mutant_release() it. */
void mutant_make(uint64_t number, struct mutant *mutant_out);
void mutant_release(struct mutant *mutant);

/* "interleaved_1f1b p 2 v 3 m 5 ...: rank 1 action 7 (1B3): drop a dependency, 3 -> -1". */
void mutant_print(const struct mutant *mutant, char *text, size_t text_bytes);

/* Whether an action of this kind has the field that a mutation changes; true of mutations that
 * change no field. By scheduler/action.h. */
bool mutation_has_field(const struct plan *plan, const struct action *action,
                        enum mutation_kind kind);

/* A copy that may be changed, of any plan; plan_destroy() it. */
struct plan *mutant_copy_plan(const struct plan *plan);

/* Swaps two actions of a line; dependencies follow the actions. Those that would point to a later
 * action are forgotten where `forget`. */
void mutant_swap(struct plan *plan, int32_t rank, int32_t index, int32_t other, bool forget);

/* Takes an action out of its line; whoever depends on it does no longer. */
void mutant_delete(struct plan *plan, int32_t rank, int32_t index);

/* "drop a dependency"; a static string. */
const char *mutation_text(enum mutation_kind kind);

#endif /* TESTS_STAGES_MUTANT_H */

#include "plan_mutation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MOST_LINE 128

/* Moves the actions of a line: the i-th of the new line is `order[i]` of the old one. Dependencies
 * follow; one on an action that is gone is left out. */
static void rearrange(struct plan *plan, int32_t rank, const int32_t *order, int32_t count)
{
    struct plan_line *line = &plan->lines[rank];
    struct action old[MOST_LINE];
    int32_t to[MOST_LINE];
    int32_t i;
    int d;

    assert_true(line->count <= MOST_LINE && count <= MOST_LINE && count <= line->capacity);
    memcpy(old, line->actions, (size_t)line->count * sizeof(*old));
    for (i = 0; i < MOST_LINE; i++) {
        to[i] = ACTION_NONE;
    }
    for (i = count; i > 0; i--) {
        to[order[i - 1]] = i - 1;
    }
    for (i = 0; i < count; i++) {
        struct action *action = &line->actions[i];
        int kept = 0;

        *action = old[order[i]];
        for (d = 0; d < ACTION_DEPENDS; d++) {
            int32_t other =
                action->depends[d] == ACTION_NONE ? ACTION_NONE : to[action->depends[d]];

            action->depends[d] = ACTION_NONE;
            if (other != ACTION_NONE) {
                action->depends[kept++] = other;
            }
        }
    }
    line->count = count;
}

void mutation_drop(struct plan *plan, int32_t rank, int32_t at)
{
    int32_t order[MOST_LINE];
    int32_t count = 0;
    int32_t i;

    for (i = 0; i < plan->lines[rank].count; i++) {
        if (i != at) {
            order[count++] = i;
        }
    }
    rearrange(plan, rank, order, count);
}

void mutation_duplicate(struct plan *plan, int32_t rank, int32_t at)
{
    int32_t order[MOST_LINE];
    int32_t i;

    assert_int_equal(plan_reserve(plan, rank, plan->lines[rank].count + 1), STATUS_OK);
    for (i = 0; i <= plan->lines[rank].count; i++) {
        order[i] = i <= at ? i : i - 1;
    }
    rearrange(plan, rank, order, plan->lines[rank].count + 1);
}

void mutation_swap(struct plan *plan, int32_t rank, int32_t a, int32_t b)
{
    int32_t order[MOST_LINE];
    int32_t i;

    for (i = 0; i < plan->lines[rank].count; i++) {
        order[i] = i == a ? b : i == b ? a : i;
    }
    rearrange(plan, rank, order, plan->lines[rank].count);
}

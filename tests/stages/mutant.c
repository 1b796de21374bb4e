#include "tests/stages/mutant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "tests/scheduler/fake_token.h"
#include "tests/stages/landing.h"

static const char *const mutation_texts[MUTATION_KINDS] = {
#define X(kind, text) text,
    MUTATION_TABLE(X)
#undef X
};

const char *mutation_text(enum mutation_kind kind)
{
    return mutation_texts[kind];
}

uint64_t dice_next(struct dice *dice)
{
    dice->state += UINT64_C(0x9E3779B97F4A7C15);
    return fake_mix(dice->state);
}

int32_t dice_roll(struct dice *dice, int32_t sides)
{
    return (int32_t)(dice_next(dice) % (uint64_t)sides);
}

/* Any number of [low, high] but `except`. */
static int32_t roll_other(struct dice *dice, int32_t low, int32_t high, int32_t except)
{
    int32_t value = low + dice_roll(dice, high - low);

    return value >= except ? value + 1 : value;
}

static struct plan_shape random_shape(struct dice *dice)
{
    struct plan_shape shape = {.schedule = (enum schedule)dice_roll(dice, SCHEDULE_FILE)};

    shape.ranks = 1 + dice_roll(dice, MUTANT_RANKS);
    shape.microbatches = 1 + dice_roll(dice, MUTANT_MICROBATCHES);
    shape.virtual_stages = 1 + dice_roll(dice, MUTANT_CHUNKS);
    while (!schedule_takes_chunks(shape.schedule, shape.virtual_stages)) {
        shape.virtual_stages = 1 + shape.virtual_stages % 2;
    }
    shape.extra_in_flight = schedule_takes_extra(shape.schedule) ? dice_roll(dice, 3) : 0;
    shape.lane_depth = 1 + dice_roll(dice, 3);
    shape.early_send = dice_roll(dice, 2) != 0;
    shape.embedding_sync = dice_roll(dice, 2) != 0;
    shape.reduce = dice_roll(dice, 2) != 0;
    return shape;
}

struct plan *mutant_copy_plan(const struct plan *plan)
{
    struct plan *copy = NULL;
    size_t stages = (size_t)plan_stages(plan);

    assert_int_equal(plan_create(&plan->shape, &copy), STATUS_OK);
    copy->lowered = plan->lowered;
    memcpy(copy->buffers, plan->buffers, stages * sizeof(*copy->buffers));
    memcpy(copy->rank_of, plan->rank_of, stages * sizeof(*copy->rank_of));
    memcpy(copy->chunk_of, plan->chunk_of, stages * sizeof(*copy->chunk_of));
    for (int32_t rank = 0; rank < plan->shape.ranks; rank++) {
        for (int32_t i = 0; i < plan->lines[rank].count; i++) {
            assert_int_equal(plan_append(copy, rank, &plan->lines[rank].actions[i]), STATUS_OK);
        }
    }
    return copy;
}

/* Takes empty places out of the middle of a list of dependencies. */
static void pack_depends(struct action *action)
{
    int kept = 0;

    for (int d = 0; d < ACTION_DEPENDS; d++) {
        int32_t other = action->depends[d];

        action->depends[d] = ACTION_NONE;
        if (other != ACTION_NONE) {
            action->depends[kept++] = other;
        }
    }
}

/* Every dependency on old place i of the line becomes one on place_of[i]. */
static void renumber(struct plan_line *line, const int32_t *place_of, int32_t places, bool forget)
{
    for (int32_t i = 0; i < line->count; i++) {
        struct action *action = &line->actions[i];

        for (int d = 0; d < ACTION_DEPENDS; d++) {
            int32_t other = action->depends[d];

            other = other >= 0 && other < places ? place_of[other] : ACTION_NONE;
            action->depends[d] = forget && other >= i ? ACTION_NONE : other;
        }
        pack_depends(action);
    }
}

static int32_t *same_places(int32_t count)
{
    int32_t *place_of = test_malloc(((size_t)count + 1) * sizeof(*place_of));

    for (int32_t i = 0; i < count; i++) {
        place_of[i] = i;
    }
    return place_of;
}

void mutant_swap(struct plan *plan, int32_t rank, int32_t index, int32_t other, bool forget)
{
    struct plan_line *line = &plan->lines[rank];
    struct action kept = line->actions[index];
    int32_t *place_of = same_places(line->count);

    line->actions[index] = line->actions[other];
    line->actions[other] = kept;
    place_of[index] = other;
    place_of[other] = index;
    renumber(line, place_of, line->count, forget);
    test_free(place_of);
}

void mutant_delete(struct plan *plan, int32_t rank, int32_t index)
{
    struct plan_line *line = &plan->lines[rank];
    int32_t count = line->count;
    int32_t *place_of = same_places(count);

    place_of[index] = ACTION_NONE;
    for (int32_t i = index + 1; i < count; i++) {
        place_of[i] = i - 1;
        line->actions[i - 1] = line->actions[i];
    }
    line->count--;
    renumber(line, place_of, count, false);
    test_free(place_of);
}

/* Puts `action`, with its old dependencies, in front of the one that stands at `index`. */
static void insert(struct plan *plan, int32_t rank, int32_t index, const struct action *action)
{
    struct plan_line *line = &plan->lines[rank];
    int32_t count = line->count;
    int32_t *place_of = same_places(count);

    assert_int_equal(plan_append(plan, rank, action), STATUS_OK);
    for (int32_t i = count; i > index; i--) {
        line->actions[i] = line->actions[i - 1];
        place_of[i - 1] = i;
    }
    line->actions[index] = *action;
    renumber(line, place_of, count, false);
    test_free(place_of);
}

static void move(struct plan *plan, struct mutation *mutation, bool forget)
{
    int32_t step = mutation->other > mutation->index ? 1 : -1;

    for (int32_t i = mutation->index; i != mutation->other; i += step) {
        mutant_swap(plan, mutation->rank, i, i + step, false);
    }
    if (forget) { /* now that all have their places */
        mutant_swap(plan, mutation->rank, mutation->other, mutation->other, true);
    }
}

/* Random places of a line of at least one action; `other` differs where it can. */
static void choose_places(const struct plan *plan, struct dice *dice, struct mutation *mutation)
{
    int32_t count = 0;

    mutation->rank = dice_roll(dice, plan->shape.ranks);
    count = plan->lines[mutation->rank].count;
    mutation->index = dice_roll(dice, count);
    mutation->other = count > 1 ? roll_other(dice, 0, count - 1, mutation->index) : mutation->index;
}

/* False where the line has nothing to swap with. */
static bool mutate_order(struct plan *plan, struct dice *dice, struct mutation *mutation)
{
    int32_t count = plan->lines[mutation->rank].count;
    bool forget = dice_roll(dice, 2) != 0;

    if (mutation->kind == MUTATION_DELETE) {
        mutant_delete(plan, mutation->rank, mutation->index);
        return true;
    }
    if (mutation->kind == MUTATION_DUPLICATE) {
        struct action action = plan->lines[mutation->rank].actions[mutation->index];

        mutation->other = mutation->index + 1 + dice_roll(dice, count - mutation->index);
        insert(plan, mutation->rank, mutation->other, &action);
        return true;
    }
    if (mutation->kind == MUTATION_SWAP_NEXT) {
        mutation->other = mutation->index + 1;
    }
    if (count < 2 || mutation->other >= count) {
        return false;
    }
    if (mutation->kind == MUTATION_MOVE) {
        move(plan, mutation, forget);
    } else {
        mutant_swap(plan, mutation->rank, mutation->index, mutation->other, forget);
    }
    return true;
}

static void set(struct mutation *mutation, int32_t *field, struct dice *dice, int32_t low,
                int32_t high)
{
    mutation->was = *field;
    *field = roll_other(dice, low, high, *field);
    mutation->is = *field;
}

/* The fields that are bytes or 16 bits wide. */
static void mutate_narrow(struct plan *plan, struct dice *dice, struct mutation *mutation)
{
    struct action *action = &plan->lines[mutation->rank].actions[mutation->index];
    int32_t value = mutation->kind == MUTATION_KIND    ? action->kind
                    : mutation->kind == MUTATION_CHUNK ? action->chunk
                                                       : action->direction;
    int32_t high = mutation->kind == MUTATION_KIND    ? ACTION_KINDS
                   : mutation->kind == MUTATION_CHUNK ? plan->shape.virtual_stages
                                                      : LANE_DIRECTIONS;

    set(mutation, &value, dice, 0, high);
    if (mutation->kind == MUTATION_KIND) {
        action->kind = (uint8_t)value;
    } else if (mutation->kind == MUTATION_CHUNK) {
        action->chunk = (uint16_t)value;
    } else {
        action->direction = (uint8_t)value;
    }
}

bool mutation_has_field(const struct plan *plan, const struct action *action,
                        enum mutation_kind kind)
{
    enum action_kind of = (enum action_kind)action->kind;
    bool message = of == ACTION_SEND || of == ACTION_RECV;
    bool compute = action_is_compute(of);

    switch (kind) {
    case MUTATION_PEER:
    case MUTATION_SEQUENCE:
    case MUTATION_DIRECTION:
        return message;
    case MUTATION_MICROBATCH:
    case MUTATION_STAGE:
    case MUTATION_CHUNK:
    case MUTATION_LANDING:
        return message || compute;
    case MUTATION_SLOT:
        return compute;
    case MUTATION_GRADIENT:
        return compute && of != ACTION_F;
    case MUTATION_TARGET:
        return compute && of != ACTION_W &&
               plan_local_target(plan, action->virtual_stage, of == ACTION_F ? LANE_F : LANE_B) !=
                   ACTION_NONE;
    default:
        return true;
    }
}

static void mutate_field(struct plan *plan, struct dice *dice, struct mutation *mutation)
{
    struct action *action = &plan->lines[mutation->rank].actions[mutation->index];
    int32_t m = plan->shape.microbatches;

    switch (mutation->kind) {
    case MUTATION_MICROBATCH:
        set(mutation, &action->microbatch, dice, -1, m);
        return;
    case MUTATION_STAGE:
        set(mutation, &action->virtual_stage, dice, -1, plan_stages(plan));
        return;
    case MUTATION_PEER:
        set(mutation, &action->peer, dice, -1, plan->shape.ranks);
        return;
    case MUTATION_SEQUENCE:
        set(mutation, &action->sequence, dice, -1, m);
        return;
    case MUTATION_SLOT:
        set(mutation, &action->slot, dice, -1, m);
        return;
    case MUTATION_GRADIENT:
        set(mutation, &action->gradient, dice, -1, m);
        return;
    case MUTATION_LANDING:
        set(mutation, &action->landing, dice, -1, m);
        return;
    case MUTATION_TARGET:
        set(mutation, &action->target, dice, -1, m);
        return;
    default:
        mutate_narrow(plan, dice, mutation);
    }
}

/* False where the action has no dependency to drop, or no place for another. */
static bool mutate_depends(struct plan *plan, struct dice *dice, struct mutation *mutation)
{
    struct action *action = &plan->lines[mutation->rank].actions[mutation->index];
    int32_t count = 0;
    int32_t which = 0;

    while (count < ACTION_DEPENDS && action->depends[count] != ACTION_NONE) {
        count++;
    }
    if (mutation->kind == MUTATION_ADD) {
        which = count;
        if (count == ACTION_DEPENDS || mutation->index == 0) {
            return false;
        }
    } else if (count == 0) {
        return false;
    } else {
        which = dice_roll(dice, count);
    }
    mutation->was = action->depends[which];
    if (mutation->kind == MUTATION_DROP) {
        action->depends[which] = ACTION_NONE;
        if (dice_roll(dice, 4) != 0) { /* else what stands behind is lost too */
            pack_depends(action);
        }
    } else {
        /* now and then one that does not point backwards */
        int32_t high =
            dice_roll(dice, 8) == 0 ? plan->lines[mutation->rank].count : mutation->index - 1;

        action->depends[which] = high > 0 ? roll_other(dice, 0, high, mutation->was) : 0;
    }
    mutation->is = action->depends[which];
    return true;
}

/* Landing buffers that are numbered again stay some where a lane or a chunk needs some. */
static bool mutate_count(struct plan *plan, struct dice *dice, struct mutation *mutation)
{
    int32_t chunk = dice_roll(dice, plan->shape.virtual_stages);
    struct plan_buffers *buffers =
        &plan->buffers[mutation->rank * plan->shape.virtual_stages + chunk];
    int32_t *fields[] = {&buffers->landing_f, &buffers->landing_b, &buffers->slots,
                         &buffers->gradients};
    bool landings = mutation->kind == MUTATION_LANDINGS;
    int32_t *field = fields[dice_roll(dice, landings ? 2 : 4)];

    mutation->index = chunk;
    mutation->other = ACTION_NONE;
    if (!landings) {
        set(mutation, field, dice, *field > 2 ? *field - 2 : 0, *field + 2);
        return true;
    }
    if (*field == 0) {
        return false;
    }
    set(mutation, field, dice, 1, *field + 1);
    assert_int_equal(landing_number(plan), STATUS_OK);
    return true;
}

/* Another order of compute actions, lowered as any other; false where that is not possible. */
static bool mutate_compute(struct mutant *mutant, struct plan *compute, struct dice *dice)
{
    struct mutation *mutation = &mutant->mutation;
    struct plan_line *line = NULL;
    struct action kept;

    choose_places(compute, dice, mutation);
    line = &compute->lines[mutation->rank];
    if (dice_roll(dice, 2) != 0) {
        mutation->other = mutation->index + 1;
    }
    if (mutation->other >= line->count) {
        return false;
    }
    kept = line->actions[mutation->index];
    line->actions[mutation->index] = line->actions[mutation->other];
    line->actions[mutation->other] = kept;
    plan_destroy(&mutant->plan);
    if (plan_lower(compute, &mutant->plan) == STATUS_OK) {
        return true;
    }
    line->actions[mutation->other] = line->actions[mutation->index];
    line->actions[mutation->index] = kept;
    mutant->plan = mutant_copy_plan(mutant->original);
    return false;
}

/* Whether the mutation was possible there; nothing has changed where not. */
static bool mutate(struct mutant *mutant, struct plan *compute, struct dice *dice)
{
    struct mutation *mutation = &mutant->mutation;

    *mutation = (struct mutation){.kind = (enum mutation_kind)dice_roll(dice, MUTATION_KINDS),
                                  .was = ACTION_NONE,
                                  .is = ACTION_NONE};
    if (mutation->kind == MUTATION_REORDER) {
        return mutate_compute(mutant, compute, dice);
    }
    choose_places(mutant->plan, dice, mutation);
    switch (mutation->kind) {
    case MUTATION_SWAP_NEXT:
    case MUTATION_SWAP_FAR:
    case MUTATION_MOVE:
    case MUTATION_DELETE:
    case MUTATION_DUPLICATE:
        return mutate_order(mutant->plan, dice, mutation);
    case MUTATION_DROP:
    case MUTATION_REDIRECT:
    case MUTATION_ADD:
        return mutate_depends(mutant->plan, dice, mutation);
    case MUTATION_COUNT:
    case MUTATION_LANDINGS:
        return mutate_count(mutant->plan, dice, mutation);
    default:
        break;
    }
    /* Fields that an action does not have tell little: few of them. */
    if (!mutation_has_field(mutant->plan,
                            &mutant->plan->lines[mutation->rank].actions[mutation->index],
                            mutation->kind) &&
        dice_roll(dice, 8) != 0) {
        return false;
    }
    mutate_field(mutant->plan, dice, mutation);
    return true;
}

void mutant_make(uint64_t number, struct mutant *mutant_out)
{
    struct dice dice = {.state = fake_mix(number)};
    struct plan_shape shape = random_shape(&dice);
    struct plan *compute = NULL;

    memset(mutant_out, 0, sizeof(*mutant_out));
    assert_int_equal(plan_generate(&shape, &compute), STATUS_OK);
    assert_int_equal(plan_lower(compute, &mutant_out->original), STATUS_OK);
    mutant_out->plan = mutant_copy_plan(mutant_out->original);
    while (!mutate(mutant_out, compute, &dice)) {
        /* the next throw of the same dice */
    }
    plan_destroy(&compute);
}

void mutant_release(struct mutant *mutant)
{
    plan_destroy(&mutant->original);
    plan_destroy(&mutant->plan);
}

void mutant_print(const struct mutant *mutant, char *text, size_t text_bytes)
{
    const struct plan_shape *shape = &mutant->original->shape;
    const struct mutation *mutation = &mutant->mutation;
    const struct plan_line *line = &mutant->original->lines[mutation->rank];
    bool counts = mutation->kind == MUTATION_COUNT || mutation->kind == MUTATION_LANDINGS;
    char action[32] = "";

    if (!counts && mutation->kind != MUTATION_REORDER && mutation->index < line->count) {
        (void)action_print(&line->actions[mutation->index], action, sizeof(action));
    }
    (void)snprintf(text, text_bytes,
                   "%s p %d v %d m %d depth %d%s%s%s: rank %d, %s %d (%s): %s, other place %d, "
                   "%d -> %d",
                   schedule_text(shape->schedule), shape->ranks, shape->virtual_stages,
                   shape->microbatches, shape->lane_depth, shape->early_send ? " early" : "",
                   shape->embedding_sync ? " sync" : "", shape->reduce ? " reduce" : "",
                   mutation->rank, counts ? "chunk" : "action", mutation->index, action,
                   mutation_text(mutation->kind), mutation->other, mutation->was, mutation->is);
}

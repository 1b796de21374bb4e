#include "scheduler/search_space.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum status check_cost(const char *what, int32_t stage, double cost)
{
    if (!(cost >= 0.0) || !isfinite(cost)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "schedule search: %s of virtual stage %d is %g, expected a finite "
                           "number >= 0",
                           what, stage, cost);
    }
    return STATUS_OK;
}

static enum status check_memory(const struct search_space *space)
{
    const struct search_memory *memory = &space->memory;
    int32_t i;

    for (i = 0; memory->limit != NULL && i < space->stages; i++) {
        if (search_stash(space, i) < 0 || search_gradient(space, i) < 0 ||
            search_landing(space, i) < 0) {
            return status_fail(STATUS_ERR_REFUSED,
                               "schedule search: buffers of virtual stage %d have %lld, %lld and "
                               "%lld units, expected at least 0",
                               i, (long long)search_stash(space, i),
                               (long long)search_gradient(space, i),
                               (long long)search_landing(space, i));
        }
    }
    for (i = 0; memory->limit != NULL && i < space->ranks; i++) {
        if (search_fixed(space, i) < 0) {
            return status_fail(STATUS_ERR_REFUSED,
                               "schedule search: rank %d holds %lld units for good, expected at "
                               "least 0",
                               i, (long long)search_fixed(space, i));
        }
    }
    return STATUS_OK;
}

static double latency_into(const struct plan_costs *costs, enum lane_direction direction,
                           int32_t stage)
{
    const double *into = costs->message_into[direction];

    return into != NULL ? into[stage] : costs->message;
}

static enum status check_stage(const struct plan_costs *costs, int32_t stage)
{
    TRY(check_cost("F", stage, costs->F[stage]));
    TRY(check_cost("I", stage, costs->I[stage]));
    TRY(check_cost("W", stage, costs->W[stage]));
    TRY(check_cost("a message", stage, latency_into(costs, LANE_F, stage)));
    return check_cost("a message", stage, latency_into(costs, LANE_B, stage));
}

static enum status check_costs(const struct search_space *space)
{
    const struct plan_costs *costs = &space->costs;
    int32_t i;

    for (i = 0; i < space->stages; i++) {
        TRY(check_stage(costs, i));
    }
    TRY(check_cost("a send", 0, costs->send));
    TRY(check_cost("an action", 0, costs->action));
    return check_cost("a gather", 0, costs->gather);
}

/* Ranks, and the chunks of each in model order. */
static enum status place(struct search_space *space, const int32_t *rank_of)
{
    int32_t *count = calloc((size_t)space->ranks, sizeof(*count));
    enum status status = STATUS_OK;
    int32_t stage;

    if (count == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "schedule search: no memory for %d ranks",
                           space->ranks);
    }
    for (stage = 0; stage < space->stages; stage++) {
        int32_t rank = rank_of != NULL ? rank_of[stage] : stage % space->ranks;

        if (rank < 0 || rank >= space->ranks || count[rank] == space->chunks) {
            status = status_fail(STATUS_ERR_REFUSED,
                                 "schedule search: virtual stage %d is placed on rank %d, expected "
                                 "one of %d ranks with %d chunks each",
                                 stage, rank, space->ranks, space->chunks);
            break;
        }
        space->rank_of[stage] = rank;
        space->chunk_of[stage] = count[rank];
        space->stage_of[rank * space->chunks + count[rank]] = stage;
        count[rank]++;
    }
    free(count);
    return status;
}

static void describe(struct search_space *space, int32_t stage, enum search_kind kind)
{
    const struct plan_costs *costs = &space->costs;
    enum lane_direction direction = kind == SEARCH_F ? LANE_F : LANE_B;
    int32_t step = kind == SEARCH_F ? 1 : -1;
    int32_t before = stage - step;
    int32_t after = stage + step;
    struct search_type *type = &space->type[search_type_of(stage, kind)];

    *type = (struct search_type){.rank = space->rank_of[stage],
                                 .stage = stage,
                                 .kind = kind,
                                 .producer = SEARCH_NONE,
                                 .consumer = SEARCH_NONE,
                                 .reader = SEARCH_NONE,
                                 .lane_in = SEARCH_NONE,
                                 .lane_out = SEARCH_NONE};
    if (kind == SEARCH_W) {
        type->cost = costs->W[stage];
        return;
    }
    type->cost = kind == SEARCH_F ? costs->F[stage] : costs->I[stage];
    type->reader = search_type_of(stage, kind == SEARCH_F ? SEARCH_I : SEARCH_W);
    type->latency = latency_into(costs, direction, stage);
    if (before >= 0 && before < space->stages) {
        type->producer = search_type_of(before, kind);
    }
    if (after >= 0 && after < space->stages && space->rank_of[after] != space->rank_of[stage]) {
        type->consumer = search_type_of(after, kind);
    }
}

/* One lane for all messages of a direction between two ranks. Looks at the chunks of the sender only,
 * so that all lanes are numbered in p·v² steps. */
static void number_lane(struct search_space *space, int32_t number)
{
    struct search_type *type = &space->type[number];
    int32_t chunk;

    if (type->consumer == SEARCH_NONE) {
        return;
    }
    for (chunk = 0; chunk < space->chunks; chunk++) {
        int32_t stage = space->stage_of[type->rank * space->chunks + chunk];
        const struct search_type *other = &space->type[search_type_of(stage, type->kind)];

        if (other->lane_out != SEARCH_NONE && other->consumer != SEARCH_NONE &&
            space->type[other->consumer].rank == space->type[type->consumer].rank) {
            type->lane_out = other->lane_out;
        }
    }
    if (type->lane_out == SEARCH_NONE) {
        type->lane_out = space->lanes++;
    }
    space->type[type->consumer].lane_in = type->lane_out;
}

static enum status fill(struct search_space *space, const int32_t *rank_of)
{
    int32_t stage;
    int kind;

    TRY(place(space, rank_of));
    TRY(check_costs(space));
    TRY(check_memory(space));
    for (stage = 0; stage < space->stages; stage++) {
        for (kind = 0; kind < SEARCH_KINDS; kind++) {
            describe(space, stage, (enum search_kind)kind);
        }
    }
    for (stage = 0; stage < space->stages * SEARCH_KINDS; stage++) {
        number_lane(space, stage);
    }
    return STATUS_OK;
}

enum status search_space_init(struct search_space *space, const struct plan_shape *shape,
                              const int32_t *rank_of, const struct plan_costs *costs,
                              const struct search_memory *memory)
{
    struct plan_shape as_file = *shape;
    struct plan *plan = NULL;
    size_t stages;
    enum status status;

    memset(space, 0, sizeof(*space));
    as_file.schedule = SCHEDULE_FILE;
    as_file.placement = PLACEMENT_SCHEDULE; /* rank_of tells */
    as_file.extra_in_flight = 0;
    TRY(plan_create(&as_file, &plan)); /* refuses shapes that are none */
    plan_destroy(&plan);
    space->ranks = shape->ranks;
    space->microbatches = shape->microbatches;
    space->chunks = shape->virtual_stages;
    space->stages = shape->ranks * shape->virtual_stages;
    space->length = SEARCH_KINDS * shape->virtual_stages * shape->microbatches;
    space->shape = as_file;
    space->costs = *costs;
    space->memory = *memory;
    stages = (size_t)space->stages;
    space->rank_of = calloc(3 * stages, sizeof(*space->rank_of));
    space->type = calloc(SEARCH_KINDS * stages, sizeof(*space->type));
    if (space->rank_of == NULL || space->type == NULL) {
        search_space_release(space);
        return status_fail(STATUS_ERR_NO_MEMORY,
                           "schedule search: no memory for %zu virtual stages", stages);
    }
    space->chunk_of = space->rank_of + stages;
    space->stage_of = space->rank_of + 2 * stages;
    status = fill(space, rank_of);
    if (status < 0) {
        search_space_release(space);
    }
    return status;
}

void search_space_release(struct search_space *space)
{
    free(space->rank_of);
    free(space->type);
    memset(space, 0, sizeof(*space));
}

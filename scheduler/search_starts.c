#include "scheduler/search_starts.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/search_clock.h"
#include "scheduler/search_greedy.h"

/* One space while it is looked at. */
struct look {
    struct search_starts *starts;
    const struct search_space *space;
    int32_t number; /* of the space */
    struct search_clock clock;
    struct search_order order;
    int64_t left; /* evaluations */
};

static enum status look_init(struct look *look)
{
    TRY(search_clock_init(&look->clock, look->space));
    return search_order_init(&look->order, look->space);
}

static void look_release(struct look *look)
{
    search_clock_release(&look->clock);
    search_order_release(&look->order);
}

static bool is_known(const struct look *look, double makespan)
{
    const struct search_starts *starts = look->starts;
    size_t bytes =
        (size_t)look->space->ranks * (size_t)look->space->length * sizeof(struct search_op);
    int32_t i;

    for (i = 0; i < starts->count; i++) {
        if (starts->start[i].space == look->number && starts->start[i].makespan == makespan &&
            memcmp(starts->start[i].order.ops, look->order.ops, bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* Keeps the order where it is among the best. */
static enum status offer(struct look *look, double makespan, const char *origin)
{
    struct search_starts *starts = look->starts;
    struct search_start start = {.space = look->number, .makespan = makespan};
    int32_t at;

    if (makespan >= SEARCH_NEVER || is_known(look, makespan)) {
        return STATUS_OK;
    }
    if (starts->count == SEARCH_STARTS_MOST) {
        if (makespan >= starts->start[starts->count - 1].makespan) {
            return STATUS_OK;
        }
        search_order_release(&starts->start[--starts->count].order);
    }
    TRY(search_order_init(&start.order, look->space));
    search_order_copy(&start.order, &look->order);
    (void)snprintf(start.origin, sizeof(start.origin), "%s", origin);
    for (at = starts->count; at > 0 && starts->start[at - 1].makespan > makespan; at--) {
        starts->start[at] = starts->start[at - 1];
    }
    starts->start[at] = start;
    starts->count++;
    return STATUS_OK;
}

/* Remembers how far the order is from fitting. */
static void note_excess(struct look *look)
{
    struct search_starts *starts = look->starts;
    const int64_t *limit = look->space->memory.limit;
    int64_t excess = -1;
    int64_t need = 0;
    int32_t fullest = 0;
    int32_t rank;

    for (rank = 0; limit != NULL && rank < look->space->ranks; rank++) {
        int64_t of_rank = search_clock_need(&look->clock, rank);

        if (of_rank - limit[rank] > excess) {
            excess = of_rank - limit[rank];
            need = of_rank;
            fullest = rank;
        }
    }
    if (excess < starts->least_excess) {
        starts->least_excess = excess;
        starts->need = need;
        starts->fullest = fullest;
    }
}

static enum status time_order(struct look *look, const char *origin)
{
    double makespan;

    look->left--;
    look->starts->evaluations++;
    makespan = search_clock_run(&look->clock, &look->order);
    note_excess(look);
    return offer(look, makespan, origin);
}

void search_named_print(const struct plan_shape *shape, char *text, size_t text_bytes)
{
    if (shape->extra_in_flight > 0) {
        (void)snprintf(text, text_bytes, "%s, %d more in flight", schedule_text(shape->schedule),
                       shape->extra_in_flight);
        return;
    }
    (void)snprintf(text, text_bytes, "%s", schedule_text(shape->schedule));
}

/* Units that the buffers of a lowered plan take on `rank`; where chunks share, the order tells, which
 * has just been timed. */
static int64_t named_need(const struct look *look, const struct plan *lowered, int32_t rank)
{
    const struct search_space *space = look->space;
    int64_t need = search_fixed(space, rank);
    int32_t chunk;

    if (space->memory.together) {
        return search_clock_need(&look->clock, rank);
    }
    for (chunk = 0; chunk < space->chunks; chunk++) {
        const struct plan_buffers *buffers = plan_buffers_of(lowered, rank, chunk);
        int32_t stage = space->stage_of[rank * space->chunks + chunk];

        need += buffers->slots * search_stash(space, stage) +
                buffers->gradients * search_gradient(space, stage) +
                (buffers->landing_f + buffers->landing_b) * search_landing(space, stage);
    }
    return need;
}

/* Takes the lowered plan where it fits and is shorter than what is known of its kind. */
static enum status offer_named(struct look *look, const struct plan *lowered)
{
    struct search_named *named = &look->starts->named;
    const int64_t *limit = look->space->memory.limit;
    struct simulation simulation;
    double makespan;
    int64_t most = 0;
    int32_t rank;

    for (rank = 0; limit != NULL && rank < look->space->ranks; rank++) {
        int64_t need = named_need(look, lowered, rank);

        if (need > limit[rank]) {
            return STATUS_OK;
        }
        most = need > most ? need : most;
    }
    TRY(plan_simulate(lowered, &look->space->costs, &simulation));
    makespan = simulation.makespan;
    simulation_release(&simulation);
    if (makespan < named->makespan || (makespan == named->makespan && most < named->need)) {
        named->makespan = makespan;
        named->need = most;
        named->space = look->number;
        named->shape = lowered->shape;
    }
    return STATUS_OK;
}

static bool is_placed_alike(const struct search_space *space, const struct plan *plan)
{
    return memcmp(plan->rank_of, space->rank_of, (size_t)space->stages * sizeof(int32_t)) == 0;
}

/* One schedule as it is, and its order as that of a file. */
static enum status look_at_plan(struct look *look, const struct plan *compute)
{
    struct plan *lowered = NULL;
    char origin[SEARCH_ORIGIN];
    enum status status;

    TRY(search_order_take(&look->order, compute));
    search_named_print(&compute->shape, origin, sizeof(origin));
    TRY(time_order(look, origin));
    TRY(plan_lower(compute, &lowered));
    status = offer_named(look, lowered);
    plan_destroy(&lowered);
    return status;
}

static enum status look_at_schedule(struct look *look, enum schedule schedule,
                                    enum placement placement, int32_t extra)
{
    struct plan_shape shape = look->space->shape;
    struct plan *compute = NULL;
    enum status status = STATUS_OK;

    shape.schedule = schedule;
    shape.placement = placement;
    shape.extra_in_flight = extra;
    TRY(plan_generate(&shape, &compute));
    if (is_placed_alike(look->space, compute)) {
        status = look_at_plan(look, compute);
    }
    plan_destroy(&compute);
    return status;
}

/* One schedule, with none, one, two and as many as help more in flight where it takes them. */
static enum status look_at_extras(struct look *look, enum schedule schedule,
                                  enum placement placement)
{
    int32_t most = schedule_takes_extra(schedule) ? look->space->ranks - 1 : 0;
    int32_t extra = 0;

    while (extra <= most && look->left > 0) {
        TRY(look_at_schedule(look, schedule, placement, extra));
        extra = extra < 2 || extra == most ? extra + 1 : most;
    }
    return STATUS_OK;
}

/* All schedules with an order of these chunks on this placement. */
static enum status look_at_schedules(struct look *look, enum placement placement)
{
    int i;

    if (placement == PLACEMENT_ZIGZAG && look->space->chunks % 2 != 0) {
        return STATUS_OK;
    }
    for (i = 0; i < SCHEDULES; i++) {
        enum schedule schedule = (enum schedule)i;
        bool taken = schedule != SCHEDULE_FILE && schedule_trains(schedule) &&
                     schedule_takes_chunks(schedule, look->space->chunks) &&
                     schedule_takes_placement(schedule, placement);

        TRY(taken ? look_at_extras(look, schedule, placement) : STATUS_OK);
    }
    return STATUS_OK;
}

static enum status look_at_rule(struct look *look, const struct search_rule *rule)
{
    char origin[SEARCH_ORIGIN];
    bool found = false;

    TRY(search_greedy_run(rule, &look->order, &found));
    search_rule_print(rule, origin, sizeof(origin));
    return found ? time_order(look, origin) : STATUS_OK;
}

static enum status look_at_rules(struct look *look)
{
    int32_t i;

    for (i = 0; i < SEARCH_RULES && look->left > 0; i++) {
        struct search_rule rule = search_rule_number(i);

        TRY(look_at_rule(look, &rule));
    }
    return STATUS_OK;
}

static enum status look_at_space(struct look *look)
{
    TRY(look_init(look));
    TRY(look_at_schedules(look, PLACEMENT_LOOP));
    TRY(look_at_schedules(look, PLACEMENT_ZIGZAG));
    return look_at_rules(look);
}

enum status search_starts_make(struct search_starts *starts, const struct search_space *spaces,
                               int32_t count, int64_t evaluations)
{
    int32_t i;

    *starts = (struct search_starts){.spaces = spaces,
                                     .space_count = count,
                                     .named = {.makespan = SEARCH_NEVER},
                                     .least_excess = INT64_MAX};
    for (i = 0; i < count; i++) {
        struct look look = {.starts = starts,
                            .space = &spaces[i],
                            .number = i,
                            .left = (evaluations - starts->evaluations) / (count - i)};
        enum status status = look_at_space(&look);

        look_release(&look);
        if (status < 0) {
            search_starts_release(starts);
            return status;
        }
    }
    return STATUS_OK;
}

void search_starts_release(struct search_starts *starts)
{
    while (starts->count > 0) {
        search_order_release(&starts->start[--starts->count].order);
    }
}

#include "scheduler/lower.h"

#include <stdlib.h>

#include "base/check.h"
#include "scheduler/counting.h"
#include "scheduler/lowering.h"
#include "scheduler/refusal.h"

/* An action of the lowered line like `source`, of another kind, with nothing numbered yet. */
static inline struct action derive(const struct action *source, enum action_kind kind)
{
    return (struct action){.kind = (uint8_t)kind,
                           .chunk = source->chunk,
                           .slices = source->slices,
                           .virtual_stage = source->virtual_stage,
                           .microbatch = source->microbatch,
                           .peer = ACTION_NONE,
                           .sequence = ACTION_NONE,
                           .slot = ACTION_NONE,
                           .gradient = ACTION_NONE,
                           .landing = ACTION_NONE,
                           .target = ACTION_NONE,
                           .depends = {ACTION_NONE, ACTION_NONE, ACTION_NONE, ACTION_NONE}};
}

_Static_assert(ACTION_DEPENDS == 4, "derive() empties as many dependencies");

static struct action whole_rank(enum action_kind kind)
{
    static const struct action none = {.virtual_stage = ACTION_NONE, .microbatch = ACTION_NONE};

    return derive(&none, kind);
}

static void add_dependency(struct action *action, int32_t index)
{
    int i = 0;

    if (index == ACTION_NONE) {
        return;
    }
    while (action->depends[i] != ACTION_NONE) {
        i++;
    }
    action->depends[i] = index;
}

/* Where the next action of the lowered line will stand. */
static inline int32_t here(const struct lowering *lowering)
{
    return lowering->line->count;
}

/* There is room: counting has counted. */
static inline void put(struct lowering *lowering, const struct action *action)
{
    lowering->line->actions[lowering->line->count++] = *action;
}

/* The landing buffer of the next message of a lane, which fill its landing buffers in turn. */
static inline int32_t next_landing(int32_t *next, int32_t landings)
{
    int32_t landing = *next;

    *next = landing + 1 < landings ? landing + 1 : 0;
    return landing;
}

/* What `consumer` waits for from the virtual stage before it in `direction`: its RECV, put here,
 * or the earlier action of this rank where both are neighbours on it, which wrote its message into
 * a landing buffer of the consumer's chunk. */
static enum status put_source(struct lowering *lowering, struct action *consumer,
                              enum lane_direction direction)
{
    const struct plan *plan = lowering->compute;
    struct route *route = lowering_route(lowering, consumer, direction);

    if (route->source != ACTION_NONE) {
        struct action receive = derive(consumer, ACTION_RECV);

        receive.direction = (uint8_t)direction;
        receive.peer = route->source;
        receive.sequence = lowering->received[direction][receive.peer]++;
        receive.landing = next_landing(&route->next_here, route->landings_here);
        consumer->landing = receive.landing;
        add_dependency(consumer, here(lowering));
        put(lowering, &receive);
        return STATUS_OK;
    }
    if (route->before != ACTION_NONE) {
        size_t at =
            (size_t)route->before * (size_t)plan->shape.microbatches + (size_t)consumer->microbatch;
        int32_t local = direction == LANE_F ? lowering->f_at[at] : lowering->i_at[at];

        if (local == ACTION_NONE) {
            return REFUSAL(plan, lowering->rank, lowering->source,
                           "stands before virtual stage %d of the same micro-batch and rank, "
                           "which it needs",
                           plan_local_source(plan, consumer->virtual_stage, direction));
        }
        add_dependency(consumer, local);
        consumer->landing = lowering->local_of[direction][lowering_cell(lowering, consumer)];
    }
    return STATUS_OK;
}

/* The landing buffer that a producer writes to where its consumer is a chunk of the same rank. */
static void take_target(struct lowering *lowering, struct action *producer,
                        enum lane_direction direction)
{
    int32_t chunk = lowering_route(lowering, producer, direction)->behind;

    if (chunk != ACTION_NONE) {
        producer->target = pool_take(&lowering->locals[direction][chunk]);
        lowering
            ->local_of[direction][(size_t)chunk * (size_t)lowering->compute->shape.microbatches +
                                  (size_t)producer->microbatch] = producer->target;
    }
}

/* Gives back what take_target() took, when the last reader, an action like `reader`, has its place
 * in the line. */
static void give_local(struct lowering *lowering, const struct action *reader,
                       enum lane_direction direction)
{
    int32_t number;

    if (lowering_route(lowering, reader, direction)->before == ACTION_NONE) {
        return;
    }
    number = lowering->local_of[direction][lowering_cell(lowering, reader)];
    if (number != ACTION_NONE) {
        pool_give(&lowering->locals[direction][reader->chunk], number);
    }
}

/* The SEND that must have ended before `producer` may write into the out buffer. */
static void add_out_buffer(const struct lowering *lowering, struct action *producer,
                           enum lane_direction direction)
{
    int32_t target = lowering_route(lowering, producer, direction)->target;

    if (target != ACTION_NONE) {
        add_dependency(producer, lowering->last_send[direction][target]);
    }
}

/* The SEND of what the action at `producer_at` has made; nothing where nobody else needs it. */
static void put_send(struct lowering *lowering, const struct action *producer, int32_t producer_at,
                     enum lane_direction direction)
{
    struct route *route = lowering_route(lowering, producer, direction);
    struct action send;

    if (route->target == ACTION_NONE) {
        return;
    }
    send = derive(producer, ACTION_SEND);
    send.direction = (uint8_t)direction;
    send.peer = route->target;
    send.sequence = lowering->sent[direction][send.peer]++;
    send.landing = next_landing(&route->next_there, route->landings_there);
    add_dependency(&send, producer_at);
    lowering->last_send[direction][send.peer] = here(lowering);
    put(lowering, &send);
}

/* The SYNC behind the last F of the last virtual stage, which stands at `forward_at`. */
static void put_head_sync(struct lowering *lowering, const struct action *source,
                          int32_t forward_at)
{
    const struct plan *plan = lowering->compute;
    struct action sync;

    if (source->virtual_stage != plan_stages(plan) - 1) {
        return;
    }
    lowering->forwards++;
    if (lowering->forwards != plan->shape.microbatches || !plan_syncs(plan)) {
        return;
    }
    sync = whole_rank(ACTION_SYNC);
    add_dependency(&sync, forward_at);
    put(lowering, &sync);
}

/* The GATHER that `action`, which stands right behind it, waits for. It waits in turn until the
 * action before has given back what it had. */
static void put_gather(struct lowering *lowering, struct action *action,
                       enum lane_direction direction)
{
    struct action gather;

    if (!plan_gathers(lowering->compute)) {
        return;
    }
    gather = derive(action, ACTION_GATHER);
    gather.direction = (uint8_t)direction;
    add_dependency(&gather, lowering->last_release);
    add_dependency(action, here(lowering));
    put(lowering, &gather);
}

/* Behind `action`, which stands at `at`. */
static void put_release(struct lowering *lowering, const struct action *action, int32_t at,
                        enum lane_direction direction)
{
    struct action release;

    if (!plan_gathers(lowering->compute)) {
        return;
    }
    release = derive(action, ACTION_RELEASE);
    release.direction = (uint8_t)direction;
    add_dependency(&release, at);
    lowering->last_release = here(lowering);
    put(lowering, &release);
}

static enum status lower_forward(struct lowering *lowering, const struct action *source)
{
    const struct plan *plan = lowering->compute;
    struct action action = derive(source, ACTION_F);
    struct pool *slots = &lowering->slots[source->chunk];
    int32_t at;

    TRY(put_source(lowering, &action, LANE_F));
    add_out_buffer(lowering, &action, LANE_F);
    put_gather(lowering, &action, LANE_F);
    at = here(lowering);
    action.slot = pool_take(slots);
    lowering->f_at[lowering_cell(lowering, source)] = at;
    lowering->slot_of[lowering_cell(lowering, source)] = action.slot;
    take_target(lowering, &action, LANE_F);
    if (!plan_trains(plan)) {
        pool_give(slots, action.slot);
        give_local(lowering, &action, LANE_F);
    }
    put(lowering, &action);
    put_release(lowering, &action, at, LANE_F);
    put_send(lowering, &action, at, LANE_F);
    put_head_sync(lowering, source, at);
    return STATUS_OK;
}

/* I, or a B that stays whole, with its messages. */
static enum status lower_backward(struct lowering *lowering, const struct action *source,
                                  enum action_kind kind)
{
    struct action action = derive(source, kind);
    size_t at_cell = lowering_cell(lowering, source);
    struct pool *gradients = &lowering->gradients[source->chunk];
    int32_t at;

    if (lowering->f_at[at_cell] == ACTION_NONE) {
        return REFUSAL(lowering->compute, lowering->rank, lowering->source,
                       "stands before the F of its micro-batch and virtual stage");
    }
    TRY(put_source(lowering, &action, LANE_B));
    add_dependency(&action, lowering->f_at[at_cell]);
    add_out_buffer(lowering, &action, LANE_B);
    put_gather(lowering, &action, LANE_B);
    at = here(lowering);
    action.slot = lowering->slot_of[at_cell];
    action.gradient = pool_take(gradients);
    lowering->i_at[at_cell] = at;
    lowering->gradient_of[at_cell] = action.gradient;
    lowering->landing_of[at_cell] = action.landing;
    take_target(lowering, &action, LANE_B);
    give_local(lowering, &action, LANE_F);
    if (kind == ACTION_B) {
        give_local(lowering, &action, LANE_B);
        pool_give(gradients, action.gradient);
        pool_give(&lowering->slots[source->chunk], action.slot);
    }
    put(lowering, &action);
    put_release(lowering, &action, at, LANE_B);
    put_send(lowering, &action, at, LANE_B);
    return STATUS_OK;
}

static enum status lower_weight(struct lowering *lowering, const struct action *source)
{
    struct action action = derive(source, ACTION_W);
    size_t at_cell = lowering_cell(lowering, source);

    if (lowering->i_at[at_cell] == ACTION_NONE) {
        return REFUSAL(lowering->compute, lowering->rank, lowering->source,
                       "stands before the I of its micro-batch and virtual stage");
    }
    add_dependency(&action, lowering->i_at[at_cell]);
    action.slot = lowering->slot_of[at_cell];
    action.gradient = lowering->gradient_of[at_cell];
    action.landing = lowering->landing_of[at_cell];
    give_local(lowering, &action, LANE_B);
    pool_give(&lowering->gradients[source->chunk], action.gradient);
    pool_give(&lowering->slots[source->chunk], action.slot);
    put(lowering, &action);
    return STATUS_OK;
}

static enum status lower_action(struct lowering *lowering, const struct action *source)
{
    const struct plan *plan = lowering->compute;
    enum action_kind kind = (enum action_kind)source->kind;

    if (kind != ACTION_F && !plan_trains(plan)) {
        return REFUSAL(plan, lowering->rank, lowering->source,
                       "a forward-only plan has no backward");
    }
    switch (kind) {
    case ACTION_F:
        return lower_forward(lowering, source);
    case ACTION_I:
        return lower_backward(lowering, source, ACTION_I);
    case ACTION_W:
        return lower_weight(lowering, source);
    default:
        if (!plan->shape.early_send ||
            lowering_route(lowering, source, LANE_B)->target == ACTION_NONE) {
            return lower_backward(lowering, source, ACTION_B);
        }
        TRY(lower_backward(lowering, source, ACTION_I));
        return lower_weight(lowering, source);
    }
}

/* What stands behind the last compute action of a rank that trains: REDUCE, which needs all of
 * them, and so the last; the owner's SYNC; STEP, which needs both. */
static void put_end(struct lowering *lowering)
{
    const struct plan *plan = lowering->compute;
    const struct plan_line *line = lowering->line;
    struct action reduce = whole_rank(ACTION_REDUCE);
    struct action sync = whole_rank(ACTION_SYNC);
    struct action step = whole_rank(ACTION_STEP);

    if (plan_reduces(plan)) {
        int32_t last = line->count - 1;

        while (last >= 0 && !action_is_compute((enum action_kind)line->actions[last].kind)) {
            last--;
        }
        add_dependency(&reduce, last);
        add_dependency(&step, here(lowering));
        put(lowering, &reduce);
    }
    if (plan_syncs(plan) && lowering->rank == plan->rank_of[0]) {
        add_dependency(&step, here(lowering));
        put(lowering, &sync);
    }
    put(lowering, &step);
}

static enum status lower_line(struct lowering *lowering, int32_t rank)
{
    const struct plan *plan = lowering->compute;
    const struct plan_line *line = &plan->lines[rank];

    lowering_begin_line(lowering, rank);
    for (lowering->source = 0; lowering->source < line->count; lowering->source++) {
        TRY(lower_action(lowering, &line->actions[lowering->source]));
    }
    if (plan_trains(plan)) {
        put_end(lowering);
    }
    return STATUS_OK;
}

/* The lines that lowering one line has to know: its own, and those that its messages go to. */
static bool *list_wanted(const struct plan *plan, int32_t rank)
{
    bool *wanted = calloc((size_t)plan->shape.ranks, sizeof(*wanted));

    for (int32_t stage = 0; wanted != NULL && stage < plan_stages(plan); stage++) {
        if (plan->rank_of[stage] != rank) {
            continue;
        }
        wanted[rank] = true;
        for (int i = 0; i < LANE_DIRECTIONS; i++) {
            int32_t target = plan_target(plan, stage, (enum lane_direction)i);

            if (target != ACTION_NONE) {
                wanted[plan->rank_of[target]] = true;
            }
        }
    }
    return wanted;
}

static enum status count_lines(struct lowerer *lowerer, int32_t rank)
{
    bool *wanted = rank == ACTION_NONE ? NULL : list_wanted(lowerer->lines->plan, rank);
    enum status status = STATUS_OK;

    if (rank != ACTION_NONE && wanted == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "lowering: no memory for %d ranks",
                           lowerer->lowered->shape.ranks);
    }
    status =
        counting_run(lowerer->lines, lowerer->stage_of, wanted, lowerer->lowered, lowerer->most);
    free(wanted);
    return status;
}

enum status lowerer_init(struct lowerer *lowerer, struct line_source *lines, int32_t rank)
{
    const struct plan *compute = lines->plan;
    size_t ranks = (size_t)compute->shape.ranks;
    enum status status = STATUS_OK;

    *lowerer = (struct lowerer){.lines = lines};
    ENSURE(compute->shape.virtual_stages >= 1, "%d chunks", compute->shape.virtual_stages);
    if (compute->lowered) {
        return status_fail(STATUS_ERR_INVALID, "lowering: the plan is lowered already");
    }
    TRY(plan_create(&compute->shape, &lowerer->lowered));
    lowerer->stage_of = calloc((size_t)plan_stages(compute), sizeof(*lowerer->stage_of));
    lowerer->most = calloc(ranks, sizeof(*lowerer->most));
    if (lowerer->stage_of == NULL || lowerer->most == NULL) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "lowering: no memory for %d ranks",
                             compute->shape.ranks);
        goto fail;
    }
    for (int32_t stage = 0; stage < plan_stages(compute); stage++) {
        lowerer->stage_of[compute->rank_of[stage] * compute->shape.virtual_stages +
                          compute->chunk_of[stage]] = stage;
    }
    lowerer->lowered->lowered = true;
    TRY_OR(fail, status, plan_place_as(lowerer->lowered, compute));
    TRY_OR(fail, status, count_lines(lowerer, rank));
    if (!lowering_init(&lowerer->lowering, compute, lowerer->stage_of, lowerer->lowered)) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "lowering: no memory for %d micro-batches",
                             compute->shape.microbatches);
        goto fail;
    }
    /* The lowerer owns what it holds. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    return STATUS_OK;

fail:
    lowerer_release(lowerer);
    return status;
}

enum status lowerer_reserve_all(struct lowerer *lowerer)
{
    return plan_reserve_all(lowerer->lowered, lowerer->most);
}

enum status lowerer_put_line(struct lowerer *lowerer, int32_t rank)
{
    TRY(line_source_get(lowerer->lines, rank));
    /* There since lowerer_init(). NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
    TRY(plan_reserve(lowerer->lowered, rank, lowerer->most[rank]));
    return lower_line(&lowerer->lowering, rank);
}

void lowerer_release(struct lowerer *lowerer)
{
    lowering_release(&lowerer->lowering);
    plan_destroy(&lowerer->lowered);
    free(lowerer->stage_of);
    free(lowerer->most);
    *lowerer = (struct lowerer){.lines = NULL};
}

enum status plan_lower(const struct plan *compute, struct plan **lowered_out)
{
    struct line_source lines = line_source_of(compute);
    struct lowerer lowerer;
    enum status status = STATUS_OK;

    status = lowerer_init(&lowerer, &lines, ACTION_NONE);
    if (status != STATUS_OK) {
        return status;
    }
    status = lowerer_reserve_all(&lowerer);
    for (int32_t rank = 0; rank < compute->shape.ranks && status == STATUS_OK; rank++) {
        status = lowerer_put_line(&lowerer, rank);
    }
    if (status == STATUS_OK) {
        *lowered_out = lowerer.lowered;
        lowerer.lowered = NULL;
    }
    lowerer_release(&lowerer);
    return status;
}

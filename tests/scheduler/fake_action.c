#include "tests/scheduler/fake_token.h"
#include "tests/scheduler/fake_world.h"

bool fake_action_has_fault(const struct fake_rank *rank, int32_t index, enum fake_fault fault)
{
    const struct fake_config *config = rank->world->config;

    return config->fault == fault && config->fault_rank == rank->rank &&
           config->fault_index == index;
}

static void note(struct fake_rank *rank, int32_t index, enum fake_verdict verdict)
{
    struct fake_world *world = rank->world;

    if (world->verdict == FAKE_RIGHT ||
        (world->verdict == FAKE_WRONG && verdict == FAKE_POISONED)) {
        world->verdict = verdict;
        world->place = (struct fake_place){.rank = rank->rank, .index = index};
    }
}

static void notify(struct fake_world *world)
{
    world->epoch++;
    world->idle = 0;
    (void)pthread_cond_broadcast(&world->moved);
}

static bool is_last(const struct fake_rank *rank, const struct action *action)
{
    return action->virtual_stage == plan_stages(rank->world->plan) - 1;
}

static struct fake_chunk *chunk_of(struct fake_rank *rank, const struct action *action)
{
    return &rank->chunks[action->chunk];
}

/* The landing buffers that a message of `direction` from `stage` goes to. */
static struct lane *lane_to(struct fake_rank *rank, int32_t stage, enum lane_direction direction)
{
    const struct plan *plan = rank->world->plan;
    int32_t to = direction == LANE_F ? stage + 1 : stage - 1;

    return &rank->world->ranks[plan->rank_of[to]].chunks[plan->chunk_of[to]].lanes[direction];
}

/* Where the action's result for the next virtual stage goes: the lane's out buffer, or a landing
 * buffer of the next chunk of this rank. NULL where nothing comes next. */
static uint64_t *result_of(struct fake_rank *rank, const struct action *action)
{
    const struct plan *plan = rank->world->plan;
    enum lane_direction direction = action->kind == ACTION_F ? LANE_F : LANE_B;
    int32_t away = plan_target(plan, action->virtual_stage, direction);

    if (away != ACTION_NONE) {
        return &rank->outs[direction][plan->rank_of[away]];
    }
    if (plan_local_target(plan, action->virtual_stage, direction) == ACTION_NONE) {
        return NULL;
    }
    return &lane_to(rank, action->virtual_stage, direction)->landings[action->target].token;
}

static uint64_t read_token(struct fake_rank *rank, int32_t index, uint64_t token)
{
    if (token == FAKE_POISON) {
        note(rank, index, FAKE_POISONED);
    }
    return token;
}

static uint64_t read_x(struct fake_rank *rank, int32_t index, int32_t landing)
{
    const struct action *action = &rank->line->actions[index];

    struct lane *lane = &chunk_of(rank, action)->lanes[LANE_F];

    if (action->virtual_stage == 0) {
        return fake_token(FAKE_DATA, 0, action->microbatch, 0, 0, 0);
    }
    if (landing < 0 || landing >= lane->count) {
        return read_token(rank, index, FAKE_POISON);
    }
    return read_token(rank, index, lane->landings[landing].token);
}

static uint64_t read_dy(struct fake_rank *rank, int32_t index)
{
    const struct action *action = &rank->line->actions[index];

    struct fake_chunk *chunk = chunk_of(rank, action);

    if (is_last(rank, action)) {
        return read_token(rank, index, chunk->stashes[action->slot].head);
    }
    return read_token(rank, index, chunk->lanes[LANE_B].landings[action->landing].token);
}

static struct inputs read_inputs(struct fake_rank *rank, int32_t index)
{
    const struct action *action = &rank->line->actions[index];
    struct fake_chunk *chunk = chunk_of(rank, action);
    struct inputs inputs = {0};

    if (action->kind == ACTION_F) {
        inputs.x = read_x(rank, index, action->landing);
        return inputs;
    }
    inputs.stash = read_token(rank, index, chunk->stashes[action->slot].token);
    inputs.dy = read_dy(rank, index);
    if (action->kind == ACTION_W) {
        inputs.gradient = read_token(rank, index, chunk->gradients[action->gradient]);
    } else {
        inputs.x = read_x(rank, index, chunk->stashes[action->slot].landing);
    }
    return inputs;
}

static void give_back(struct fake_rank *rank, const struct action *action,
                      enum lane_direction direction, int32_t landing)
{
    struct lane *lane = &chunk_of(rank, action)->lanes[direction];

    if (landing >= 0 && landing < lane->count) {
        lane->landings[landing] = (struct landing){.token = FAKE_POISON, .sequence = -1};
        lane->credits++;
        notify(rank->world);
    }
}

static void end_f(struct fake_rank *rank, const struct action *action, const struct inputs *inputs)
{
    int32_t stage = action->virtual_stage;
    int32_t microbatch = action->microbatch;
    uint64_t y = fake_token(FAKE_OUTPUT, stage, microbatch, inputs->x, 0, 0);
    struct fake_chunk *chunk = chunk_of(rank, action);
    struct stash *stash = &chunk->stashes[action->slot];
    uint64_t *result = result_of(rank, action);

    chunk->totals.forward = fake_chain(chunk->totals.forward, y);
    stash->token = fake_token(FAKE_STASH, stage, microbatch, inputs->x, 0, 0);
    stash->landing = action->landing;
    if (is_last(rank, action)) {
        stash->head = fake_token(FAKE_HEAD, stage, microbatch, y, 0, 0);
        chunk->totals.head = fake_chain(chunk->totals.head, y);
    } else {
        *result = y;
    }
    if (!rank->world->trains) {
        give_back(rank, action, LANE_F, action->landing);
        *stash = (struct stash){.token = FAKE_POISON, .head = FAKE_POISON, .landing = -1};
    }
}

static void end_i(struct fake_rank *rank, const struct action *action, const struct inputs *inputs)
{
    int32_t stage = action->virtual_stage;
    struct fake_chunk *chunk = chunk_of(rank, action);
    uint64_t *result = result_of(rank, action);
    uint64_t dx =
        fake_token(FAKE_INPUT, stage, action->microbatch, inputs->dy, inputs->stash, inputs->x);

    chunk->totals.input = fake_chain(chunk->totals.input, dx);
    chunk->gradients[action->gradient] =
        fake_token(FAKE_GRADIENT, stage, action->microbatch, inputs->dy, inputs->stash, 0);
    if (result != NULL) {
        *result = dx;
    }
    give_back(rank, action, LANE_F, chunk->stashes[action->slot].landing);
}

static void end_w(struct fake_rank *rank, const struct action *action, const struct inputs *inputs)
{
    struct fake_chunk *chunk = chunk_of(rank, action);
    uint64_t added = fake_token(FAKE_WEIGHT, action->virtual_stage, action->microbatch,
                                chunk->gradients[action->gradient], inputs->stash, inputs->dy);

    chunk->totals.weight = fake_chain(chunk->totals.weight, added);
    chunk->gradients[action->gradient] = FAKE_POISON;
    chunk->stashes[action->slot] =
        (struct stash){.token = FAKE_POISON, .head = FAKE_POISON, .landing = -1};
    if (!is_last(rank, action)) {
        give_back(rank, action, LANE_B, action->landing);
    }
}

/* What the operation is going to write holds nonsense until it has ended. A landing buffer of this
 * rank must have been given back: nobody waits for a credit there. */
static void poison_outputs(struct fake_rank *rank, int32_t index)
{
    const struct action *action = &rank->line->actions[index];
    struct fake_chunk *chunk = chunk_of(rank, action);
    uint64_t *result = action->kind == ACTION_W ? NULL : result_of(rank, action);

    if (action->kind == ACTION_F) {
        chunk->stashes[action->slot] =
            (struct stash){.token = FAKE_POISON, .head = FAKE_POISON, .landing = -1};
    } else if (action->kind != ACTION_W) {
        chunk->gradients[action->gradient] = FAKE_POISON;
    }
    if (result != NULL) {
        if (action->target != ACTION_NONE && *result != FAKE_POISON) {
            note(rank, index, FAKE_WRONG);
        }
        *result = FAKE_POISON;
    }
}

static bool same_inputs(const struct inputs *left, const struct inputs *right)
{
    return left->x == right->x && left->dy == right->dy && left->stash == right->stash &&
           left->gradient == right->gradient;
}

static void end_compute(struct fake_rank *rank, int32_t index)
{
    const struct action *action = &rank->line->actions[index];
    struct inputs inputs = read_inputs(rank, index);

    if (!same_inputs(&inputs, &rank->actions[index].inputs)) {
        note(rank, index, FAKE_WRONG); /* somebody wrote what was being read */
    }
    if (action->kind == ACTION_F) {
        end_f(rank, action, &inputs);
    }
    if (action->kind == ACTION_I || action->kind == ACTION_B) {
        end_i(rank, action, &inputs);
    }
    if (action->kind == ACTION_W || action->kind == ACTION_B) {
        end_w(rank, action, &inputs);
    }
}

static void end_send(struct fake_rank *rank, int32_t index)
{
    const struct action *action = &rank->line->actions[index];
    enum lane_direction direction = (enum lane_direction)action->direction;
    struct lane *lane = lane_to(rank, action->virtual_stage, direction);
    uint64_t out = rank->outs[direction][action->peer];

    if (out != rank->actions[index].inputs.x) {
        note(rank, index, FAKE_WRONG); /* the out buffer changed while it was copied */
    }
    lane->landings[action->landing] = (struct landing){.token = out, .sequence = action->sequence};
    notify(rank->world);
}

static bool all_compute_ended(const struct fake_rank *rank, int32_t before)
{
    for (int32_t index = 0; index < before; index++) {
        if (action_is_compute((enum action_kind)rank->line->actions[index].kind) &&
            rank->actions[index].state != ENDED) {
            return false;
        }
    }
    return true;
}

/* Whether the GATHER that is open is the one that the action asks under. */
static bool has_gathered(const struct fake_rank *rank, const struct action *action)
{
    const struct action *gather = &rank->line->actions[rank->gather];
    enum lane_direction direction = action->kind == ACTION_F ? LANE_F : LANE_B;

    direction = action->kind == ACTION_RELEASE ? (enum lane_direction)action->direction : direction;
    return rank->gathered && gather->virtual_stage == action->virtual_stage &&
           gather->microbatch == action->microbatch && gather->direction == direction;
}

/* What is gathered is there from the first to the last moment of F, I and B, and one at a time. */
static void check_gathered(struct fake_rank *rank, int32_t index)
{
    const struct action *action = &rank->line->actions[index];
    bool wrong = action->kind == ACTION_GATHER ? rank->gathered : !has_gathered(rank, action);

    if (plan_gathers(rank->world->plan) && action->kind != ACTION_W && wrong) {
        note(rank, index, FAKE_WRONG);
    }
}

/* REDUCE needs all of the rank's own gradient, STEP that of all replicas. */
static bool uses_half_a_gradient(const struct fake_rank *rank, int32_t index)
{
    uint8_t kind = rank->line->actions[index].kind;

    if (kind != ACTION_STEP && kind != ACTION_REDUCE) {
        return false;
    }
    return !all_compute_ended(rank, index) ||
           (kind == ACTION_STEP && plan_reduces(rank->world->plan) && !rank->reduced);
}

/* The head has its gradient complete; the owner takes it as it came. */
static void end_sync(struct fake_rank *rank)
{
    const struct plan *plan = rank->world->plan;
    int32_t head = plan_stages(plan) - 1;

    if (rank->rank == plan->rank_of[0]) {
        rank->chunks[plan->chunk_of[0]].totals.synced = rank->world->sync;
        return;
    }
    rank->world->sync =
        fake_token(FAKE_SYNC, head, 0, rank->chunks[plan->chunk_of[head]].totals.head, 0, 0);
    notify(rank->world);
}

void fake_action_begin(struct fake_rank *rank, int32_t index)
{
    const struct action *action = &rank->line->actions[index];
    struct fake_action *fake = &rank->actions[index];

    fake->state = BEGUN;
    if (action->kind == ACTION_GATHER || action->kind == ACTION_RELEASE) {
        check_gathered(rank, index);
    } else if (action_is_compute((enum action_kind)action->kind)) {
        check_gathered(rank, index);
        fake->inputs = read_inputs(rank, index);
        poison_outputs(rank, index);
    } else if (action->kind == ACTION_SEND) {
        enum lane_direction direction = (enum lane_direction)action->direction;
        struct lane *lane = lane_to(rank, action->virtual_stage, direction);

        lane->credits--;
        fake->inputs.x = read_token(rank, index, rank->outs[direction][action->peer]);
        lane->landings[action->landing] = (struct landing){.token = FAKE_POISON, .sequence = -1};
    } else if (uses_half_a_gradient(rank, index)) {
        note(rank, index, FAKE_WRONG);
    }
}

void fake_action_end(struct fake_rank *rank, int32_t index)
{
    const struct action *action = &rank->line->actions[index];

    rank->actions[index].state = ENDED;
    if (action->kind == ACTION_GATHER || action->kind == ACTION_RELEASE) {
        check_gathered(rank, index);
        rank->gathered = action->kind == ACTION_GATHER;
        rank->gather = index;
    } else if (action_is_compute((enum action_kind)action->kind)) {
        check_gathered(rank, index);
        end_compute(rank, index);
    } else if (action->kind == ACTION_SEND) {
        end_send(rank, index);
    } else if (action->kind == ACTION_SYNC) {
        end_sync(rank);
    } else if (action->kind == ACTION_REDUCE) {
        rank->reduced = true;
    }
}

static bool same_queue(const struct action *left, const struct action *right)
{
    if (action_is_compute((enum action_kind)left->kind)) {
        return action_is_compute((enum action_kind)right->kind);
    }
    return left->kind == ACTION_SEND && right->kind == ACTION_SEND &&
           left->direction == right->direction && left->peer == right->peer;
}

static bool depends_ended(const struct fake_rank *rank, int32_t index)
{
    const struct fake_action *fake = &rank->actions[index];

    for (int32_t slot = 0; slot < fake->depends_count; slot++) {
        if (rank->actions[fake->depends[slot]].state != ENDED) {
            return false;
        }
    }
    return true;
}

/* Compute and the messages of a lane go in the order of the line; the rest when it can. */
bool fake_action_can_begin(struct fake_rank *rank, int32_t index)
{
    const struct action *action = &rank->line->actions[index];
    const struct landing *landing = NULL;

    if (!depends_ended(rank, index) || fake_action_has_fault(rank, index, FAKE_FAULT_STALL)) {
        return false;
    }
    for (int32_t earlier = 0; earlier < index; earlier++) {
        if (rank->actions[earlier].state != ENDED &&
            same_queue(&rank->line->actions[earlier], action)) {
            return false;
        }
    }
    switch (action->kind) {
    case ACTION_SEND:
        return lane_to(rank, action->virtual_stage, (enum lane_direction)action->direction)
                   ->credits > 0;
    case ACTION_RECV:
        landing = &chunk_of(rank, action)->lanes[action->direction].landings[action->landing];
        return landing->sequence == action->sequence;
    case ACTION_SYNC:
        return rank->rank != rank->world->plan->rank_of[0] || rank->world->sync != FAKE_POISON;
    default:
        return true;
    }
}

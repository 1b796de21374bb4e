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

static bool is_last(const struct fake_rank *rank)
{
    return rank->rank == rank->world->count - 1;
}

/* The lane that a SEND of `rank` uses. */
static struct lane *lane_out(struct fake_rank *rank, enum lane_direction direction)
{
    int32_t to = direction == LANE_F ? rank->rank + 1 : rank->rank - 1;

    return &rank->world->ranks[to].lanes[direction];
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

    if (rank->rank == 0) {
        return fake_token(FAKE_DATA, 0, action->microbatch, 0, 0, 0);
    }
    if (landing < 0 || landing >= rank->lanes[LANE_F].count) {
        return read_token(rank, index, FAKE_POISON);
    }
    return read_token(rank, index, rank->lanes[LANE_F].landings[landing].token);
}

static uint64_t read_dy(struct fake_rank *rank, int32_t index)
{
    const struct action *action = &rank->line->actions[index];

    if (is_last(rank)) {
        return read_token(rank, index, rank->stashes[action->slot].head);
    }
    return read_token(rank, index, rank->lanes[LANE_B].landings[action->landing].token);
}

static struct inputs read_inputs(struct fake_rank *rank, int32_t index)
{
    const struct action *action = &rank->line->actions[index];
    struct inputs inputs = {0};

    if (action->kind == ACTION_F) {
        inputs.x = read_x(rank, index, action->landing);
        return inputs;
    }
    inputs.stash = read_token(rank, index, rank->stashes[action->slot].token);
    inputs.dy = read_dy(rank, index);
    if (action->kind == ACTION_W) {
        inputs.gradient = read_token(rank, index, rank->gradients[action->gradient]);
    } else {
        inputs.x = read_x(rank, index, rank->stashes[action->slot].landing);
    }
    return inputs;
}

static void give_credit(struct fake_rank *rank, enum lane_direction direction, int32_t landing)
{
    if (landing >= 0 && landing < rank->lanes[direction].count) {
        rank->lanes[direction].landings[landing] =
            (struct landing){.token = FAKE_POISON, .sequence = -1};
        rank->lanes[direction].credits++;
        notify(rank->world);
    }
}

static void end_f(struct fake_rank *rank, const struct action *action, const struct inputs *inputs)
{
    int32_t stage = action->virtual_stage;
    int32_t microbatch = action->microbatch;
    uint64_t y = fake_token(FAKE_OUTPUT, stage, microbatch, inputs->x, 0, 0);
    struct stash *stash = &rank->stashes[action->slot];

    rank->totals.forward = fake_chain(rank->totals.forward, y);
    stash->token = fake_token(FAKE_STASH, stage, microbatch, inputs->x, 0, 0);
    stash->landing = action->landing;
    if (is_last(rank)) {
        stash->head = fake_token(FAKE_HEAD, stage, microbatch, y, 0, 0);
        rank->totals.head = fake_chain(rank->totals.head, y);
    } else {
        lane_out(rank, LANE_F)->out = y;
    }
    if (!rank->world->trains) {
        give_credit(rank, LANE_F, action->landing);
        *stash = (struct stash){.token = FAKE_POISON, .head = FAKE_POISON, .landing = -1};
    }
}

static void end_i(struct fake_rank *rank, const struct action *action, const struct inputs *inputs)
{
    int32_t stage = action->virtual_stage;
    uint64_t dx =
        fake_token(FAKE_INPUT, stage, action->microbatch, inputs->dy, inputs->stash, inputs->x);

    rank->totals.input = fake_chain(rank->totals.input, dx);
    rank->gradients[action->gradient] =
        fake_token(FAKE_GRADIENT, stage, action->microbatch, inputs->dy, inputs->stash, 0);
    if (rank->rank > 0) {
        lane_out(rank, LANE_B)->out = dx;
    }
    give_credit(rank, LANE_F, rank->stashes[action->slot].landing);
}

static void end_w(struct fake_rank *rank, const struct action *action, const struct inputs *inputs)
{
    uint64_t added = fake_token(FAKE_WEIGHT, action->virtual_stage, action->microbatch,
                                rank->gradients[action->gradient], inputs->stash, inputs->dy);

    rank->totals.weight = fake_chain(rank->totals.weight, added);
    rank->gradients[action->gradient] = FAKE_POISON;
    rank->stashes[action->slot] =
        (struct stash){.token = FAKE_POISON, .head = FAKE_POISON, .landing = -1};
    if (!is_last(rank)) {
        give_credit(rank, LANE_B, action->landing);
    }
}

/* What the operation is going to write holds nonsense until it has ended. */
static void poison_outputs(struct fake_rank *rank, const struct action *action)
{
    if (action->kind == ACTION_F) {
        rank->stashes[action->slot] =
            (struct stash){.token = FAKE_POISON, .head = FAKE_POISON, .landing = -1};
        if (!is_last(rank)) {
            lane_out(rank, LANE_F)->out = FAKE_POISON;
        }
    } else if (action->kind != ACTION_W) {
        rank->gradients[action->gradient] = FAKE_POISON;
        if (rank->rank > 0) {
            lane_out(rank, LANE_B)->out = FAKE_POISON;
        }
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
    struct lane *lane = lane_out(rank, (enum lane_direction)action->direction);

    if (lane->out != rank->actions[index].inputs.x) {
        note(rank, index, FAKE_WRONG); /* the out buffer changed while it was copied */
    }
    lane->landings[action->landing] =
        (struct landing){.token = lane->out, .sequence = action->sequence};
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

/* The head has its gradient complete; the owner takes it as it came. */
static void end_sync(struct fake_rank *rank)
{
    if (rank->rank == 0) {
        rank->totals.synced = rank->world->sync;
        return;
    }
    rank->world->sync = fake_token(FAKE_SYNC, rank->rank, 0, rank->totals.head, 0, 0);
    notify(rank->world);
}

void fake_action_begin(struct fake_rank *rank, int32_t index)
{
    const struct action *action = &rank->line->actions[index];
    struct fake_action *fake = &rank->actions[index];

    fake->state = BEGUN;
    if (action_is_compute((enum action_kind)action->kind)) {
        fake->inputs = read_inputs(rank, index);
        poison_outputs(rank, action);
    } else if (action->kind == ACTION_SEND) {
        struct lane *lane = lane_out(rank, (enum lane_direction)action->direction);

        lane->credits--;
        fake->inputs.x = read_token(rank, index, lane->out);
        lane->landings[action->landing] = (struct landing){.token = FAKE_POISON, .sequence = -1};
    } else if (action->kind == ACTION_STEP && !all_compute_ended(rank, index)) {
        note(rank, index, FAKE_WRONG); /* the update would use half of a gradient */
    }
}

void fake_action_end(struct fake_rank *rank, int32_t index)
{
    const struct action *action = &rank->line->actions[index];

    rank->actions[index].state = ENDED;
    if (action_is_compute((enum action_kind)action->kind)) {
        end_compute(rank, index);
    } else if (action->kind == ACTION_SEND) {
        end_send(rank, index);
    } else if (action->kind == ACTION_SYNC) {
        end_sync(rank);
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
        return lane_out(rank, (enum lane_direction)action->direction)->credits > 0;
    case ACTION_RECV:
        landing = &rank->lanes[action->direction].landings[action->landing];
        return landing->sequence == action->sequence;
    case ACTION_SYNC:
        return rank->rank > 0 || rank->world->sync != FAKE_POISON;
    default:
        return true;
    }
}

/* Lets one action of the rank begin or end, chosen at random; false where none can. */

#include "tests/stages/mutant_action.h"

#include "tests/scheduler/fake_token.h"

static const struct plan_buffers *buffers_of(const struct moment *moment, int32_t stage)
{
    const struct plan *plan = moment->world->plan;

    return plan_buffers_of(plan, plan->rank_of[stage], plan->chunk_of[stage]);
}

static int32_t landings_of(const struct moment *moment, int32_t stage,
                           enum lane_direction direction)
{
    const struct plan_buffers *buffers = buffers_of(moment, stage);

    return direction == LANE_F ? buffers->landing_f : buffers->landing_b;
}

/* Whether `number` is one of the `count` buffers that the plan has. */
static bool exists(const struct moment *moment, int32_t number, int32_t count)
{
    return number >= 0 && number < count && number < WORLD_LANDINGS
               ? true
               : moment_bad(moment, OUTCOME_OUTSIDE, "a buffer that does not exist");
}

static uint64_t tag_of(enum lane_direction direction, int32_t receiver, int32_t microbatch)
{
    return ((uint64_t)direction << 32 | (uint64_t)receiver << 16 | (uint64_t)microbatch) + 1;
}

/* The lane and the landing buffer of messages into `stage`. False where there is no such lane from
 * `from`, or no such buffer. */
static bool find_landing(const struct moment *moment, int32_t stage, enum lane_direction direction,
                         int32_t from, int32_t landing, struct world_lane **lane_out,
                         int32_t *number_out)
{
    const struct plan *plan = moment->world->plan;
    int32_t source = plan_source(plan, stage, direction);

    if (source == ACTION_NONE || plan->rank_of[source] != from) {
        return moment_bad(moment, OUTCOME_OUTSIDE, "a lane that does not exist");
    }
    if (!exists(moment, landing, landings_of(moment, stage, direction))) {
        return false;
    }
    *lane_out = mutant_world_lane(moment->world, from, plan->rank_of[stage], direction);
    *number_out = plan->chunk_of[stage] * WORLD_LANDINGS + landing;
    return true;
}

/* The memory that a chunk's input of `direction` lies in; NULL where nothing comes, or the plan
 * names what is not there. */
static uint64_t *find_input(const struct moment *moment, enum lane_direction direction,
                            int32_t landing)
{
    const struct plan *plan = moment->world->plan;
    int32_t stage = moment->action->virtual_stage;
    int32_t source = plan_source(plan, stage, direction);
    struct world_lane *lane = NULL;
    int32_t number = 0;

    if (source != ACTION_NONE) {
        if (!find_landing(moment, stage, direction, plan->rank_of[source], landing, &lane,
                          &number)) {
            return NULL;
        }
        return &((struct message *)comm_landing(lane->in, number))->token;
    }
    if (plan_local_source(plan, stage, direction) != ACTION_NONE) {
        return exists(moment, landing, landings_of(moment, stage, direction))
                   ? &moment->chunk->handed[direction][landing]
                   : NULL;
    }
    if (landing != ACTION_NONE) {
        (void)moment_bad(moment, OUTCOME_OUTSIDE, "a landing buffer where nothing comes");
    }
    return NULL;
}

/* Whether what was read is what one process alone would have read. */
static bool read_as(const struct moment *moment, uint64_t token, uint64_t expected, bool message)
{
    if (token == expected) {
        return true;
    }
    if (token == FAKE_POISON) {
        return moment_bad(moment, OUTCOME_POISONED, "reads what is not filled yet or given back");
    }
    return message
               ? moment_bad(moment, OUTCOME_WRONG, "reads another message")
               : moment_bad(moment, OUTCOME_POISONED, "reads what another micro-batch has written");
}

/* Reads the input of `direction` that lies in a landing or hand-over buffer. */
static bool read_input(const struct moment *moment, enum lane_direction direction, int32_t landing,
                       uint64_t expected)
{
    const uint64_t *input = find_input(moment, direction, landing);
    const struct plan *plan = moment->world->plan;

    if (moment->world->outcome != OUTCOME_RIGHT) {
        return false;
    }
    return input == NULL ||
           read_as(moment, *input, expected,
                   plan_source(plan, moment->action->virtual_stage, direction) != ACTION_NONE);
}

/* dY: in its buffer, or on the last virtual stage what the head left in the stash. */
static bool read_dy(const struct moment *moment)
{
    const struct action *action = moment->action;
    uint64_t expected = moment->world->truth.dy[action->virtual_stage + 1][action->microbatch];

    if (action->virtual_stage == plan_stages(moment->world->plan) - 1 &&
        !read_as(moment, moment->chunk->stashes[action->slot].head, expected, false)) {
        return false;
    }
    return read_input(moment, LANE_B, action->landing, expected);
}

/* Everything that a compute action reads; false after a fault. */
static bool read_all(const struct moment *moment)
{
    const struct action *action = moment->action;
    const struct world_truth *truth = &moment->world->truth;
    const struct plan_buffers *buffers = buffers_of(moment, action->virtual_stage);
    const struct world_stash *stash = NULL;
    int32_t s = action->virtual_stage;
    int32_t k = action->microbatch;

    if (!exists(moment, action->slot, buffers->slots)) {
        return false;
    }
    if (action->kind == ACTION_F) {
        return read_input(moment, LANE_F, action->landing, truth->x[s][k]);
    }
    stash = &moment->chunk->stashes[action->slot];
    if (!exists(moment, action->gradient, buffers->gradients) ||
        !read_as(moment, stash->token, truth->stash[s][k], false) || !read_dy(moment)) {
        return false;
    }
    if (action->kind == ACTION_W) {
        return read_as(moment, moment->chunk->gradients[action->gradient], truth->gradient[s][k],
                       false);
    }
    return read_input(moment, LANE_F, stash->landing, truth->x[s][k]);
}

/* Where F, I or B writes what the next virtual stage reads; NULL where nobody does. */
static uint64_t *find_output(const struct moment *moment)
{
    const struct plan *plan = moment->world->plan;
    enum lane_direction direction = moment->action->kind == ACTION_F ? LANE_F : LANE_B;
    int32_t stage = moment->action->virtual_stage;
    int32_t local = plan_local_target(plan, stage, direction);
    int32_t target = plan_target(plan, stage, direction);

    if (target != ACTION_NONE) {
        return &mutant_world_lane(moment->world, moment->rank, plan->rank_of[target], direction)
                    ->buffer.token;
    }
    if (local == ACTION_NONE ||
        !exists(moment, moment->action->target, landings_of(moment, local, direction))) {
        return NULL;
    }
    return &moment->self->chunks[plan->chunk_of[local]].handed[direction][moment->action->target];
}

/* Compute begins: reads, and leaves poison where its results will be. */
static void begin_compute(const struct moment *moment)
{
    const struct action *action = moment->action;
    uint64_t *output = NULL;

    if (!read_all(moment)) {
        return;
    }
    if (action->kind == ACTION_F) {
        moment->chunk->stashes[action->slot] =
            (struct world_stash){.token = FAKE_POISON, .landing = action->landing};
    }
    if (action->kind == ACTION_I || action->kind == ACTION_B) {
        moment->chunk->gradients[action->gradient] = FAKE_POISON;
    }
    output = action->kind == ACTION_W ? NULL : find_output(moment);
    if (output != NULL) {
        *output = FAKE_POISON;
    }
}

/* The last reader of an input has ended. */
static void give_back(const struct moment *moment, enum lane_direction direction, int32_t landing)
{
    const struct plan *plan = moment->world->plan;
    int32_t stage = moment->action->virtual_stage;
    int32_t source = plan_source(plan, stage, direction);
    uint64_t *input = find_input(moment, direction, landing);
    struct world_lane *lane = NULL;
    int32_t number = 0;

    if (input == NULL) {
        return;
    }
    *input = FAKE_POISON;
    if (source == ACTION_NONE ||
        !find_landing(moment, stage, direction, plan->rank_of[source], landing, &lane, &number)) {
        return;
    }
    if (lane->full[number] == 0) {
        (void)moment_bad(moment, OUTCOME_POISONED, "gives back a landing buffer that is free");
        return;
    }
    lane->full[number] = 0;
    comm_credit(lane->in, number);
}

static void end_forward(const struct moment *moment)
{
    const struct action *action = moment->action;
    const struct plan *plan = moment->world->plan;
    const struct world_truth *truth = &moment->world->truth;
    struct world_stash *stash = &moment->chunk->stashes[action->slot];
    uint64_t *output = find_output(moment);
    uint64_t y = truth->x[action->virtual_stage + 1][action->microbatch];

    stash->token = truth->stash[action->virtual_stage][action->microbatch];
    moment->chunk->forward += y;
    if (action->virtual_stage == plan_stages(plan) - 1) {
        stash->head = truth->dy[action->virtual_stage + 1][action->microbatch];
        moment->chunk->head = fake_chain(moment->chunk->head, stash->head);
    }
    if (output != NULL) {
        *output = y;
    }
    if (!plan_trains(plan)) {
        stash->token = FAKE_POISON;
        give_back(moment, LANE_F, action->landing);
    }
}

static void end_input_gradient(const struct moment *moment)
{
    const struct action *action = moment->action;
    const struct world_truth *truth = &moment->world->truth;
    uint64_t *output = find_output(moment);
    uint64_t dx = truth->dy[action->virtual_stage][action->microbatch];

    moment->chunk->gradients[action->gradient] =
        truth->gradient[action->virtual_stage][action->microbatch];
    moment->chunk->input = fake_chain(moment->chunk->input, dx);
    if (output != NULL) {
        *output = dx;
    }
    give_back(moment, LANE_F, moment->chunk->stashes[action->slot].landing);
}

static void end_weight_gradient(const struct moment *moment)
{
    const struct action *action = moment->action;
    const struct world_truth *truth = &moment->world->truth;
    int32_t s = action->virtual_stage;
    int32_t k = action->microbatch;

    moment->chunk->weight =
        fake_chain(moment->chunk->weight, fake_token(FAKE_WEIGHT, s, k, truth->gradient[s][k],
                                                     truth->stash[s][k], truth->dy[s + 1][k]));
    moment->chunk->gradients[action->gradient] = FAKE_POISON;
    moment->chunk->stashes[action->slot] =
        (struct world_stash){.token = FAKE_POISON, .head = FAKE_POISON, .landing = ACTION_NONE};
    give_back(moment, LANE_B, action->landing);
}

/* Compute ends: what it has read since its begin is still there, or it has read something else. */
static void end_compute(const struct moment *moment)
{
    if (!read_all(moment)) {
        return;
    }
    switch ((enum action_kind)moment->action->kind) {
    case ACTION_F:
        end_forward(moment);
        return;
    case ACTION_I:
        end_input_gradient(moment);
        return;
    case ACTION_W:
        end_weight_gradient(moment);
        return;
    default:
        end_input_gradient(moment);
        end_weight_gradient(moment);
    }
}

void mutant_action_note_sent(struct mutant_world *world, int32_t rank, struct world_lane *lane)
{
    const struct action *action = NULL;
    enum lane_direction direction = LANE_F;

    if (!comm_sent(lane->out)) {
        return;
    }
    action = &world->plan->lines[rank].actions[lane->posted];
    direction = (enum lane_direction)action->direction;
    lane->full[lane->landing] = tag_of(
        direction, plan_target(world->plan, action->virtual_stage, direction), action->microbatch);
    lane->buffer.token = FAKE_POISON;
    world->ranks[rank].state[lane->posted] = WORK_ENDED;
    lane->posted = ACTION_NONE;
}

static void begin_send(const struct moment *moment)
{
    const struct plan *plan = moment->world->plan;
    const struct action *action = moment->action;
    enum lane_direction direction = (enum lane_direction)action->direction;
    int32_t target = plan_target(plan, action->virtual_stage, direction);
    struct world_lane *lane = NULL;
    int32_t number = 0;

    if (target == ACTION_NONE || plan->rank_of[target] != action->peer) {
        (void)moment_bad(moment, OUTCOME_OUTSIDE, "sends where nobody receives");
        return;
    }
    if (!find_landing(moment, target, direction, moment->rank, action->landing, &lane, &number)) {
        return;
    }
    if (lane->posted != ACTION_NONE) {
        (void)moment_bad(moment, OUTCOME_POISONED, "sends while the out buffer is being sent");
        return;
    }
    lane->posted = moment->index;
    lane->landing = number;
    lane->buffer.ordinal = lane->sent++;
    lane->buffer.sequence = action->sequence;
    if (comm_post_send(lane->out, number, tag_of(direction, target, action->microbatch),
                       &lane->buffer, sizeof(lane->buffer)) < 0) {
        (void)moment_bad(moment, OUTCOME_OUTSIDE, "a send that the lane refuses");
        return;
    }
    mutant_action_note_sent(moment->world, moment->rank, lane);
}

/* Whether the action is of a chunk of this rank and of a micro-batch that exists. */
static bool has_place(const struct moment *moment)
{
    const struct plan *plan = moment->world->plan;
    const struct action *action = moment->action;

    if (moment->chunk == NULL || action->virtual_stage < 0 ||
        action->virtual_stage >= plan_stages(plan) ||
        plan->rank_of[action->virtual_stage] != moment->rank ||
        plan->chunk_of[action->virtual_stage] != action->chunk || action->microbatch < 0 ||
        action->microbatch >= plan->shape.microbatches || action->direction >= LANE_DIRECTIONS) {
        return moment_bad(moment, OUTCOME_OUTSIDE, "no such chunk or micro-batch here");
    }
    return true;
}

static struct moment moment_of(struct mutant_world *world, int32_t rank, int32_t index)
{
    struct moment moment = {.world = world,
                            .self = &world->ranks[rank],
                            .action = &world->plan->lines[rank].actions[index],
                            .rank = rank,
                            .index = index};

    if (moment.action->chunk < MUTANT_CHUNKS) {
        moment.chunk = &moment.self->chunks[moment.action->chunk];
    }
    return moment;
}

void mutant_world_start(struct mutant_world *world, int32_t rank, int32_t index)
{
    struct moment moment = moment_of(world, rank, index);
    enum action_kind kind = (enum action_kind)moment.action->kind;

    moment.self->state[index] = WORK_BEGUN;
    if (kind >= ACTION_KINDS) {
        (void)moment_bad(&moment, OUTCOME_OUTSIDE, "no such kind");
    } else if (action_is_compute(kind)) {
        if (has_place(&moment)) {
            begin_compute(&moment);
        }
    } else if (kind == ACTION_SEND) {
        if (has_place(&moment)) {
            begin_send(&moment);
        }
    } else if (kind == ACTION_SYNC) {
        moment_begin_sync(&moment);
    } else if (kind == ACTION_STEP) {
        moment_begin_step(&moment);
    }
}

void mutant_world_finish(struct mutant_world *world, int32_t rank, int32_t index)
{
    struct moment moment = moment_of(world, rank, index);
    enum action_kind kind = (enum action_kind)moment.action->kind;

    moment.self->state[index] = WORK_ENDED;
    if (action_is_compute(kind) && moment.chunk != NULL) {
        end_compute(&moment);
    } else if (kind == ACTION_SYNC) {
        moment_end_sync(&moment);
    } else if (kind == ACTION_REDUCE) {
        moment_end_reduce(&moment);
    }
}

/* How many RECVs of its lane stand before one in its line. */
static int64_t receives_before(const struct plan *plan, int32_t rank, int32_t index)
{
    const struct action *actions = plan->lines[rank].actions;
    int64_t count = 0;

    for (int32_t i = 0; i < index; i++) {
        count += actions[i].kind == ACTION_RECV && actions[i].peer == actions[index].peer &&
                 actions[i].direction == actions[index].direction;
    }
    return count;
}

bool mutant_world_receive(struct mutant_world *world, int32_t rank, int32_t index, bool strict)
{
    struct moment moment = moment_of(world, rank, index);
    const struct action *action = moment.action;
    enum lane_direction direction = (enum lane_direction)action->direction;
    const struct message *message = NULL;
    struct world_lane *lane = NULL;
    int32_t number = 0;
    uint64_t tag = 0;

    if (!has_place(&moment) || !find_landing(&moment, action->virtual_stage, direction,
                                             action->peer, action->landing, &lane, &number)) {
        return false;
    }
    tag = tag_of(direction, action->virtual_stage, action->microbatch);
    if (lane->full[number] == 0 || (lane->full[number] != tag && !strict)) {
        return false;
    }
    if (comm_arrived(lane->in, number, tag) != STATUS_OK) {
        return moment_bad(&moment, OUTCOME_WRONG, "finds another message");
    }
    message = comm_landing(lane->in, number);
    if (message->ordinal != receives_before(world->plan, rank, index) ||
        message->sequence != action->sequence) {
        return moment_bad(&moment, OUTCOME_WRONG, "is not the next message of its lane");
    }
    moment.self->state[index] = WORK_ENDED;
    return true;
}

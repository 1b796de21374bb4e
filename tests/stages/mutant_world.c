#include "tests/stages/mutant_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "tests/scheduler/fake_token.h"
#include "tests/stages/mutant_action.h"

static const char *const outcome_texts[OUTCOMES] = {
#define X(kind, text) text,
    OUTCOME_TABLE(X)
#undef X
};

const char *outcome_text(enum outcome outcome)
{
    return outcome_texts[outcome];
}

/* Of a lane that rank `rank` of `world` sends on: the other end. */
static int32_t peer_of(int32_t world, int32_t rank, int32_t way)
{
    return (rank + (way % 2 == 0 ? 1 : world - 1)) % world;
}

/* The way back from a neighbour. */
static int32_t back(int32_t way)
{
    return way ^ 1;
}

/* Two ranks are neighbours once. */
static bool has_way(int32_t world, int32_t way)
{
    return world > 1 && (world > 2 || way % 2 == 0);
}

/* Every rank sends both directions to both of its neighbours, round the ring, whether a plan has use
 * for the lane or not. The rig numbers the lanes that it sends on, then those that it receives on. */
static void connect_rank(struct rig_rank *self)
{
    int32_t world = self->rig->world;
    int32_t landings = MUTANT_CHUNKS * WORLD_LANDINGS;
    enum status status = rig_open(self);

    for (int32_t i = 0; i < 2 * WORLD_WAYS && status == STATUS_OK; i++) {
        int32_t way = i % WORLD_WAYS;

        if (has_way(world, way)) {
            status = rig_lane(self, i, peer_of(world, self->rank, way), way / 2, i < WORLD_WAYS,
                              landings, sizeof(struct message));
        }
    }
    RIG_EXPECT(self, status == STATUS_OK);
    RIG_EXPECT(self, rig_connect(self) == STATUS_OK);
}

/* What a rank sends on a way its peer receives on the way back. */
static void find_ends(struct mutant_world *world, int32_t p, int32_t rank)
{
    const struct comm_rig *rig = &world->rigs[p];

    for (int32_t way = 0; way < WORLD_WAYS; way++) {
        int32_t peer = peer_of(p, rank, way);
        int32_t theirs = WORLD_WAYS + (p == 2 ? way : back(way));

        if (has_way(p, way)) {
            world->ends[p][rank][way].out = rig->ranks[rank].lanes[way];
            world->ends[p][rank][way].in = rig->ranks[peer].lanes[theirs];
        }
    }
}

void mutant_world_open(struct mutant_world *world)
{
    for (int32_t p = 2; p <= MUTANT_RANKS; p++) {
        struct comm_rig *rig = &world->rigs[p];

        rig_init(rig, p, true);
        rig_run(rig, connect_rank);
        rig_assert_no_notes(rig);
        for (int32_t rank = 0; rank < p; rank++) {
            find_ends(world, p, rank);
        }
    }
}

struct world_lane *mutant_world_lane(struct mutant_world *world, int32_t from, int32_t to,
                                     enum lane_direction direction)
{
    int32_t way = 2 * (int32_t)direction;
    bool next = to == peer_of(world->plan->shape.ranks, from, way);

    return &world->ranks[from].lanes[next ? way : back(way)];
}

bool mutant_world_sending(const struct mutant_world *world, int32_t rank)
{
    bool sending = false;

    for (int32_t way = 0; way < WORLD_WAYS; way++) {
        sending = sending || (has_way(world->plan->shape.ranks, way) &&
                              world->ranks[rank].lanes[way].posted != ACTION_NONE);
    }
    return sending;
}

void mutant_world_close(struct mutant_world *world)
{
    for (int32_t p = 2; p <= MUTANT_RANKS; p++) {
        rig_release(&world->rigs[p]);
    }
}

void mutant_world_fault(struct mutant_world *world, enum outcome outcome, int32_t rank,
                        int32_t index, const char *text)
{
    if (world->outcome == OUTCOME_RIGHT) {
        world->outcome = outcome;
        world->fault_rank = rank;
        world->fault_index = index;
        world->fault_text = text;
    }
}

static void add(uint64_t *chain, uint64_t token)
{
    *chain = fake_chain(*chain, token);
}

/* One process alone, micro-batch after micro-batch: no buffers, no lanes. */
static void find_truth(struct world_truth *truth, int32_t stages, int32_t microbatches, bool trains)
{
    memset(truth->sums, 0, sizeof(truth->sums));
    for (int32_t k = 0; k < microbatches; k++) {
        truth->x[0][k] = fake_token(FAKE_DATA, 0, k, 0, 0, 0);
        for (int32_t s = 0; s < stages; s++) {
            truth->stash[s][k] = fake_token(FAKE_STASH, s, k, truth->x[s][k], 0, 0);
            truth->x[s + 1][k] = fake_token(FAKE_OUTPUT, s, k, truth->x[s][k], 0, 0);
            truth->sums[s].forward += truth->x[s + 1][k];
        }
        truth->dy[stages][k] = fake_token(FAKE_HEAD, stages - 1, k, truth->x[stages][k], 0, 0);
        add(&truth->sums[stages - 1].head, truth->dy[stages][k]);
        for (int32_t s = stages - 1; s >= 0 && trains; s--) {
            uint64_t dy = truth->dy[s + 1][k];
            uint64_t stash = truth->stash[s][k];

            truth->dy[s][k] = fake_token(FAKE_INPUT, s, k, dy, stash, truth->x[s][k]);
            truth->gradient[s][k] = fake_token(FAKE_GRADIENT, s, k, dy, stash, 0);
            add(&truth->sums[s].input, truth->dy[s][k]);
            add(&truth->sums[s].weight,
                fake_token(FAKE_WEIGHT, s, k, truth->gradient[s][k], stash, dy));
        }
    }
}

static void poison_chunk(struct world_chunk *chunk)
{
    memset(chunk, 0, sizeof(*chunk));
    for (int32_t i = 0; i < WORLD_LANDINGS; i++) {
        chunk->stashes[i] = (struct world_stash){.token = FAKE_POISON, .landing = ACTION_NONE};
        chunk->gradients[i] = FAKE_POISON;
        chunk->handed[LANE_F][i] = FAKE_POISON;
        chunk->handed[LANE_B][i] = FAKE_POISON;
    }
}

static void poison_landings(const struct world_lane *lane)
{
    for (int32_t i = 0; i < MUTANT_CHUNKS * WORLD_LANDINGS; i++) {
        *(struct message *)comm_landing(lane->in, i) = (struct message){.token = FAKE_POISON};
    }
}

void mutant_world_begin(struct mutant_world *world, const struct plan *plan)
{
    int32_t p = plan->shape.ranks;

    find_truth(&world->truth, plan_stages(plan), plan->shape.microbatches, plan_trains(plan));
    world->plan = plan;
    world->outcome = OUTCOME_RIGHT;
    world->fault_text = "";
    world->syncs = 0;
    world->sync_sum = FAKE_POISON;
    for (int32_t rank = 0; rank < p; rank++) {
        struct world_rank *self = &world->ranks[rank];

        assert_true(plan->lines[rank].count <= WORLD_ACTIONS);
        memset(self, 0, sizeof(*self));
        for (int32_t chunk = 0; chunk < plan->shape.virtual_stages; chunk++) {
            poison_chunk(&self->chunks[chunk]);
        }
        for (int32_t way = 0; way < WORLD_WAYS; way++) {
            if (has_way(p, way)) {
                self->lanes[way] = world->ends[p][rank][way];
                self->lanes[way].posted = ACTION_NONE;
                self->lanes[way].buffer.token = FAKE_POISON;
                poison_landings(&self->lanes[way]);
            }
        }
    }
}

static bool has_messages(const struct world_lane *lane)
{
    bool some = lane->posted != ACTION_NONE;

    for (int32_t i = 0; i < MUTANT_CHUNKS * WORLD_LANDINGS && !some; i++) {
        some = lane->full[i] != 0;
    }
    return some;
}

/* Until nothing lies in the lane: what was pending lands when something is given back. */
static void drain_lane(struct mutant_world *world, int32_t rank, struct world_lane *lane)
{
    while (has_messages(lane)) {
        for (int32_t i = 0; i < MUTANT_CHUNKS * WORLD_LANDINGS; i++) {
            if (lane->full[i] != 0) {
                lane->full[i] = 0;
                comm_credit(lane->in, i);
            }
        }
        mutant_world_progress(world, rank);
    }
}

void mutant_world_drain(struct mutant_world *world)
{
    int32_t p = world->plan->shape.ranks;

    for (int32_t i = 0; i < p * WORLD_WAYS; i++) {
        if (has_way(p, i % WORLD_WAYS)) {
            drain_lane(world, i / WORLD_WAYS, &world->ranks[i / WORLD_WAYS].lanes[i % WORLD_WAYS]);
        }
    }
}

bool mutant_world_can_progress(const struct mutant_world *world, int32_t rank)
{
    for (int32_t way = 0; way < WORLD_WAYS; way++) {
        const struct world_lane *lane = &world->ranks[rank].lanes[way];

        if (has_way(world->plan->shape.ranks, way) && lane->posted != ACTION_NONE &&
            lane->full[lane->landing] == 0) {
            return true;
        }
    }
    return false;
}

void mutant_world_progress(struct mutant_world *world, int32_t rank)
{
    (void)comm_progress(world->rigs[world->plan->shape.ranks].ranks[rank].comm);
    for (int32_t way = 0; way < WORLD_WAYS; way++) {
        struct world_lane *lane = &world->ranks[rank].lanes[way];

        if (has_way(world->plan->shape.ranks, way) && lane->posted != ACTION_NONE) {
            mutant_action_note_sent(world, rank, lane);
        }
    }
}

static bool same_sums(const struct world_chunk *chunk, const struct world_chunk *expected)
{
    return chunk->forward == expected->forward && chunk->head == expected->head &&
           chunk->input == expected->input && chunk->weight == expected->weight;
}

bool mutant_action_sums_right(const struct mutant_world *world, int32_t rank)
{
    const struct plan *plan = world->plan;

    for (int32_t stage = 0; stage < plan_stages(plan); stage++) {
        if (plan->rank_of[stage] == rank &&
            !same_sums(&world->ranks[rank].chunks[plan->chunk_of[stage]],
                       &world->truth.sums[stage])) {
            return false;
        }
    }
    return true;
}

bool mutant_action_sync_right(const struct mutant_world *world, int32_t rank)
{
    const struct plan *plan = world->plan;
    bool owner = plan_syncs(plan) && rank == plan->rank_of[0];
    uint64_t head = world->truth.sums[plan_stages(plan) - 1].head;

    return world->ranks[rank].synced == (owner ? fake_chain(0, head) : 0);
}

/* Whether anything is still held in the memory of a chunk. */
static bool is_empty(const struct world_chunk *chunk)
{
    for (int32_t i = 0; i < WORLD_LANDINGS; i++) {
        if (chunk->stashes[i].token != FAKE_POISON || chunk->gradients[i] != FAKE_POISON ||
            chunk->handed[LANE_F][i] != FAKE_POISON || chunk->handed[LANE_B][i] != FAKE_POISON) {
            return false;
        }
    }
    return true;
}

static void check_rank(struct mutant_world *world, int32_t rank)
{
    const struct plan *plan = world->plan;
    const struct world_rank *self = &world->ranks[rank];

    if (!mutant_action_sums_right(world, rank) || !mutant_action_sync_right(world, rank)) {
        mutant_world_fault(world, OUTCOME_SUM, rank, ACTION_NONE, "the sums of the step");
    }
    if (self->steps != (plan_trains(plan) ? 1 : 0) ||
        self->reduces != (plan_reduces(plan) ? 1 : 0)) {
        mutant_world_fault(world, OUTCOME_SUM, rank, ACTION_NONE, "how many STEP and REDUCE");
    }
    for (int32_t chunk = 0; chunk < plan->shape.virtual_stages; chunk++) {
        if (!is_empty(&self->chunks[chunk])) {
            mutant_world_fault(world, OUTCOME_LEFT, rank, ACTION_NONE, "a buffer of the chunk");
        }
    }
    for (int32_t way = 0; way < WORLD_WAYS; way++) {
        if (has_way(plan->shape.ranks, way) && has_messages(&self->lanes[way])) {
            mutant_world_fault(world, OUTCOME_LEFT, rank, ACTION_NONE, "a message");
        }
    }
}

void mutant_world_check_end(struct mutant_world *world)
{
    for (int32_t rank = 0; rank < world->plan->shape.ranks; rank++) {
        check_rank(world, rank);
    }
    if (plan_syncs(world->plan) && world->syncs != 1) {
        mutant_world_fault(world, OUTCOME_SUM, 0, ACTION_NONE, "how many SYNC of the head");
    }
}

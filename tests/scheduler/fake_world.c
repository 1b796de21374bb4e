#include "tests/scheduler/fake_world.h"

#include <stdlib.h>

#include "tests/scheduler/fake_token.h"

static enum status init_lane(struct lane *lane, int32_t landings)
{
    lane->count = lane->credits = landings;
    lane->landings = calloc((size_t)lane->count + 1, sizeof(*lane->landings));
    if (lane->landings == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "%d landing buffers", (int)landings);
    }
    for (int32_t landing = 0; landing < lane->count; landing++) {
        lane->landings[landing] = (struct landing){.token = FAKE_POISON, .sequence = -1};
    }
    return STATUS_OK;
}

static enum status init_chunk(struct fake_chunk *chunk, const struct plan_buffers *buffers)
{
    chunk->stashes = calloc((size_t)buffers->slots + 1, sizeof(*chunk->stashes));
    chunk->gradients = calloc((size_t)buffers->gradients + 1, sizeof(*chunk->gradients));
    if (chunk->stashes == NULL || chunk->gradients == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "a fake chunk");
    }
    for (int32_t slot = 0; slot < buffers->slots; slot++) {
        chunk->stashes[slot] =
            (struct stash){.token = FAKE_POISON, .head = FAKE_POISON, .landing = -1};
    }
    for (int32_t set = 0; set < buffers->gradients; set++) {
        chunk->gradients[set] = FAKE_POISON;
    }
    TRY(init_lane(&chunk->lanes[LANE_F], buffers->landing_f));
    return init_lane(&chunk->lanes[LANE_B], buffers->landing_b);
}

static enum status init_rank(struct fake_world *world, int32_t index)
{
    const struct plan *plan = world->plan;
    struct fake_rank *rank = &world->ranks[index];

    rank->base.ops = &fake_worker_ops;
    rank->world = world;
    rank->rank = index;
    rank->line = &plan->lines[index];
    rank->random = fake_mix(world->config->seed ^ (uint64_t)index);
    rank->actions = calloc((size_t)rank->line->count + 1, sizeof(*rank->actions));
    rank->chunks = calloc((size_t)plan->shape.virtual_stages, sizeof(*rank->chunks));
    rank->outs[LANE_F] = calloc(2 * (size_t)world->count, sizeof(*rank->outs[LANE_F]));
    if (rank->actions == NULL || rank->chunks == NULL || rank->outs[LANE_F] == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "fake rank %d", (int)index);
    }
    rank->outs[LANE_B] = rank->outs[LANE_F] + world->count;
    for (int32_t lane = 0; lane < 2 * world->count; lane++) {
        rank->outs[LANE_F][lane] = FAKE_POISON;
    }
    for (int32_t chunk = 0; chunk < plan->shape.virtual_stages; chunk++) {
        TRY(init_chunk(&rank->chunks[chunk], plan_buffers_of(plan, index, chunk)));
    }
    return STATUS_OK;
}

static enum status init_lock(struct fake_world *world)
{
    pthread_condattr_t attributes;
    int failed = pthread_condattr_init(&attributes);

    failed |= pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    failed |= pthread_cond_init(&world->moved, &attributes);
    failed |= pthread_mutex_init(&world->lock, NULL);
    (void)pthread_condattr_destroy(&attributes);
    return failed == 0 ? STATUS_OK : status_fail(STATUS_ERR_NO_MEMORY, "the lock of a fake world");
}

enum status fake_world_create(const struct plan *plan, const struct fake_config *config,
                              struct fake_world **world_out)
{
    struct fake_world *world = calloc(1, sizeof(*world));
    enum status status = STATUS_OK;

    if (world == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "a fake world of %d ranks",
                           (int)plan->shape.ranks);
    }
    world->plan = plan;
    world->config = config;
    world->count = plan->shape.ranks;
    world->trains = plan->shape.schedule != SCHEDULE_FORWARD_ONLY;
    world->sync = FAKE_POISON;
    world->ranks = calloc((size_t)world->count, sizeof(*world->ranks));
    if (world->ranks == NULL) {
        free(world);
        return status_fail(STATUS_ERR_NO_MEMORY, "%d fake ranks", (int)plan->shape.ranks);
    }
    TRY_OR(fail, status, init_lock(world));
    for (int32_t rank = 0; rank < world->count; rank++) {
        TRY_OR(fail, status, init_rank(world, rank));
    }
    *world_out = world;
    return STATUS_OK;
fail:
    fake_world_destroy(&world);
    return status;
}

void fake_world_destroy(struct fake_world **world)
{
    for (int32_t index = 0; index < (*world)->count; index++) {
        struct fake_rank *rank = &(*world)->ranks[index];

        for (int32_t chunk = 0;
             rank->chunks != NULL && chunk < (*world)->plan->shape.virtual_stages; chunk++) {
            free(rank->chunks[chunk].stashes);
            free(rank->chunks[chunk].gradients);
            free(rank->chunks[chunk].lanes[LANE_F].landings);
            free(rank->chunks[chunk].lanes[LANE_B].landings);
        }
        free(rank->actions);
        free(rank->chunks);
        free(rank->outs[LANE_F]);
    }
    (void)pthread_cond_destroy(&(*world)->moved);
    (void)pthread_mutex_destroy(&(*world)->lock);
    free((*world)->ranks);
    free(*world);
    *world = NULL;
}

struct worker *fake_world_worker(struct fake_world *world, int32_t rank)
{
    return &world->ranks[rank].base;
}

struct cancel *fake_world_cancel(struct fake_world *world)
{
    return &world->cancel;
}

void fake_world_finish(struct fake_world *world, int32_t rank, enum status status)
{
    (void)pthread_mutex_lock(&world->lock);
    if (status < 0 && !cancel_requested(&world->cancel)) {
        if (world->verdict == FAKE_RIGHT && !world->hang) {
            world->place = (struct fake_place){.rank = rank, .index = -1};
        }
        cancel_request(&world->cancel);
        (void)pthread_cond_broadcast(&world->moved);
    }
    world->finished++;
    fake_world_check_idle(world);
    (void)pthread_mutex_unlock(&world->lock);
}

enum fake_verdict fake_world_verdict(const struct fake_world *world, struct fake_place *place_out)
{
    *place_out = world->place;
    if (world->verdict == FAKE_RIGHT && world->hang) {
        return FAKE_HANG;
    }
    return world->verdict; /* a hang after a bad read is its consequence */
}

const struct fake_totals *fake_world_totals(const struct fake_world *world, int32_t virtual_stage)
{
    const struct plan *plan = world->plan;

    return &world->ranks[plan->rank_of[virtual_stage]].chunks[plan->chunk_of[virtual_stage]].totals;
}

/* Outputs of every stage for one micro-batch; `inputs[s]` is what stage s starts from. */
static void expect_forward(int32_t stages, int32_t microbatch, uint64_t *inputs,
                           struct fake_totals *totals)
{
    inputs[0] = fake_token(FAKE_DATA, 0, microbatch, 0, 0, 0);
    for (int32_t s = 0; s < stages; s++) {
        inputs[s + 1] = fake_token(FAKE_OUTPUT, s, microbatch, inputs[s], 0, 0);
        totals[s].forward = fake_chain(totals[s].forward, inputs[s + 1]);
    }
    totals[stages - 1].head = fake_chain(totals[stages - 1].head, inputs[stages]);
}

static void expect_backward(int32_t stages, int32_t microbatch, const uint64_t *inputs,
                            struct fake_totals *totals)
{
    uint64_t dy = fake_token(FAKE_HEAD, stages - 1, microbatch, inputs[stages], 0, 0);

    for (int32_t s = stages - 1; s >= 0; s--) {
        uint64_t stash = fake_token(FAKE_STASH, s, microbatch, inputs[s], 0, 0);
        uint64_t gradient = fake_token(FAKE_GRADIENT, s, microbatch, dy, stash, 0);
        uint64_t dx = fake_token(FAKE_INPUT, s, microbatch, dy, stash, inputs[s]);

        totals[s].weight = fake_chain(totals[s].weight,
                                      fake_token(FAKE_WEIGHT, s, microbatch, gradient, stash, dy));
        totals[s].input = fake_chain(totals[s].input, dx);
        dy = dx;
    }
}

void fake_totals_expect(int32_t stages, int32_t microbatches, bool trains, bool syncs,
                        struct fake_totals *totals_out)
{
    uint64_t inputs[FAKE_MOST_STAGES + 1] = {0};

    for (int32_t s = 0; s < stages; s++) {
        totals_out[s] = (struct fake_totals){0};
    }
    for (int32_t k = 0; k < microbatches; k++) {
        expect_forward(stages, k, inputs, totals_out);
        if (trains) {
            expect_backward(stages, k, inputs, totals_out);
        }
    }
    if (syncs) {
        totals_out[0].synced =
            fake_token(FAKE_SYNC, stages - 1, 0, totals_out[stages - 1].head, 0, 0);
    }
}

#include "stages/lanes.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Of one chunk, what the plan that needs more asks for. */
static int32_t landings_of(const struct plan *plan, const struct plan *evaluation, int32_t stage,
                           enum lane_direction direction)
{
    int32_t rank = plan->rank_of[stage];
    int32_t chunk = plan->chunk_of[stage];
    const struct plan_buffers *training = plan_buffers_of(plan, rank, chunk);
    const struct plan_buffers *evaluating = plan_buffers_of(evaluation, rank, chunk);

    if (direction == LANE_B) {
        return training->landing_b;
    }
    return training->landing_f > evaluating->landing_f ? training->landing_f
                                                       : evaluating->landing_f;
}

static int32_t stage_of(const struct plan *plan, int32_t rank, int32_t chunk)
{
    int32_t stage = 0;

    while (plan->rank_of[stage] != rank || plan->chunk_of[stage] != chunk) {
        stage++;
    }
    return stage;
}

/* How many landing buffers of the lane into `stage` belong to chunks below `chunk` of its rank:
 * with its own chunk the number of its first, with the number of chunks the size of the lane. */
static int32_t landings_below(const struct plan *plan, const struct plan *evaluation, int32_t stage,
                              enum lane_direction direction, int32_t chunk)
{
    int32_t rank = plan->rank_of[stage];
    int32_t source = plan->rank_of[plan_source(plan, stage, direction)];
    int32_t count = 0;

    for (int32_t other = 0; other < chunk; other++) {
        int32_t into = stage_of(plan, rank, other);
        int32_t from = plan_source(plan, into, direction);

        if (from != ACTION_NONE && plan->rank_of[from] == source) {
            count += landings_of(plan, evaluation, into, direction);
        }
    }
    return count;
}

struct chunk_lanes *lanes_of(const struct lanes *lanes, int32_t chunk,
                             enum lane_direction direction)
{
    return &lanes->ends[chunk * LANE_DIRECTIONS + (int32_t)direction];
}

static struct lane_out *find_out(struct lanes *lanes, int32_t peer, enum lane_direction direction)
{
    int32_t i = 0;

    while (i < lanes->out_count &&
           (lanes->outs[i].peer != peer || lanes->outs[i].direction != direction)) {
        i++;
    }
    if (i == lanes->out_count) {
        lanes->outs[lanes->out_count++] = (struct lane_out){.peer = peer, .direction = direction};
    }
    return &lanes->outs[i];
}

static void init_end(struct lanes *lanes, const struct plan *plan, const struct plan *evaluation,
                     int32_t stage, enum lane_direction direction)
{
    struct chunk_lanes *end = lanes_of(lanes, plan->chunk_of[stage], direction);
    int32_t target = plan_target(plan, stage, direction);
    int32_t next = plan_local_target(plan, stage, direction);

    if (plan_source(plan, stage, direction) != ACTION_NONE) {
        end->in_first = landings_below(plan, evaluation, stage, direction, plan->chunk_of[stage]);
        lanes->landings += landings_of(plan, evaluation, stage, direction);
    } else if (plan_local_source(plan, stage, direction) != ACTION_NONE) {
        end->handed_count = landings_of(plan, evaluation, stage, direction);
    }
    if (target != ACTION_NONE) {
        end->out = find_out(lanes, plan->rank_of[target], direction);
        end->out_first =
            landings_below(plan, evaluation, target, direction, plan->chunk_of[target]);
    } else if (next != ACTION_NONE) {
        end->next = lanes_of(lanes, plan->chunk_of[next], direction);
    }
}

/* Measures, or places. */
static void carve(struct lanes *lanes)
{
    for (int32_t i = 0; i < lanes->out_count; i++) {
        lanes->outs[i].buffer = arena_take(&lanes->arena, 1, lanes->message_bytes);
    }
    for (int32_t i = 0; i < lanes->chunks * LANE_DIRECTIONS; i++) {
        struct chunk_lanes *end = &lanes->ends[i];

        if (end->handed_count > 0) {
            end->handed =
                arena_take(&lanes->arena, (size_t)end->handed_count, lanes->message_bytes);
        }
    }
}

enum status lanes_init(struct lanes *lanes, const struct plan *plan, const struct plan *evaluation,
                       int32_t rank, size_t message_bytes)
{
    size_t ends = (size_t)plan->shape.virtual_stages * LANE_DIRECTIONS;

    lanes->chunks = plan->shape.virtual_stages;
    lanes->message_bytes = message_bytes;
    lanes->ends = calloc(ends, sizeof(*lanes->ends));
    lanes->outs = calloc(ends, sizeof(*lanes->outs));
    if (lanes->ends == NULL || lanes->outs == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "lanes of %d chunks", lanes->chunks);
    }
    for (int32_t stage = 0; stage < plan_stages(plan); stage++) {
        if (plan->rank_of[stage] == rank) {
            init_end(lanes, plan, evaluation, stage, LANE_F);
            init_end(lanes, plan, evaluation, stage, LANE_B);
        }
    }
    arena_measure(&lanes->arena, "out buffers");
    carve(lanes);
    return lane_waves_init(&lanes->waves, plan->rank_of, plan_stages(plan));
}

/* The lane into `stage`, at whichever end this rank is; opened once. */
static enum status open_lane(const struct lanes *lanes, const struct plan *plan,
                             const struct plan *evaluation, const struct grid *grid,
                             struct comm *comm, int32_t stage, enum lane_direction direction,
                             bool sends, struct lane **lane_out)
{
    int32_t source = plan->rank_of[plan_source(plan, stage, direction)];
    struct lane_config config = {
        .peer = grid_stage_rank(grid, sends ? plan->rank_of[stage] : source),
        .direction = (int32_t)direction,
        .sends = sends,
        .landings = landings_below(plan, evaluation, stage, direction, plan->shape.virtual_stages),
        .landing_bytes = lanes->message_bytes,
        .wave = lane_waves_of(&lanes->waves, source, plan->rank_of[stage]),
    };

    return comm_lane_open(comm, &config, lane_out);
}

/* A lane that an earlier chunk of this rank receives on already. */
static struct lane *find_in(const struct lanes *lanes, const struct plan *plan, int32_t stage,
                            enum lane_direction direction)
{
    int32_t source = plan->rank_of[plan_source(plan, stage, direction)];

    for (int32_t chunk = 0; chunk < lanes->chunks; chunk++) {
        int32_t from = plan_source(plan, stage_of(plan, plan->rank_of[stage], chunk), direction);

        if (from != ACTION_NONE && plan->rank_of[from] == source) {
            return lanes_of(lanes, chunk, direction)->in;
        }
    }
    return NULL;
}

/* The receiving end of a chunk, which an earlier chunk may have opened. */
static enum status open_in(struct lanes *lanes, const struct plan *plan,
                           const struct plan *evaluation, const struct grid *grid,
                           struct comm *comm, int32_t stage, enum lane_direction direction)
{
    struct chunk_lanes *end = lanes_of(lanes, plan->chunk_of[stage], direction);

    if (plan_source(plan, stage, direction) == ACTION_NONE) {
        return STATUS_OK;
    }
    end->in = find_in(lanes, plan, stage, direction);
    return end->in != NULL
               ? STATUS_OK
               : open_lane(lanes, plan, evaluation, grid, comm, stage, direction, false, &end->in);
}

/* The sending end, which an earlier chunk may have opened too. */
static enum status open_out(struct lanes *lanes, const struct plan *plan,
                            const struct plan *evaluation, const struct grid *grid,
                            struct comm *comm, int32_t stage, enum lane_direction direction)
{
    struct lane_out *out = lanes_of(lanes, plan->chunk_of[stage], direction)->out;

    if (out == NULL || out->lane != NULL) {
        return STATUS_OK;
    }
    return open_lane(lanes, plan, evaluation, grid, comm, plan_target(plan, stage, direction),
                     direction, true, &out->lane);
}

enum status lanes_open(struct lanes *lanes, const struct plan *plan, const struct plan *evaluation,
                       const struct grid *grid, struct comm *comm)
{
    for (int32_t i = 0; i < lanes->chunks * LANE_DIRECTIONS; i++) {
        enum lane_direction direction = (enum lane_direction)(i % LANE_DIRECTIONS);
        int32_t stage = stage_of(plan, grid->pp, i / LANE_DIRECTIONS);

        TRY(open_in(lanes, plan, evaluation, grid, comm, stage, direction));
        TRY(open_out(lanes, plan, evaluation, grid, comm, stage, direction));
    }
    return STATUS_OK;
}

enum status lanes_allocate(struct lanes *lanes, struct device *device)
{
    arena_put_on(&lanes->arena, device, DEVICE_TENSORS);
    TRY(arena_allocate(&lanes->arena, true));
    carve(lanes);
    return STATUS_OK;
}

const void *lanes_input(const struct lanes *lanes, const struct action *action,
                        enum lane_direction direction)
{
    const struct chunk_lanes *end = lanes_of(lanes, action->chunk, direction);

    if (action->landing == ACTION_NONE) {
        return NULL;
    }
    return end->in != NULL ? comm_landing(end->in, end->in_first + action->landing)
                           : end->handed + (size_t)action->landing * lanes->message_bytes;
}

void *lanes_output(const struct lanes *lanes, const struct action *action,
                   enum lane_direction direction)
{
    const struct chunk_lanes *end = lanes_of(lanes, action->chunk, direction);

    if (end->out != NULL) {
        return end->out->buffer;
    }
    if (end->next == NULL) {
        return NULL;
    }
    ENSURE(action->target >= 0 && action->target < end->next->handed_count,
           "hand-over buffer %d of %d", action->target, end->next->handed_count);
    return end->next->handed + (size_t)action->target * lanes->message_bytes;
}

void lanes_release(struct lanes *lanes)
{
    free(lanes->ends);
    free(lanes->outs);
    arena_release(&lanes->arena);
    lane_waves_release(&lanes->waves);
    memset(lanes, 0, sizeof(*lanes));
}

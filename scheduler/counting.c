#include "scheduler/counting.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/generate.h"
#include "scheduler/plan_check.h"
#include "scheduler/sequences.h"

/* Buffers of one kind in one chunk. */
struct tally {
    int32_t used;
    int32_t peak;
};

/* What counting knows of a chunk of the rank whose line it reads. */
struct chunk_tally {
    struct tally slots;
    struct tally gradients;
    struct tally
        locals[LANE_DIRECTIONS]; /* landing buffers that a chunk of the same rank writes to */
    int32_t local_target[LANE_DIRECTIONS]; /* chunk that gets its result on the same rank */
    bool local_source[LANE_DIRECTIONS];    /* its input is made on the same rank */
    bool splits;                           /* its B becomes I, SEND, W */
    int32_t forward;                       /* lowered actions that an F becomes */
    int32_t backward;                      /* and an I or B */
};

struct counting {
    const struct plan *compute;
    const int32_t *stage_of; /* borrows; [rank · v + chunk] */
    struct plan *lowered;
    struct chunk_tally *chunks; /* owns; [chunk] */
    int32_t *seen;              /* owns; of plan_check_line() */
};

static void take(struct tally *tally)
{
    tally->used++;
    tally->peak = tally->used > tally->peak ? tally->used : tally->peak;
}

static void begin_chunk(const struct plan *plan, int32_t stage, struct chunk_tally *chunk)
{
    int32_t gathers = plan_gathers(plan) ? 2 : 0;
    bool sends_back = plan_target(plan, stage, LANE_B) != ACTION_NONE;

    memset(chunk, 0, sizeof(*chunk));
    for (int i = 0; i < LANE_DIRECTIONS; i++) {
        enum lane_direction direction = (enum lane_direction)i;
        int32_t target = plan_local_target(plan, stage, direction);
        int32_t messages = (plan_source(plan, stage, direction) != ACTION_NONE ? 1 : 0) +
                           (plan_target(plan, stage, direction) != ACTION_NONE ? 1 : 0);

        chunk->local_target[i] = target == ACTION_NONE ? ACTION_NONE : plan->chunk_of[target];
        chunk->local_source[i] = plan_local_source(plan, stage, direction) != ACTION_NONE;
        *(direction == LANE_F ? &chunk->forward : &chunk->backward) = 1 + messages + gathers;
    }
    chunk->splits = plan->shape.early_send && sends_back;
}

static void begin_line(const struct counting *counting, int32_t rank)
{
    const struct plan *plan = counting->compute;
    int32_t v = plan->shape.virtual_stages;

    for (int32_t chunk = 0; chunk < v; chunk++) {
        begin_chunk(plan, counting->stage_of[(size_t)rank * (size_t)v + (size_t)chunk],
                    &counting->chunks[chunk]);
    }
}

/* The landing buffer of a chunk's own input, where it lies on the rank. */
static void give_local(struct chunk_tally *chunk, enum lane_direction direction)
{
    chunk->locals[direction].used -= chunk->local_source[direction] ? 1 : 0;
}

static void take_target(const struct counting *counting, const struct chunk_tally *chunk,
                        enum lane_direction direction)
{
    if (chunk->local_target[direction] != ACTION_NONE) {
        take(&counting->chunks[chunk->local_target[direction]].locals[direction]);
    }
}

static void end_weight(struct chunk_tally *chunk)
{
    give_local(chunk, LANE_B);
    chunk->gradients.used--;
    chunk->slots.used--;
}

/* In the order in which lowering takes and gives back. Returns the actions that it becomes. */
static int32_t count_action(const struct counting *counting, const struct action *action)
{
    struct chunk_tally *chunk = &counting->chunks[action->chunk];

    switch ((enum action_kind)action->kind) {
    case ACTION_F:
        take(&chunk->slots);
        take_target(counting, chunk, LANE_F);
        if (!plan_trains(counting->compute)) {
            chunk->slots.used--;
            give_local(chunk, LANE_F);
        }
        return chunk->forward;
    case ACTION_W:
        end_weight(chunk);
        return 1;
    default:
        take(&chunk->gradients);
        take_target(counting, chunk, LANE_B);
        give_local(chunk, LANE_F);
        if (action->kind == ACTION_I) {
            return chunk->backward;
        }
        end_weight(chunk);
        return chunk->backward + (chunk->splits ? 1 : 0);
    }
}

/* Landing buffers of a lane into `stage` beyond what its chunk holds; `held` of them with its
 * excess are never more than there are messages. */
static int32_t depth_of(const struct plan *plan, int32_t stage, enum lane_direction direction,
                        int32_t held)
{
    int32_t depth = plan->shape.lane_depth;
    int32_t excess = plan_lane_excess(plan, stage, direction);
    int32_t rest = plan->shape.microbatches - held - depth;

    return depth + (excess < rest ? excess : rest > 0 ? rest : 0);
}

static void write_buffers(const struct counting *counting, int32_t rank)
{
    const struct plan *plan = counting->compute;
    size_t first = (size_t)rank * (size_t)plan->shape.virtual_stages;

    for (int32_t c = 0; c < plan->shape.virtual_stages; c++) {
        const struct chunk_tally *chunk = &counting->chunks[c];
        struct plan_buffers *buffers = &counting->lowered->buffers[first + (size_t)c];
        int32_t stage = counting->stage_of[first + (size_t)c];
        bool from_before = plan_source(plan, stage, LANE_F) != ACTION_NONE;
        bool from_behind = plan_trains(plan) && plan_source(plan, stage, LANE_B) != ACTION_NONE;

        buffers->slots = chunk->slots.peak;
        buffers->gradients = chunk->gradients.peak;
        buffers->landing_f = chunk->locals[LANE_F].peak;
        buffers->landing_b = chunk->locals[LANE_B].peak;
        if (from_before) {
            int32_t window = plan_landing_window(plan, rank, c);
            int32_t held = window > buffers->slots ? window : buffers->slots;

            buffers->landing_f = held + depth_of(plan, stage, LANE_F, held);
        }
        if (from_behind) {
            buffers->landing_b =
                buffers->gradients + depth_of(plan, stage, LANE_B, buffers->gradients);
        }
    }
}

static enum status count_line(const struct counting *counting, int32_t rank, int32_t *most_out)
{
    const struct plan_line *line = &counting->compute->lines[rank];
    int32_t most = 4; /* two SYNC, REDUCE and STEP */

    TRY(plan_check_line(counting->compute, rank, counting->seen));
    begin_line(counting, rank);
    for (int32_t i = 0; i < line->count; i++) {
        most += count_action(counting, &line->actions[i]);
    }
    write_buffers(counting, rank);
    *most_out = most;
    return STATUS_OK;
}

enum status counting_run(struct line_source *lines, const int32_t *stage_of, const bool *wanted,
                         struct plan *lowered, int32_t *most_out)
{
    const struct plan *compute = lines->plan;
    struct counting counting = {.compute = compute, .stage_of = stage_of, .lowered = lowered};
    size_t v = (size_t)compute->shape.virtual_stages;
    enum status status = STATUS_OK;

    counting.chunks = calloc(v, sizeof(*counting.chunks));
    counting.seen = malloc(plan_check_cells(compute) * sizeof(*counting.seen));
    if (counting.chunks == NULL || counting.seen == NULL) {
        free(counting.chunks);
        free(counting.seen);
        return status_fail(STATUS_ERR_NO_MEMORY, "lowering: no memory for %d micro-batches",
                           compute->shape.microbatches);
    }
    for (int32_t rank = 0; rank < compute->shape.ranks && status == STATUS_OK; rank++) {
        if (wanted == NULL || wanted[rank]) {
            status = line_source_get(lines, rank);
            status = status < 0 ? status : count_line(&counting, rank, &most_out[rank]);
        }
    }
    free(counting.chunks);
    free(counting.seen);
    return status;
}

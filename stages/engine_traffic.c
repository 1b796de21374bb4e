/* engine_traffic -- what the steps of a rank have moved and held, beside what the plan says; and what
 * of the embedding sync its steps have waited for. */
#include <stdio.h>

#include "base/log.h"
#include "stages/engine.h"
#include "stages/engine_start.h"

static uint64_t group_bytes(const struct group *group, enum comm_collective collective)
{
    return group != NULL ? comm_group_traffic(group, collective).bytes : 0;
}

void engine_read_traffic(const struct engine *engine, struct traffic *traffic_out)
{
    const struct group *tp = engine->workspace.tp.group;
    const struct group *dp = engine->replicas.group;
    const struct group *aside = engine->buckets.overlaps ? engine->buckets.group : NULL;
    uint64_t *bytes = traffic_out->bytes;

    *traffic_out = (struct traffic){{0}};
    for (int32_t i = 0; i < engine->lanes.out_count; i++) {
        const struct lane_out *out = &engine->lanes.outs[i];

        bytes[out->direction == LANE_F ? TRAFFIC_ACTIVATIONS : TRAFFIC_GRADIENTS] +=
            comm_lane_traffic(out->lane).bytes;
    }
    bytes[TRAFFIC_TENSOR_SUMS] =
        group_bytes(tp, COMM_ALL_REDUCE) + group_bytes(tp, COMM_REDUCE_SCATTER);
    bytes[TRAFFIC_ROW_GATHERS] = engine->workspace.shared_rows_bytes;
    bytes[TRAFFIC_HEAD_ROWS] =
        group_bytes(tp, COMM_ALL_GATHER) - engine->workspace.shared_rows_bytes;
    bytes[TRAFFIC_GRADIENT_SUMS] = group_bytes(dp, COMM_ALL_REDUCE) +
                                   group_bytes(dp, COMM_REDUCE_SCATTER) +
                                   group_bytes(aside, COMM_REDUCE_SCATTER);
    bytes[TRAFFIC_WEIGHT_GATHERS] =
        group_bytes(dp, COMM_ALL_GATHER) - engine->gathered.in_group + engine->gathered.bytes;
    bytes[TRAFFIC_EMBEDDING_SYNC] = engine->sync != NULL ? embedding_sync_sent_bytes(engine->sync)
                                                         : tied_lanes_sent_bytes(&engine->tied);
}

/* An update's weights travel after its step and may be gathered in an evaluation, so of these kinds
 * everything counts; of the others what moved inside the step. */
static bool counts_always(int kind)
{
    return kind == TRAFFIC_EMBEDDING_SYNC || kind == TRAFFIC_WEIGHT_GATHERS;
}

void engine_count_step(struct engine *engine, const struct traffic *before)
{
    struct traffic now;

    engine_read_traffic(engine, &now);
    engine->steps_run++;
    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        if (!counts_always(kind)) {
            engine->moved.bytes[kind] += now.bytes[kind] - before->bytes[kind];
        }
    }
    engine->sync_transfer_s += engine->update.outcome.sync_transfer_s;
    engine->sync_exposed_s += engine->update.outcome.sync_exposed_s;
}

void engine_read_moved(const struct engine *engine, struct traffic *moved_out)
{
    struct traffic now;

    engine_read_traffic(engine, &now);
    *moved_out = engine->moved;
    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        if (counts_always(kind)) {
            moved_out->bytes[kind] = now.bytes[kind];
        }
    }
}

static void tell_memory(const struct engine *engine)
{
    char text[160];

    memory_compare(&engine->memory, engine_used_bytes(engine), memory_resident_bytes(), text,
                   sizeof(text));
    log_info("rank %d: memory: %s", engine->grid.rank, text);
}

enum status engine_summarize(const struct engine *engine)
{
    struct traffic planned;
    struct traffic moved;
    char text[768];

    tell_memory(engine);
    if (engine->comm == NULL || engine->steps_run == 0) {
        return STATUS_OK;
    }
    TRY(traffic_plan(engine->config, engine->plan, &engine->grid, &planned));
    engine_read_moved(engine, &moved);
    traffic_compare(&planned, &moved, engine->steps_run, text, sizeof(text));
    log_info("rank %d: %s", engine->grid.rank, text);
    if (engine->grid.rank == 0 && plan_syncs(engine->plan) && !engine_ties_by_lanes(engine)) {
        double steps = (double)engine->steps_run;

        log_info("embedding sync: %.2f ms of transfers a step, of which %.2f ms were waited for",
                 1e3 * engine->sync_transfer_s / steps, 1e3 * engine->sync_exposed_s / steps);
    }
    return STATUS_OK;
}

#include "scheduler/partition.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/partition_table.h"

enum partition_way {
    WAY_LINE, /* each virtual stage stands alone on its rank */
    WAY_ENDS, /* a V */
    WAY_LEVEL /* anything else */
};

static enum partition_way way_of(const struct partition_table *table)
{
    int32_t stage;

    if (table->problem->virtual_stages == 1) {
        return WAY_LINE;
    }
    if (table->problem->virtual_stages != 2) {
        return WAY_LEVEL;
    }
    for (stage = 0; stage < table->stages; stage++) {
        int32_t mirrored = table->stages - 1 - stage;

        if (partition_rank_of(table, stage) != (stage < mirrored ? stage : mirrored)) {
            return WAY_LEVEL;
        }
    }
    return WAY_ENDS;
}

/* The largest chunk as small as it can be, as if each virtual stage had a rank to itself; without
 * limits. */
static enum status make_by_chunk(const struct partition_table *table, int32_t *counts_out)
{
    struct partition_problem chunks = *table->problem;
    struct partition_table line;
    double *speed = NULL;
    bool found = false;
    enum status status;
    int32_t stage;

    chunks.ranks = table->stages;
    chunks.virtual_stages = 1;
    chunks.rank_of = NULL;
    chunks.memory_limit = NULL;
    if (chunks.speed != NULL) {
        speed = malloc((size_t)table->stages * sizeof(*speed));
        if (speed == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "partition: no memory for %d virtual stages",
                               table->stages);
        }
        for (stage = 0; stage < table->stages; stage++) {
            speed[stage] = chunks.speed[partition_rank_of(table, stage)];
        }
        chunks.speed = speed;
    }
    TRY_OR(done, status, partition_table_init(&line, &chunks));
    status = partition_line_search(&line, counts_out, &found);
    partition_table_release(&line);
done:
    free(speed);
    return status;
}

static enum status search(const struct partition_table *table, int32_t *counts_out, bool *found_out)
{
    switch (way_of(table)) {
    case WAY_LINE:
        return partition_line_search(table, counts_out, found_out);
    case WAY_ENDS:
        return partition_ends_search(table, counts_out, found_out);
    default:
        break;
    }
    *found_out = true;
    TRY(make_by_chunk(table, counts_out));
    return partition_level(table, counts_out);
}

/* Refuses `counts` where they exceed a limit. */
static enum status check_memory(const struct partition_table *table, const int32_t *counts)
{
    const struct partition_problem *problem = table->problem;
    double *loads = malloc((size_t)problem->ranks * sizeof(*loads));
    int64_t *needs = malloc((size_t)problem->ranks * sizeof(*needs));
    int32_t fullest = 0;
    int64_t beyond = 0;
    bool made = loads != NULL && needs != NULL;

    if (made) {
        beyond = partition_loads(table, counts, loads, needs, &fullest);
    }
    free(loads);
    free(needs);
    if (!made) {
        return status_fail(STATUS_ERR_NO_MEMORY, "partition: no memory for %d ranks",
                           problem->ranks);
    }
    if (beyond <= 0) {
        return STATUS_OK;
    }
    return status_fail(STATUS_ERR_REFUSED,
                       "partition: no split of %d layers fits into memory: in the nearest one rank "
                       "%d needs %lld bytes, its limit is %lld; fewer micro-batches in flight, "
                       "smaller ones, recompute or more ranks need less",
                       problem->layers, fullest,
                       (long long)(problem->memory_limit[fullest] + beyond),
                       (long long)problem->memory_limit[fullest]);
}

enum status partition_make(const struct partition_problem *problem, int32_t *counts_out)
{
    struct partition_table table;
    bool found = false;
    enum status status;

    TRY(partition_table_init(&table, problem));
    TRY_OR(done, status, search(&table, counts_out, &found));
    if (!found) {
        table.by_memory = true;
        TRY_OR(done, status, search(&table, counts_out, &found));
        table.by_memory = false;
    }
    if (problem->memory_limit != NULL) {
        status = check_memory(&table, counts_out);
    }
done:
    partition_table_release(&table);
    return status;
}

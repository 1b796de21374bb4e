#include "scheduler/trace_lanes.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LEVEL_DEPTH 8

/* The open slices of one track, the innermost last. */
struct level {
    int64_t ends[LEVEL_DEPTH];
    int depth;
};

/* All levels of one track: the first and its overflows. */
struct level_list {
    struct level *levels; /* owns */
    int32_t count;
};

static bool level_takes(struct level *level, const struct span *span)
{
    while (level->depth > 0 && level->ends[level->depth - 1] <= span->begin_ns) {
        level->depth--;
    }
    if (level->depth == LEVEL_DEPTH ||
        (level->depth > 0 && level->ends[level->depth - 1] < span->end_ns)) {
        return false;
    }
    level->ends[level->depth++] = span->end_ns;
    return true;
}

/* Puts the slice on the first level of its track that can hold it. */
static enum status choose_level(struct level_list *list, const struct span *span,
                                int32_t *level_out)
{
    for (int32_t index = 0; index < list->count; index++) {
        if (level_takes(&list->levels[index], span)) {
            *level_out = index;
            return STATUS_OK;
        }
    }
    struct level *levels = realloc(list->levels, ((size_t)list->count + 1) * sizeof(*levels));

    if (levels == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: %d overlapping slices of a track",
                           (int)list->count + 1);
    }
    list->levels = levels;
    levels[list->count] = (struct level){.ends = {span->end_ns}, .depth = 1};
    *level_out = list->count++;
    return STATUS_OK;
}

enum status trace_lanes_place(const struct trace_rank *rank, struct trace_lanes *lanes_out)
{
    struct level_list lists[TRACE_TRACKS] = {{0}};
    struct trace_lanes lanes = {.tids = calloc(rank->count + 1, sizeof(*lanes.tids))};
    enum status status = STATUS_OK;

    if (lanes.tids == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: the tracks of %zu spans", rank->count);
    }
    for (size_t index = 0; status >= 0 && index < rank->count; index++) {
        enum trace_track track = trace_track_of(&rank->spans[index]);
        int32_t level = 0;

        status = choose_level(&lists[track], &rank->spans[index], &level);
        lanes.tids[index] = (int32_t)track + level * TRACE_TRACKS;
    }
    for (int track = 0; track < TRACE_TRACKS; track++) {
        lanes.levels[track] = lists[track].count;
        free(lists[track].levels);
    }
    if (status < 0) {
        trace_lanes_release(&lanes);
        return status;
    }
    *lanes_out = lanes;
    return STATUS_OK;
}

void trace_lanes_release(struct trace_lanes *lanes)
{
    free(lanes->tids);
    memset(lanes, 0, sizeof(*lanes));
}

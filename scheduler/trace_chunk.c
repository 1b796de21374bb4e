#include "scheduler/trace_chunk.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/action.h"
#include "scheduler/trace.h"
#include "scheduler/trace_event.h"

static int compare_stages(const void *left_item, const void *right_item)
{
    const int32_t *left = left_item;
    const int32_t *right = right_item;

    return (*left > *right) - (*left < *right);
}

/* A file may name any number: memory goes by its spans and not by what they say. */
enum status trace_chunks_find(const struct trace_rank *rank, struct trace_chunks *chunks_out)
{
    int32_t *stages = malloc((rank->count + 1) * sizeof(*stages));
    size_t found = 0;
    int32_t count = 0;

    if (stages == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: chunks of %zu spans", rank->count);
    }
    for (size_t index = 0; index < rank->count; index++) {
        int32_t stage = rank->spans[index].args[TRACE_ARG_VIRTUAL_STAGE];

        if (trace_kind_is_compute(rank->spans[index].kind) && stage >= 0 &&
            (found == 0 || stages[found - 1] != stage)) {
            stages[found++] = stage;
        }
    }
    qsort(stages, found, sizeof(*stages), compare_stages);
    for (size_t index = 0; index < found; index++) {
        if (count == 0 || stages[count - 1] != stages[index]) {
            stages[count++] = stages[index];
        }
    }
    *chunks_out = (struct trace_chunks){.stages = stages, .count = count};
    return STATUS_OK;
}

int32_t trace_chunks_of(const struct trace_chunks *chunks, int32_t virtual_stage)
{
    const int32_t *at = chunks->count == 0
                            ? NULL
                            : bsearch(&virtual_stage, chunks->stages, (size_t)chunks->count,
                                      sizeof(*chunks->stages), compare_stages);

    return at == NULL ? ACTION_NONE : (int32_t)(at - chunks->stages);
}

void trace_chunks_release(struct trace_chunks *chunks)
{
    free(chunks->stages);
    memset(chunks, 0, sizeof(*chunks));
}

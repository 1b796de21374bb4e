#include "scheduler/trace_steps.h"

#include <stdlib.h>

#include "scheduler/trace.h"
#include "scheduler/trace_event.h"

static int compare_steps(const void *left_item, const void *right_item)
{
    const struct trace_step *left = left_item;
    const struct trace_step *right = right_item;

    return (left->step > right->step) - (left->step < right->step);
}

bool trace_span_trains(const struct span *span)
{
    return trace_kind_is_compute(span->kind) && span->args[TRACE_ARG_EVALUATION] != 1;
}

static void widen(struct trace_step *step, int64_t begin_ns, int64_t end_ns)
{
    step->begin_ns = begin_ns < step->begin_ns ? begin_ns : step->begin_ns;
    step->end_ns = end_ns > step->end_ns ? end_ns : step->end_ns;
}

/* Puts the compute actions of one rank at the end of `steps`, neighbours of a step as one. */
static size_t gather_steps(const struct trace_rank *rank, struct trace_step *steps, size_t used)
{
    size_t first = used;

    for (size_t index = 0; index < rank->count; index++) {
        const struct span *span = &rank->spans[index];

        if (!trace_span_trains(span)) {
            continue;
        }
        if (used == first || steps[used - 1].step != span->args[TRACE_ARG_STEP]) {
            steps[used++] = (struct trace_step){.step = span->args[TRACE_ARG_STEP],
                                                .begin_ns = span->begin_ns,
                                                .end_ns = span->end_ns};
        }
        widen(&steps[used - 1], span->begin_ns, span->end_ns);
    }
    return used;
}

/* Makes one of all parts of a step; returns how many steps there are. */
static size_t join_parts(struct trace_step *steps, size_t used)
{
    size_t count = 0;

    if (used > 0) {
        qsort(steps, used, sizeof(*steps), compare_steps);
    }
    for (size_t index = 0; index < used; index++) {
        if (count > 0 && steps[count - 1].step == steps[index].step) {
            widen(&steps[count - 1], steps[index].begin_ns, steps[index].end_ns);
        } else {
            steps[count++] = steps[index];
        }
    }
    return count;
}

enum status trace_steps_find(const struct trace_run *run, struct trace_step **steps_out,
                             size_t *count_out)
{
    struct trace_step *steps = NULL;
    size_t most = 0;
    size_t used = 0;

    for (size_t index = 0; index < run->count; index++) {
        most += run->ranks[index].count;
    }
    steps = calloc(most + 1, sizeof(*steps));
    if (steps == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: the steps of %zu spans", most);
    }
    for (size_t index = 0; index < run->count; index++) {
        used = gather_steps(&run->ranks[index], steps, used);
    }
    *count_out = join_parts(steps, used);
    *steps_out = steps;
    return STATUS_OK;
}

const struct trace_step *trace_steps_at(const struct trace_step *steps, size_t count, int32_t step)
{
    const struct trace_step key = {.step = step};

    return count == 0 ? NULL : bsearch(&key, steps, count, sizeof(*steps), compare_steps);
}

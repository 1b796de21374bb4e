#include "scheduler/plan_trace.h"

#include <math.h>
#include <stdlib.h>

#include "scheduler/action.h"
#include "scheduler/trace.h"

/* One rank while its line is written down. */
struct pen {
    struct trace_rank *rank;
    double scale;      /* nanoseconds a unit of the costs */
    double cursor;     /* end of the last compute action */
    int32_t wait_peer; /* of the RECV before the next compute action, or ACTION_NONE */
};

static enum status put(const struct pen *pen, enum trace_kind kind, double begin, double end,
                       const struct action *action, int32_t index)
{
    struct span span = {
        .kind = kind, .begin_ns = llround(begin * pen->scale), .end_ns = llround(end * pen->scale)};

    span.args[TRACE_ARG_STEP] = 1;
    span.args[TRACE_ARG_MICROBATCH] = action->microbatch;
    span.args[TRACE_ARG_VIRTUAL_STAGE] = action->virtual_stage;
    span.args[TRACE_ARG_PEER] = action->peer;
    span.args[TRACE_ARG_SEQUENCE] = action->sequence;
    span.args[TRACE_ARG_DIRECTION] = action->direction;
    span.args[TRACE_ARG_INDEX] = index;
    span.args[TRACE_ARG_EVALUATION] = 0;
    span.args[TRACE_ARG_SLICES] = action->slices > 0 ? action->slices : ACTION_NONE;
    span.end_ns = span.end_ns < span.begin_ns ? span.begin_ns : span.end_ns;
    return trace_rank_append(pen->rank, &span);
}

static enum status put_compute(struct pen *pen, const struct action *action, int32_t index,
                               double begin, double end)
{
    static const enum trace_kind kinds[] = {
        [ACTION_F] = TRACE_F, [ACTION_I] = TRACE_I, [ACTION_W] = TRACE_W, [ACTION_B] = TRACE_B};

    if (pen->wait_peer != ACTION_NONE && begin > pen->cursor) {
        struct action wait = *action;

        wait.peer = pen->wait_peer;
        TRY(put(pen, TRACE_WAIT, pen->cursor, begin, &wait, index));
    }
    pen->cursor = end;
    pen->wait_peer = ACTION_NONE;
    return put(pen, kinds[action->kind], begin, end, action, index);
}

/* When the compute action behind a RECV begins; the RECV's own end where there is none. */
static double use_of(const struct plan_line *line, const struct simulation *simulation,
                     int32_t rank, int32_t index)
{
    for (int32_t next = index + 1; next < line->count; next++) {
        if (action_is_compute((enum action_kind)line->actions[next].kind)) {
            return simulation->begin[rank][next];
        }
    }
    return simulation->end[rank][index];
}

static enum status put_action(struct pen *pen, const struct plan_line *line,
                              const struct simulation *simulation, int32_t rank, int32_t index)
{
    const struct action *action = &line->actions[index];
    double begin = simulation->begin[rank][index];
    double end = simulation->end[rank][index];

    switch (action->kind) {
    case ACTION_F:
    case ACTION_I:
    case ACTION_W:
    case ACTION_B:
        return put_compute(pen, action, index, begin, end);
    case ACTION_SEND:
        return put(pen, TRACE_SEND, begin, end, action, index);
    case ACTION_RECV:
        pen->wait_peer = action->peer;
        return put(pen, TRACE_RECV, pen->cursor, use_of(line, simulation, rank, index), action,
                   index);
    case ACTION_GATHER:
        return put(pen, TRACE_GATHER, begin, end, action, index);
    default:
        return STATUS_OK; /* takes no time in a simulation */
    }
}

static enum status put_line(struct pen *pen, const struct plan_line *line,
                            const struct simulation *simulation, int32_t rank)
{
    for (int32_t index = 0; index < line->count; index++) {
        TRY(put_action(pen, line, simulation, rank, index));
    }
    return STATUS_OK;
}

enum status plan_trace_make(const struct plan *lowered, const struct simulation *simulation,
                            struct trace_run *run_out)
{
    struct trace_run run = {.count = (size_t)lowered->shape.ranks};
    enum status status = STATUS_OK;

    if (!(simulation->makespan > 0.0)) {
        return status_fail(STATUS_ERR_REFUSED, "plan: it takes no time, so nothing can be drawn");
    }
    run.ranks = calloc(run.count, sizeof(*run.ranks));
    if (run.ranks == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "plan: a trace of %zu ranks", run.count);
    }
    for (int32_t rank = 0; rank < lowered->shape.ranks; rank++) {
        struct pen pen = {.rank = &run.ranks[rank],
                          .scale = PLAN_TRACE_NS / simulation->makespan,
                          .wait_peer = ACTION_NONE};

        run.ranks[rank].rank = rank;
        run.ranks[rank].pipeline_rank = rank;
        run.ranks[rank].complete = true;
        TRY_OR(fail, status, put_line(&pen, &lowered->lines[rank], simulation, rank));
    }
    trace_run_arrange(&run);
    *run_out = run;
    return STATUS_OK;
fail:
    trace_run_release(&run);
    return status;
}

#include "tests/scheduler/hand_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void put(struct trace_run *run, const struct hand_span *hand)
{
    struct span span = {
        .kind = hand->kind, .begin_ns = hand->begin_us * 1000, .end_ns = hand->end_us * 1000};

    for (int arg = 0; arg < SPAN_ARGS; arg++) {
        span.args[arg] = HAND_NONE;
    }
    span.args[TRACE_ARG_STEP] = 1;
    span.args[TRACE_ARG_EVALUATION] = 0;
    span.args[TRACE_ARG_VIRTUAL_STAGE] = hand->stage;
    span.args[TRACE_ARG_MICROBATCH] = hand->microbatch;
    span.args[TRACE_ARG_DIRECTION] = hand->direction;
    span.args[TRACE_ARG_PEER] = hand->peer;
    span.args[TRACE_ARG_SEQUENCE] = hand->peer == HAND_NONE ? HAND_NONE : hand->microbatch;
    assert_int_equal(trace_rank_append(&run->ranks[hand->rank], &span), STATUS_OK);
}

void hand_run_make(const struct hand_span *spans, size_t count, int32_t stages,
                   struct trace_run *run_out)
{
    memset(run_out, 0, sizeof(*run_out));
    run_out->name = strdup("by hand");
    run_out->count = (size_t)stages;
    run_out->ranks = calloc(run_out->count, sizeof(*run_out->ranks));
    assert_non_null(run_out->name);
    assert_non_null(run_out->ranks);
    for (int32_t rank = 0; rank < stages; rank++) {
        run_out->ranks[rank].rank = run_out->ranks[rank].pipeline_rank = rank;
        run_out->ranks[rank].complete = true;
    }
    for (size_t index = 0; index < count; index++) {
        put(run_out, &spans[index]);
    }
    trace_run_arrange(run_out);
}

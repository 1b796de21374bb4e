/*
 * hand_run -- traced runs of a few spans, written down one by one.
 *
 * Times are whole microseconds, so that what a test expects can be worked out on paper.
 */
#ifndef TESTS_SCHEDULER_HAND_RUN_H
#define TESTS_SCHEDULER_HAND_RUN_H

#include <stddef.h>
#include <stdint.h>

#include "scheduler/action.h"
#include "scheduler/trace.h"
#include "scheduler/trace_read.h"

/* One span of step 1; what does not apply is HAND_NONE. */
struct hand_span {
    int32_t rank;
    enum trace_kind kind;
    int64_t begin_us;
    int64_t end_us;
    int32_t stage; /* virtual */
    int32_t microbatch;
    int32_t direction;
    int32_t peer;
};

#define HAND_NONE (-1)

/* Short forms. A message has the number of its micro-batch in its lane. */
#define HAND_F(rank, stage, mb, begin, end)                \
    {                                                      \
        rank, TRACE_F, begin, end, stage, mb, 0, HAND_NONE \
    }
#define HAND_I(rank, stage, mb, begin, end)                \
    {                                                      \
        rank, TRACE_I, begin, end, stage, mb, 0, HAND_NONE \
    }
#define HAND_W(rank, stage, mb, begin, end)                \
    {                                                      \
        rank, TRACE_W, begin, end, stage, mb, 0, HAND_NONE \
    }
#define HAND_B(rank, stage, mb, begin, end)                \
    {                                                      \
        rank, TRACE_B, begin, end, stage, mb, 0, HAND_NONE \
    }
#define HAND_SEND(rank, stage, mb, direction, peer, begin, end)  \
    {                                                            \
        rank, TRACE_SEND, begin, end, stage, mb, direction, peer \
    }
#define HAND_RECV(rank, stage, mb, direction, peer, begin, end)  \
    {                                                            \
        rank, TRACE_RECV, begin, end, stage, mb, direction, peer \
    }
#define HAND_WAIT(rank, stage, mb, direction, peer, begin, end)  \
    {                                                            \
        rank, TRACE_WAIT, begin, end, stage, mb, direction, peer \
    }
/* What belongs to no micro-batch: OPTIMIZER, STEP, SYNC, REDUCE. */
#define HAND_OTHER(rank, kind, begin, end)                                         \
    {                                                                              \
        rank, TRACE_##kind, begin, end, HAND_NONE, HAND_NONE, HAND_NONE, HAND_NONE \
    }

/* `stages` pipeline ranks of one pipeline. The caller releases *run_out. */
void hand_run_make(const struct hand_span *spans, size_t count, int32_t stages,
                   struct trace_run *run_out);

#endif /* TESTS_SCHEDULER_HAND_RUN_H */

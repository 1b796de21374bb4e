/*
 * trace_clock_event -- a measurement of a rank's clock as a line of its trace file, and back.
 *
 * An M event with whole nanoseconds: at_ns counts as the file's spans do, moved_ns is what was added to the
 * rank's clock to make those times of (absent: 0). Private to trace.c and trace_event.c.
 */
#ifndef SCHEDULER_TRACE_CLOCK_EVENT_H
#define SCHEDULER_TRACE_CLOCK_EVENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRACE_CLOCK_EVENT_NAME "weir_clock"

/* More says no clock, a file that does is wrong: the sum of three such times fits. */
#define TRACE_CLOCK_MOST_NS (INT64_C(1) << 60)

/* Without line end; the length, at most TRACE_EVENT_BYTES - 1. */
size_t trace_clock_event_print(int32_t pid, const struct trace_clock *clock, int64_t moved_ns,
                               char *out, size_t out_bytes);

struct json_t;

/* Reads the args of the event; STATUS_ERR_FORMAT, recorded but not logged, with the key that is wrong. */
enum status trace_clock_event_take(const struct json_t *args, struct trace_clock *clock_out,
                                   int64_t *moved_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_CLOCK_EVENT_H */

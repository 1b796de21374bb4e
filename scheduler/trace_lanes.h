/*
 * trace_lanes -- a place for each span of a rank on its tracks.
 *
 * Viewers want the slices of one track to nest or not to touch. A span that would overlap another without
 * lying inside of it goes to a further track of the same name.
 */
#ifndef SCHEDULER_TRACE_LANES_H
#define SCHEDULER_TRACE_LANES_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/trace_event.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trace_lanes {
    int32_t *tids;                /* owns; by span: its track + level · TRACE_TRACKS */
    int32_t levels[TRACE_TRACKS]; /* tracks of each name; 0 where the rank has no such span */
};

/* The caller releases *lanes_out. */
enum status trace_lanes_place(const struct trace_rank *rank, struct trace_lanes *lanes_out);

/* Safe on a zeroed one, and twice. */
void trace_lanes_release(struct trace_lanes *lanes);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_LANES_H */

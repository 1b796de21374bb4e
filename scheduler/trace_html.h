/*
 * trace_html -- a run as one page for a browser, that needs nothing but itself.
 *
 * The page is scheduler/page/; what the run did is put into it as one JSON object:
 *
 *   name, stages, bubble (of the run, in [0, 1]); kinds, tracks, causes: names, by number
 *   ranks[]     rank, stage, replica, bubble; causes[]: share of the span by cause (trace_bubble.h)
 *     .spans    columns of equal length, by begin: begin (ns since the one before; the first since the
 *               trace's 0), duration (ns), kind, track, step (less the one before), microbatch, stage,
 *               peer, direction, bytes, evaluation (0 or 1); -1 where it does not apply. Where sequences go
 *               through in slices there is slices, how many, and microbatch counts pieces: k · micro-batch + slice
 *     .memory   time (ns, as begin), together (bytes of planned buffers taken from then on)
 *   messages[]  four numbers each: place of the sender in ranks, of its SEND in spans, and the receiver's
 *   path        columns, in the order of time: cause (trace_path.h), rank and span (places, as in
 *               messages), from (place of the other end's rank, -1 where there is none), begin (ns since
 *               the one before), duration
 *
 * All numbers are whole, apart from bubbles and causes; none reaches 2^53. Where JavaScript is off, the text of
 * trace_report is what the page shows.
 */
#ifndef SCHEDULER_TRACE_HTML_H
#define SCHEDULER_TRACE_HTML_H

#include "base/status.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes `path` anew, with all that `run` holds. STATUS_ERR_IO where it cannot be written. */
enum status trace_html_write(const struct trace_run *run, const char *path);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_HTML_H */

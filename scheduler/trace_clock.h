/*
 * trace_clock -- the traces of ranks whose clocks differ, told in rank 0's time.
 *
 * A rank on another host than rank 0 has a clock of its own. Its file says how far rank 0's was ahead of it
 * when the run began and when it ended; between the two the difference is taken to have changed evenly, and
 * beyond them to have gone on so. Where the end is missing, as after a crash, it is taken to have stayed.
 * Reading a run maps every time of such a rank; all who read spans see one clock.
 *
 * The messages check it: none can have come before it was sent. Those that seem to, by more than the stated
 * uncertainties of both ranks, are counted.
 */
#ifndef SCHEDULER_TRACE_CLOCK_H
#define SCHEDULER_TRACE_CLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the next measurement of a rank. STATUS_ERR_FORMAT, recorded but not logged, where it is a third, does
 * not come after the first, or makes the clock stand still or run backwards. */
enum status trace_clock_add(struct trace_rank *rank, const struct trace_clock *clock,
                            int64_t moved_ns);

/* A time of the rank's file in rank 0's; itself where the rank has rank 0's clock. */
int64_t trace_clock_map(const struct trace_rank *rank, int64_t ns);

/* Maps all spans of the run; once. */
void trace_clock_align(struct trace_run *run);

struct trace_causality {
    size_t ranks;       /* whose clock is not rank 0's; 0: nothing was looked at */
    size_t messages;    /* with such a rank at one end */
    size_t violations;  /* of them that come before they were sent, beyond the uncertainty */
    int64_t worst_ns;   /* by so much; of the one that is furthest beyond it, and its ends: */
    int64_t allowed_ns; /* the uncertainty of both together */
    int32_t sender;     /* global ranks */
    int32_t receiver;
};

/* Of a run that is aligned: what its spans say of its messages. */
enum status trace_clock_check(const struct trace_run *run, struct trace_causality *causality_out);

/* In text: how far each such clock is ahead of rank 0's, its uncertainty, what it gains, and whether the
 * messages agree. Nothing where all ranks have one clock. STATUS_ERR_IO where `out` cannot be written. */
enum status trace_clock_print(const struct trace_run *run, FILE *out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_CLOCK_H */

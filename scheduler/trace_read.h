/*
 * trace_read -- the traces of a run, read back from its rank files.
 *
 * A file whose end is missing (a run that was killed) reads up to its last whole line. Everything
 * is kept in memory, 72 bytes a span.
 */
#ifndef SCHEDULER_TRACE_READ_H
#define SCHEDULER_TRACE_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/span.h"
#include "base/status.h"
#include "scheduler/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRACE_CLOCKS 2 /* measurements of a rank's clock: at the start and at the end */

struct trace_rank {
    struct span *
        spans; /* owns; by begin, then the longer first; times from the trace's 0, of rank 0's clock */
    size_t count;                    /* of spans */
    size_t capacity;                 /* private to trace_read.c */
    struct trace_memory_size *sizes; /* owns; of its chunks */
    size_t size_count;
    uint64_t dropped;      /* spans that the size limit kept out of the file */
    int32_t rank;          /* global rank */
    int32_t pipeline_rank; /* its stage */
    int32_t replica;       /* which pipeline it belongs to: its place among the ranks of a stage */
    bool complete;         /* the file has its end */
    struct trace_clock clocks[TRACE_CLOCKS]; /* in the order of time (trace_clock.h) */
    int32_t clock_count;                     /* 0: it has rank 0's clock */
    int64_t clock_moved_ns; /* added to its clock to make the file's times of, origin apart */
};

struct trace_run {
    char *name;               /* owns; as the user gave it */
    struct trace_rank *ranks; /* owns; by rank */
    size_t count;
};

/* Reads RUN/trace/rank-N.json for every N there is. STATUS_ERR_REFUSED where there is no such
 * folder or no trace in it, naming what would make one; STATUS_ERR_FORMAT with file and line where
 * a line other than the last is malformed, names another rank than the file, or names it again. A file too
 * short to name its rank is left out with a warning, and so is a last line that was cut off. */
enum status trace_read(const char *run_dir, struct trace_run *run_out);

/* First and last training step that every rank has whole: a file that lost its end may lack part
 * of its last step, which does not count then. STATUS_ERR_REFUSED where there is none. */
enum status trace_run_steps(const struct trace_run *run, int32_t *first_out, int32_t *last_out);

/* Forgets every span outside of steps first … last. */
void trace_run_keep(struct trace_run *run, int32_t first, int32_t last);

/* Stages of the pipeline: the largest pipeline rank + 1. */
int32_t trace_run_stages(const struct trace_run *run);

/* For a run that was built and not read: sorts the spans and numbers the replicas. */
void trace_run_arrange(struct trace_run *run);

/* Appends a copy of `span`. */
enum status trace_rank_append(struct trace_rank *rank, const struct span *span);

/* Safe on a zeroed run, and twice. */
void trace_run_release(struct trace_run *run);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_READ_H */

/*
 * timeline_parts -- what the files of the timeline share; private to them.
 */
#ifndef SCHEDULER_TIMELINE_PARTS_H
#define SCHEDULER_TIMELINE_PARTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "scheduler/timeline.h"
#include "scheduler/trace_chunk.h"
#include "scheduler/trace_message.h"
#include "scheduler/trace_path.h"
#include "scheduler/trace_steps.h"
#include "scheduler/trace_summary.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pixels. */
#define WIDTH       1200
#define LEFT        92
#define RIGHT       76
#define TOP         126
#define BAR_HEIGHT  34
#define SYNC_HEIGHT 5
#define ROW_HEIGHT  62
#define FOOT        58

#define PATH_EDGE 1.6

/* kind, colour, label in the legend; the order of the legend. */
#define COLOUR_TABLE(X)                  \
    X(F, "#7db2f5", "forward")           \
    X(I, "#fdb863", "input gradient")    \
    X(W, "#86cf8f", "weight gradient")   \
    X(B, "#f4938a", "backward")          \
    X(OPTIMIZER, "#b99cf0", "optimizer") \
    X(STEP, "#bcc6d2", "step")           \
    X(REDUCE, "#6fcfc3", "reduction")    \
    X(GATHER, "#9fd8e8", "gathering")    \
    X(SYNC, "#ee7fb0", "embedding sync") \
    X(DATA, "#d2b48c", "data")           \
    X(EVALUATE, "#dccbe8", "evaluation") \
    X(WAIT, "#eceff3", "wait")

struct timeline {
    const struct trace_run *run;
    struct trace_summary summary;   /* owns */
    struct trace_message *messages; /* owns */
    struct trace_chunks *chunks;    /* owns; by rank, as in the run */
    size_t message_count;
    struct trace_path path;   /* owns */
    struct trace_step *steps; /* owns */
    size_t step_count;
    const struct timeline_look *look;
    FILE *file; /* borrows */
    int32_t rows;
    int32_t microbatches;
    int32_t most_chunks; /* of a rank */
    int32_t first_step;
    int32_t last_step;
    int64_t begin_ns; /* left edge of the window */
    int64_t end_ns;   /* right edge */
    double scale;     /* pixels a nanosecond */
};

/* Only the first of several replicas and shards. */
bool timeline_draws(const struct trace_rank *rank);

/* What becomes a rectangle. Evaluation's own actions are hidden under its one bar. */
bool timeline_is_bar(const struct span *span);

/* Whether the picture begins and ends with it. */
bool timeline_opens_window(const struct span *span);

double timeline_x(const struct timeline *timeline, int64_t ns);
double timeline_y(const struct trace_rank *rank);

/* Height of the plot, from the first row's bars to the axis. */
double timeline_plot_height(const struct timeline *timeline);

/* What lies inside of the frame: bars, steps, messages, the critical path. */
void timeline_draw_inside(const struct timeline *timeline);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TIMELINE_PARTS_H */

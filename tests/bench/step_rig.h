/*
 * step_rig -- runs whole training steps of a shape in processes of its own, and brings back what
 * rank 0 saw of them.
 */
#ifndef TESTS_BENCH_STEP_RIG_H
#define TESTS_BENCH_STEP_RIG_H

#include <stdbool.h>

#define STEPS_MOST 64

struct step_shape {
    long pp;
    long tp;
    long dp;
    long virtual_stages;
    long threads;
    long microbatches;
    long micro_batch_size;
    long seq_len;
    long layers;
    long hidden;
    long heads;
    long vocab;
    long steps;
    const char *split; /* layers_per_stage */
    const char *sync;  /* embedding_sync */
    const char *dtype; /* NULL: fp32; likewise none */
    const char *recompute;
    const char *device; /* NULL: cpu */
    double dropout;
    bool trace; /* every step is written to a trace, as with trace.enabled */
};

/* What the processes of one measurement share. */
struct step_result {
    double seconds[STEPS_MOST];
    double bubble[STEPS_MOST];
    double ideal[STEPS_MOST];
    double sync_transfer[STEPS_MOST];
    double sync_exposed[STEPS_MOST];
    double flops_per_token;
    int failed;
};

/* Ranks of the shape. */
long step_world(const struct step_shape *shape);

/* Of the steps after the first, which warms up caches and touches the moments. */
double step_median(const double *values, long count);

/* Fills *result; 0 on success. */
int step_measure(const struct step_shape *shape, struct step_result *result);

#endif /* TESTS_BENCH_STEP_RIG_H */

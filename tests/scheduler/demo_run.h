/*
 * demo_run -- the trace that a run would leave, made from a simulated plan.
 *
 * It lets the readers, writers and pictures of traces be tested before and without an engine.
 */
#ifndef TESTS_SCHEDULER_DEMO_RUN_H
#define TESTS_SCHEDULER_DEMO_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/plan.h"
#include "scheduler/trace_read.h"

struct demo_config {
    struct plan_shape shape;
    int32_t first_step;
    int32_t steps;
    double forward_ms; /* of each chunk */
    double input_ms;
    double weight_ms;
    double message_ms;
    double slope;     /* virtual stage s costs 1 + slope · s times as much */
    double update_ms; /* STEP and the optimizer after it, each; 0 for neither */
    double sync_ms;   /* of the head's SYNC, where the plan has one */
    double reduce_ms; /* of each REDUCE, where the plan has them; behind the last compute action */
};

/* Fails the test where the plan cannot be made. The caller releases *run_out. */
void demo_run_make(const struct demo_config *config, const char *name, struct trace_run *run_out);

/* Writes it as the ranks would: RUN/trace/rank-N.json. The folders must be there. */
void demo_run_write(const struct trace_run *run, const char *run_dir);

#endif /* TESTS_SCHEDULER_DEMO_RUN_H */

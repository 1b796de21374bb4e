/*
 * pipeline_run -- a plan run by one executor a rank, each on a thread, over fake workers.
 *
 * The program must be linked with --wrap for malloc, calloc and realloc: what executor_run()
 * allocates is counted.
 */
#ifndef TESTS_SCHEDULER_PIPELINE_RUN_H
#define TESTS_SCHEDULER_PIPELINE_RUN_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "tests/scheduler/fake_worker.h"

#define PIPELINE_SECONDS 60.0 /* deadline of every wait */

/* What one run came to. */
struct outcome {
    enum fake_verdict verdict;
    struct fake_place place;
    enum status statuses[FAKE_MOST_STAGES];
    char messages[FAKE_MOST_STAGES][STATUS_MESSAGE_BYTES];
    int64_t allocations; /* of all ranks, from executor_init() to the return of executor_run() */
};

/* Fails the test where the run cannot be made; what comes of it is in *outcome. */
void pipeline_run(const struct plan *plan, struct fake_config config, struct outcome *outcome);

#endif /* TESTS_SCHEDULER_PIPELINE_RUN_H */

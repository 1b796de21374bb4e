/*
 * executor -- the scheduler inside the process: walks the lowered line of its rank.
 *
 * Issues the actions in order and waits for nothing in between; before STEP it waits for
 * everything that STEP depends on, and at the end of the line for every ticket (SENDs included),
 * so that a run that returns has nothing in flight. No allocation after executor_init().
 *
 * Knows nothing of models, buffers or wires (scheduler/worker.h does the work).
 */
#ifndef SCHEDULER_EXECUTOR_H
#define SCHEDULER_EXECUTOR_H

#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/worker.h"

#ifdef __cplusplus
extern "C" {
#endif

struct executor {
    worker_ticket *tickets; /* owns; one an action of the longest line */
    int32_t capacity;       /* actions that it has tickets for */
    int32_t progress;       /* index of the action being issued; atomic, see executor_progress() */
};

/* For lines of up to `capacity` actions. */
enum status executor_init(struct executor *executor, int32_t capacity);

/* Runs one step. A failure of the worker is passed on after a message that names the action
 * ("action 17 (2B3): ..."); what is in flight then is the worker's to drop. `deadline_ns` bounds
 * the waits at STEP and at the end. */
enum status executor_run(struct executor *executor, const struct plan_line *line,
                         struct worker *worker, const struct cancel *cancel, int64_t deadline_ns);

/* The index of the action that is being issued, for a heartbeat on another thread. */
int32_t executor_progress(const struct executor *executor);

/* Safe on a zeroed executor, and twice. */
void executor_release(struct executor *executor);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_EXECUTOR_H */

/*
 * worker -- the one door where an action becomes work.
 *
 * The executor walks a plan and knows nothing of models, devices or wires; whoever does the work
 * fills this table. Work is asynchronous: an issued action is named by a ticket and may end later
 * and in any order that its dependencies allow. A CPU worker does its compute inside issue() and
 * waits there for what it depends on; a CUDA worker enqueues behind events. The executor's tests
 * use a worker that ends late and in random order.
 */
#ifndef SCHEDULER_WORKER_H
#define SCHEDULER_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "scheduler/action.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Names an issued action until the run ends; the worker chooses the numbers. */
typedef int64_t worker_ticket;

struct worker;

struct worker_ops {
    /* Starts `action`, which stands at `index` of its line, after the `count` tickets of
     * `dependencies`, all issued before. May block until they have ended (with the worker's own
     * deadline, retrying pending sends meanwhile). On an error the action has not started and no
     * ticket exists. */
    enum status (*issue)(struct worker *worker, const struct action *action, int32_t index,
                         const worker_ticket *dependencies, int32_t count,
                         worker_ticket *ticket_out);

    /* Whether the ticket has ended; never blocks, retries pending sends. The failure of an action
     * that has ended badly is returned here and from wait. */
    enum status (*done)(struct worker *worker, worker_ticket ticket, bool *done_out);

    /* Blocks until the ticket has ended, `deadline_ns` has passed (STATUS_ERR_TIMEOUT) or the job
     * is cancelled. */
    enum status (*wait)(struct worker *worker, worker_ticket ticket, int64_t deadline_ns);
};

/* First member of whoever implements it. */
struct worker {
    const struct worker_ops *ops; /* borrows a const table */
};

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_WORKER_H */

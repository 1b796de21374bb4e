/*
 * cancel -- the flag that frees every wait of a process.
 *
 * One cancel a process, set by the control thread when the job is aborted and by whoever gives up
 * first. Everything that waits takes the cancel and a deadline, and asks cancel_check() at least
 * every CANCEL_POLL_NS, so that no wait outlives the job.
 */
#ifndef BASE_CANCEL_H
#define BASE_CANCEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The longest that a wait may sleep before it looks at the flag again. */
#define CANCEL_POLL_NS ((int64_t)50000000)

/* Zero is "go on". Open so that it can live inside its owner; use the functions below only. */
struct cancel {
    int requested; /* private to cancel.c, atomic */
};

/* May be called from any thread and from a signal handler; safe to repeat. */
void cancel_request(struct cancel *cancel);

bool cancel_requested(const struct cancel *cancel);

/* STATUS_OK while a wait may go on, STATUS_ERR_CANCELLED after cancel_request(),
 * STATUS_ERR_TIMEOUT past `deadline_ns`. Records and logs nothing: the waiter knows what it was
 * waiting for and says so. `cancel` may be NULL. */
enum status cancel_check(const struct cancel *cancel, int64_t deadline_ns);

#ifdef __cplusplus
}
#endif

#endif /* BASE_CANCEL_H */

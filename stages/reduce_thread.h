/*
 * reduce_thread -- a thread that does one thing to one item after another, in the order in which
 * they come, while the thread that gives them goes on.
 *
 * It sums gradients over the replicas while the rest of the backward runs (stages/buckets.h), and
 * knows nothing of them: an item is a number. After a failure no further item is begun, and every
 * wait says why. An item that blocks ends by what it is given (a deadline, comm_abort()); closing
 * waits for it.
 *
 * Threads: one gives, waits and closes. What it writes before it gives an item, the item sees; what
 * the item writes, is seen after the wait.
 */
#ifndef STAGES_REDUCE_THREAD_H
#define STAGES_REDUCE_THREAD_H

#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct reduce_thread;

typedef enum status (*reduce_thread_fn)(void *context, int32_t item);

/* Up to `capacity` items may be given and not ended. `context` is borrowed until close. */
enum status reduce_thread_open(reduce_thread_fn run, void *context, int32_t capacity,
                               struct reduce_thread **thread_out);

/* Returns how many have been given, this one counted; never blocks. */
int64_t reduce_thread_give(struct reduce_thread *thread, int32_t item);

/* Blocks until the first `count` items have ended, at most `most_ns`: then STATUS_IN_PROGRESS. The first failure
 * of any item, with its message, is that of the wait. */
enum status reduce_thread_wait(struct reduce_thread *thread, int64_t count, int64_t most_ns);

/* Ends after the item that is begun; nulls the caller's pointer; NULL is fine. */
void reduce_thread_close(struct reduce_thread **thread);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_REDUCE_THREAD_H */

/*
 * trace_message -- the messages of a run: which SEND belongs to which RECV.
 *
 * Both ends name a message by step, direction, the two pipeline ranks and its place in the lane,
 * within one pipeline. Where several plans run in a step (evaluation), equal names pair up in the
 * order of time.
 */
#ifndef SCHEDULER_TRACE_MESSAGE_H
#define SCHEDULER_TRACE_MESSAGE_H

#include <stddef.h>

#include "base/span.h"
#include "base/status.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trace_message {
    const struct trace_rank *sender;   /* borrows from the run */
    const struct trace_rank *receiver; /* borrows from the run */
    const struct span *send;           /* of sender->spans */
    const struct span *recv;           /* of receiver->spans */
};

/* Only messages with both ends in the run. The caller owns *messages_out (free), which borrows
 * from `run` until that changes; NULL where there are none. */
enum status trace_messages_find(const struct trace_run *run, struct trace_message **messages_out,
                                size_t *count_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_MESSAGE_H */

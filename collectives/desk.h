/*
 * desk -- where a process's main thread and its control thread hand things to each other.
 *
 * The main thread lays a round on the desk and waits for the answer; the control thread takes
 * orders, and lays answers, the welcome and the end of the job. One mutex, one condition; an
 * eventfd wakes the control thread out of its poll. Progress and signals do not take the mutex.
 *
 * Threads: as each function says. No other lock is taken while the desk's is held.
 */
#ifndef COLLECTIVES_DESK_H
#define COLLECTIVES_DESK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "collectives/control.h"
#include "collectives/control_message.h"

#ifdef __cplusplus
extern "C" {
#endif

enum desk_round {
    DESK_NO_ROUND,
    DESK_ROUND_LAID,    /* by the main thread, not yet sent */
    DESK_ROUND_SENT,    /* the answer is awaited */
    DESK_ROUND_ANSWERED /* and not yet taken */
};

struct desk {
    int wake_fd; /* set at init */
    struct cancel *cancel;

    pthread_mutex_t mutex; /* protects what follows, down to the atomics */
    pthread_cond_t changed;
    uint64_t job;  /* known once welcomed */
    void *welcome; /* owns; NULL for rank 0, which has its own */
    size_t welcome_bytes;
    enum desk_round round;
    const void *part; /* the round's message; borrows from the main thread until it is sent */
    size_t part_bytes;
    int32_t key_count; /* of the round that is laid */
    int32_t number_capacity;
    double *numbers; /* (number_capacity) of the answer; owns */
    struct control_outcome outcome;
    bool aborted;
    bool abort_is_own; /* this process raised it; the coordinator is to be told */
    struct control_cause cause;
    uint64_t clock_asked;    /* measurements that the main thread has asked for, */
    uint64_t clock_answered; /* and the last of them that is there: */
    struct control_clock clock;
    bool welcomed;
    bool closing; /* the main thread wants to leave */
    bool ended;   /* the control thread does nothing more */

    /* atomics: written by the main thread or a signal handler, read by the control thread */
    int64_t step;
    int64_t place; /* phase and action */
    int64_t waits;
    int64_t changed_ns; /* when one of the above last changed */
    int64_t in_round;
    int32_t stop_signal;
};

enum status desk_init(struct desk *desk, struct cancel *cancel);

/* After both threads have left it. Safe on a zeroed desk. */
void desk_release(struct desk *desk);

/* Any thread, and a signal handler. */
void desk_wake(struct desk *desk);

/* Any thread: ends the job here, with the first cause that comes, and frees all waits. `own`: it
 * was raised by this process. Returns whether this cause was the first. */
bool desk_abort(struct desk *desk, const struct control_cause *cause, bool own);

/* Any thread. */
bool desk_is_aborted(struct desk *desk);

/* ---- main thread ---- */

/* Blocks until the welcome is here, the job is aborted or `cancel` is set; the control thread sees
 * to the deadline. */
enum status desk_await_welcome(struct desk *desk);

/* Whether a round may be laid: no, where an earlier one timed out. */
bool desk_is_free(struct desk *desk);

/* Lays a round of `key_count` keys on a free desk. Borrows `part` until the answer is there or the
 * control thread has ended. */
enum status desk_lay_round(struct desk *desk, const void *part, size_t part_bytes,
                           int32_t key_count);

/* Blocks until the answer is here; numbers (key_count) are copied. STATUS_ERR_TIMEOUT leaves the
 * round on its way. An abort is answered as in control_reduce(). */
enum status desk_await_answer(struct desk *desk, int64_t deadline_ns,
                              struct control_outcome *outcome, double *numbers);

/* Asks for the clock beside rank 0's, and blocks until it is there. A measurement that an earlier call gave
 * up is given up by the control thread, too. */
enum status desk_await_clock(struct desk *desk, int64_t deadline_ns, struct control_clock *clock);

/* The status of an aborted job for whoever waited in vain, with the cause as message. */
enum status desk_tell_abort(struct desk *desk);

void desk_set_progress(struct desk *desk, const struct control_progress *progress);
void desk_set_waits(struct desk *desk, bool waits);
void desk_set_stop(struct desk *desk, int32_t signal_number);

/* Asks the control thread to leave. */
void desk_leave(struct desk *desk);

/* ---- control thread ---- */

struct desk_orders {
    const void *part; /* a round to be sent, or NULL */
    size_t part_bytes;
    uint64_t clock_asked; /* the last measurement that was asked for; 0: none was */
    bool aborted;
    bool abort_is_own;
    struct control_cause cause;
    bool closing;
    int32_t stop_signal;
    struct control_beat beat;
};

/* Takes what the main thread has laid, and empties the eventfd. */
void desk_take_orders(struct desk *desk, struct desk_orders *orders);

/* The round that was taken is sent. */
void desk_mark_sent(struct desk *desk);

/* Copies the welcome; `bytes` NULL where the process has it. */
enum status desk_lay_welcome(struct desk *desk, uint64_t job, const void *bytes, size_t size);

/* The measurement that was asked for as number `asked`; nobody waits for one of another number. */
void desk_lay_clock(struct desk *desk, uint64_t asked, const struct control_clock *clock);

/* Reads an ANSWER into the desk. */
enum status desk_lay_answer(struct desk *desk, const struct message_view *view);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_DESK_H */

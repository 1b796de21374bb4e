/*
 * control -- the control plane: who is there, what the plan is, how a step ends, who failed.
 *
 * One ROUTER with rank 0, a DEALER in every process (rank 0 included), each served by a control
 * thread that only moves messages and reduces numbers by key; what the numbers mean lives in
 * mixedprec and stages. Messages are msgpack maps, bounded and checked before they are unpacked
 * (collectives/message.h). On one host the sockets are ipc in the job directory.
 *
 *     HELLO → WELCOME     version, world, configuration, kernel variant agree; rank 0's welcome
 *                         bytes (the plan) reach everybody
 *     BARRIER, STEP       a round: every rank gives values by key, all get the reduced ones
 *     HEARTBEAT           every heartbeat_s, with the main thread's progress and its device's, both ways
 *     CLOCK               how far apart the clocks of two hosts are, for the trace: ping-pongs with rank 0
 *     STOP                a signal somewhere: the answer of the next STEP tells all ranks
 *     ABORT               a failure somewhere: every rank is cancelled, with the cause
 *     BYE                 a rank leaves in order
 *
 * Threads: control_progress(), control_abort() and control_stop() from any thread (stop also
 * from a signal handler); everything else from the one main thread.
 */
#ifndef COLLECTIVES_CONTROL_H
#define COLLECTIVES_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct control;

#define CONTROL_VERSION            2
#define CONTROL_TEXT_BYTES         512 /* of a cause, a note, a name; longer text is cut */
#define CONTROL_WELCOME_MOST_BYTES (1 << 20)
#define CONTROL_KEYS_MOST          4096

/* What a rank's main thread is doing, as it goes out with its heartbeats. */
struct control_progress {
    int64_t step;   /* attempt, from 1; 0 before the first */
    int32_t phase;  /* meaning is the caller's: start, step, evaluation, end, ... */
    int32_t action; /* index in the rank's line, -1 where none */
    bool waits;     /* for another rank: while somebody works, a stall is not this rank's fault */
    /* Where main threads run ahead of a device, as control_config's look() says it at each beat. */
    int32_t device; /* index of the action that the device has ended last, -1 where none */
    bool inside;    /* it is inside another */
    bool stands;    /* the main thread waits for it, and it for another rank: as `waits` */
};

#define CONTROL_NO_DEVICE (-2) /* control_progress.device: nobody has said anything of one */

/* Fills in what is said of the device. Called on the control thread of every rank. */
typedef void (*control_look_fn)(void *context, struct control_progress *progress);

/* Writes what `progress` of `rank` means, for a message: "stage 1, step 5, action 17 (1F3)". Called
 * on the control thread of rank 0. */
typedef void (*control_describe_fn)(void *context, int32_t rank,
                                    const struct control_progress *progress, char *text,
                                    size_t text_bytes);

/* Called once on the control thread when the job is aborted, after `cancel` is set: frees waits
 * that `cancel` cannot reach (comm_abort). */
typedef void (*control_abort_fn)(void *context);

/* Reads the clock of this rank, as clock_now_ns(). Called on its control thread. */
typedef int64_t (*control_now_fn)(void *context);

struct control_config {
    const char *job_directory; /* borrows until control_open() returns */
    int32_t rank;
    int32_t world;
    uint64_t config_hash; /* must be the same on every rank */
    const char *variant;  /* kernel variant and libraries that decide bits: must be the same */
    const char *device;   /* "cpu", for messages */
    const void *welcome;  /* rank 0: borrows until control_close(); others NULL */
    size_t welcome_bytes;
    double heartbeat_s;
    double dead_after_s;  /* no beat for so long: the rank is dead */
    double stall_after_s; /* no progress for so long: it hangs; < 0: never; at the start, see
                             control_stall_after() */
    double start_timeout_s;
    struct cancel *cancel;        /* borrows until control_close(); set when the job is aborted */
    control_describe_fn describe; /* may be NULL */
    control_abort_fn on_abort;    /* may be NULL */
    control_look_fn look;         /* NULL: there is no device to look at */
    control_now_fn
        now; /* NULL: clock_now_ns(). For tests: a clock of this rank's own, as on another host */
    void *context; /* for all four */
};

/* Starts the control thread and blocks until every rank has said HELLO and WELCOME is here. A
 * rank that disagrees is refused by name, field and both values (STATUS_ERR_REFUSED on every
 * rank); ranks that do not come within start_timeout_s are named (STATUS_ERR_TIMEOUT). A world of
 * one makes no socket and no thread, and all below works. */
enum status control_open(const struct control_config *config, struct control **control_out);

/* Lends rank 0's welcome bytes, until control_close(). */
const void *control_welcome(const struct control *control, size_t *bytes_out);

enum control_op {
    CONTROL_SUM,  /* of doubles, in ascending rank order */
    CONTROL_MAX,  /* of doubles; NaN counts as the largest */
    CONTROL_ONCE, /* exactly one rank gives it; more or none is STATUS_ERR_FORMAT by name */
    CONTROL_SAME  /* 64 bits that every rank that gives it gives alike, else refused by name */
};

struct control_key {
    const char *name; /* for messages */
    enum control_op op;
};

struct control_value {
    int32_t key;   /* index in the keys of the round */
    double number; /* SUM, MAX, ONCE */
    uint64_t bits; /* SAME */
};

/* One round of all ranks. `keys` is the same on every rank. */
struct control_round {
    const char *name; /* "BARRIER", "STEP"; rounds of different ranks must have the same */
    uint64_t number;  /* and the same number: the attempt */
    const struct control_key *keys;
    int32_t key_count;                  /* <= CONTROL_KEYS_MOST */
    const struct control_value *values; /* what this rank gives */
    int32_t value_count;
    const char *note; /* why this rank's values are bad ("" where they are not) */
};

struct control_answer {
    double
        *numbers; /* caller's, key_count of them: reduced values; 0 where nobody gave a SUM/MAX */
    int32_t stop_signal; /* 0, or the signal after which all ranks end, this step being the last */
    int32_t note_rank;   /* -1, or the lowest rank with a note */
    char note[CONTROL_TEXT_BYTES];
};

/* Blocks until all ranks have given their values. After an abort STATUS_ERR_PEER (or
 * STATUS_ERR_CANCELLED where this rank caused it), with the cause as message. No allocation for a
 * round whose shape was seen before. */
enum status control_reduce(struct control *control, const struct control_round *round,
                           struct control_answer *answer, int64_t deadline_ns);

/* A rank's clock beside rank 0's. */
struct control_clock {
    bool differs;           /* false: both read the same clock, and the rest is 0 */
    int64_t at_ns;          /* of this rank's clock: when it was measured */
    int64_t offset_ns;      /* rank 0's clock is so far ahead of this rank's; below 0: behind */
    int64_t uncertainty_ns; /* and no more than this away from that */
};

#define CONTROL_CLOCK_ROUNDS 32 /* ping-pongs of a measurement; the quickest counts */

/* Measures the clock of this rank, between steps. Nothing is sent where rank 0 reads the same clock, which
 * all processes of a host do. Blocks until it is done; STATUS_ERR_TIMEOUT at the deadline, after an abort as
 * control_reduce(). */
enum status control_measure_clock(struct control *control, int64_t deadline_ns,
                                  struct control_clock *clock_out);

/* Tells the control thread what the main thread does; a store, no syscall. */
void control_progress(struct control *control, const struct control_progress *progress);

/* The same place, but from now on the main thread stands still there for another rank, or no longer
 * does; a store, no syscall. NULL is fine: then nobody asks. */
void control_waits(struct control *control, bool waits);

/* From now on a rank hangs when its progress has stood still for `seconds` (< 0: never). Only rank
 * 0's word counts, for all ranks; a store, no syscall. */
void control_stall_after(struct control *control, double seconds);

/* Ends the job everywhere: `cause` reaches every rank with this rank's number. The first cause
 * wins. Does not block longer than it takes to hand over. */
void control_abort(struct control *control, const char *cause);

/* Asks all ranks to end after the running step; async-signal-safe. */
void control_stop(struct control *control, int32_t signal_number);

/* After an abort: lends the cause and says whose it is; "" and -1 before. */
const char *control_abort_cause(const struct control *control, int32_t *rank_out);

/* Says BYE (or, after an abort, nothing), waits briefly until the coordinator has heard it, ends
 * the thread. Rank 0 waits until all have said BYE or are lost. Nulls the caller's pointer; NULL
 * is fine. STATUS_ERR_PEER where a rank died at the very end, by name. */
enum status control_close(struct control **control);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_CONTROL_H */

/*
 * control_message -- the words of the control plane: which fields each message has.
 *
 * Every message carries the version, its kind, the job's number and the rank that it comes from (0
 * from the coordinator). The job's number is drawn by rank 0 at its start and told with its first
 * answer, so that nothing of an earlier job of the same name is ever taken for today's; a HELLO
 * does not know it yet and carries 0. Putting and getting of one message stand side by side.
 *
 * The getters answer STATUS_ERR_FORMAT, noted and not logged, with peer, field and value.
 */
#ifndef COLLECTIVES_CONTROL_MESSAGE_H
#define COLLECTIVES_CONTROL_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "collectives/control.h"
#include "collectives/message.h"
#include "collectives/round.h"

#ifdef __cplusplus
extern "C" {
#endif

/* name, word */
#define CONTROL_KIND_TABLE(X)                                                 \
    X(HELLO, "HELLO")         /* a rank, once: who it is                   */ \
    X(HEARTBEAT, "HEARTBEAT") /* both ways                                 */ \
    X(WELCOME, "WELCOME")     /* the coordinator, once: all are here       */ \
    X(ROUND, "ROUND")         /* a rank gives its values                   */ \
    X(ANSWER, "ANSWER")       /* the coordinator: what they have become    */ \
    X(CLOCK, "CLOCK")         /* both ways: a ping of a rank, its answer   */ \
    X(STOP, "STOP")           /* a rank was asked to end after this step   */ \
    X(ABORT, "ABORT")         /* both ways: it is over, and why            */ \
    X(BYE, "BYE")             /* a rank leaves; the coordinator has heard  */

enum control_kind {
#define X(name, word) CONTROL_KIND_##name,
    CONTROL_KIND_TABLE(X)
#undef X
};

struct control_head {
    enum control_kind kind;
    int64_t version;
    uint64_t job;
    int32_t rank;
};

void control_head_put(struct message_pack *pack, enum control_kind kind, uint64_t job,
                      int32_t rank);
/* `rank` may be any of an int32 here; whether it is one of the job is for the caller to ask. */
enum status control_head_get(const struct message_view *view, struct control_head *head);

#define CONTROL_HOST_BYTES    65
#define CONTROL_VARIANT_BYTES 128

/* Where a process is. */
struct control_place {
    char host[CONTROL_HOST_BYTES];
    int64_t pid;
    uint64_t space; /* process_space(): within it the pid means something */
    uint64_t clock; /* control_clock_name(): with the same name, times mean the same */
};

/* This process. */
void control_place_here(struct control_place *place);

/* In HELLO, and in the coordinator's HEARTBEAT and WELCOME. */
void control_place_put(struct message_pack *pack, const struct control_place *place);
enum status control_place_get(const struct message_view *view, struct control_place *place);

struct control_hello {
    int32_t world;
    uint64_t config_hash;
    char variant[CONTROL_VARIANT_BYTES];
    char device[CONTROL_VARIANT_BYTES];
    struct control_place place;
};

void control_hello_put(struct message_pack *pack, const struct control_hello *hello);
enum status control_hello_get(const struct message_view *view, struct control_hello *hello);

/* A rank's HEARTBEAT. */
struct control_beat {
    struct control_progress progress;
    int64_t still_ns; /* since progress last changed */
    bool in_round;    /* the main thread is inside control_reduce() */
};

void control_beat_put(struct message_pack *pack, const struct control_beat *beat);
enum status control_beat_get(const struct message_view *view, struct control_beat *beat);

/* Why a job is over; in ABORT. */
struct control_cause {
    enum status status; /* what a start that it ends answers */
    int32_t rank;       /* whose fault it is, -1 where nobody's */
    char text[CONTROL_TEXT_BYTES];
};

void control_cause_put(struct message_pack *pack, const struct control_cause *cause);
enum status control_cause_get(const struct message_view *view, struct control_cause *cause);

/* ROUND. `keys`, `numbers`, `bits` are the values by column; `names` (key_count) is given by rank 0
 * alone and NULL elsewhere. */
struct control_part {
    const struct control_round *round;
    uint64_t shape;
    const uint64_t *keys;
    const double *numbers;
    const uint64_t *bits;
    const uint64_t *ops; /* (key_count), with `names` */
    const char *const *names;
};

void control_part_put(struct message_pack *pack, const struct control_part *part);
/* Reads into the slot of `rank` and, where the message has them, the keys of `round`. On a failure
 * the slot is not given. */
enum status control_part_get(const struct message_view *view, int32_t rank, struct round *round);

/* ANSWER */
struct control_outcome {
    char name[ROUND_NAME_BYTES];
    uint64_t number;
    enum status status; /* of the round */
    char text[CONTROL_TEXT_BYTES];
    int32_t stop_signal;
    int32_t note_rank;
    char note[CONTROL_TEXT_BYTES];
};

void control_outcome_put(struct message_pack *pack, const struct control_outcome *outcome,
                         const double *numbers, int32_t key_count);
/* `numbers` gets exactly `key_count` values where the round went well. */
enum status control_outcome_get(const struct message_view *view, struct control_outcome *outcome,
                                double *numbers, int32_t key_count);

/* CLOCK; a rank's ping has the number alone. */
struct control_pong {
    uint64_t number;  /* of the ping that is answered */
    int64_t heard_ns; /* of rank 0's clock: when the ping came, */
    int64_t said_ns;  /* and when the answer left; not before */
};

void control_ping_put(struct message_pack *pack, uint64_t number);
enum status control_ping_get(const struct message_view *view, uint64_t *number_out);
void control_pong_put(struct message_pack *pack, const struct control_pong *pong);
enum status control_pong_get(const struct message_view *view, struct control_pong *pong);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_CONTROL_MESSAGE_H */

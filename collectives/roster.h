/*
 * roster -- who belongs to the job, when each was last heard of, and what it was doing.
 *
 * The coordinator writes down what messages and the process watch tell; roster_judge() says which
 * rank is dead or hangs, and in which words. Judging is a function of the times that were written
 * down and of `now`, so it can be tested without waiting.
 *
 * A rank is dead when it was silent for too long, or a moment after its process has ended (what it
 * still said may be on its way). A rank hangs when its progress stands still for too long while it
 * is neither in a round nor waiting for another rank, as its last beat told; one that waits for its own device waits as that
 * does. Where everybody waits for each other, the one
 * that stands still longest is named.
 *
 * Pure: no messages, no clock, no threads.
 */
#ifndef COLLECTIVES_ROSTER_H
#define COLLECTIVES_ROSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "collectives/control.h"
#include "collectives/control_message.h"
#include "collectives/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

enum member_state {
    MEMBER_ABSENT,
    MEMBER_PRESENT, /* has said HELLO and was accepted */
    MEMBER_LEFT,    /* has said BYE */
    MEMBER_LOST,    /* dead */
    MEMBER_TOLD     /* came when all was over and was told so */
};

struct member {
    enum member_state state;
    struct wire_name route; /* of its HELLO; nobody else speaks for it */
    struct control_place place;
    int64_t heard_ns; /* when it was last heard of */
    int64_t ended_ns; /* when its process was seen to end; 0: it lives */
    bool cut;         /* its connection is gone */
    bool in_round;
    int64_t beat_ns;    /* when its progress was last told */
    int64_t changed_ns; /* since when it stands still, as told then */
    struct control_progress progress;
};

struct roster {
    int32_t world;
    struct member *members; /* (world) owns */
};

enum status roster_init(struct roster *roster, int32_t world);

/* Safe on a zeroed roster, and twice. */
void roster_release(struct roster *roster);

int32_t roster_count(const struct roster *roster, enum member_state state);

/* "rank 3 (host a, process 12)", or "rank 3" where it never came. */
void roster_name(const struct roster *roster, int32_t rank, char *text, size_t text_bytes);

/* "ranks 2, 5" of those that are absent, cut with "…" where they are many. */
void roster_name_absent(const struct roster *roster, char *text, size_t text_bytes);

/* Whether letters of a present `member` come from `from`. */
bool roster_is_route(const struct member *member, const struct wire_name *from);

/* The member whose letters come from `from`, or NULL. */
const struct member *roster_find_route(const struct roster *roster, const struct wire_name *from);

struct roster_limits {
    int64_t dead_after_ns;
    int64_t stall_after_ns;       /* CLOCK_NEVER: no rank hangs */
    int64_t last_words_ns;        /* from a process's end to the verdict */
    control_describe_fn describe; /* may be NULL */
    void *context;
};

/* Whether a rank is dead or hangs at `now_ns`; then `cause` says which and why. A dead one becomes
 * MEMBER_LOST. */
bool roster_judge(struct roster *roster, const struct roster_limits *limits, int64_t now_ns,
                  struct control_cause *cause);

/* The judge itself was away until `now_ns` (stopped, or the host slept): nobody could be heard, so
 * all times start again. */
void roster_forgive(struct roster *roster, int64_t now_ns);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_ROSTER_H */

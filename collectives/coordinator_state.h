/*
 * coordinator_state -- what the two halves of the coordinator share: coordinator.c, which sends,
 * watches and judges, and coordinator_letter.c, which does what a letter asks for.
 *
 * Private to them.
 */
#ifndef COLLECTIVES_COORDINATOR_STATE_H
#define COLLECTIVES_COORDINATOR_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "collectives/control.h"
#include "collectives/control_message.h"
#include "collectives/coordinator.h"
#include "collectives/message.h"
#include "collectives/process_watch.h"
#include "collectives/roster.h"
#include "collectives/round.h"
#include "collectives/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

struct coordinator {
    const struct control_config *config;
    struct wire *wire;
    struct message_pack *pack;
    struct message_view *view;
    struct roster roster;
    struct round *round;
    struct process_watch *watch;
    struct control_place place; /* of this process */
    struct roster_limits limits;
    uint64_t job; /* drawn; never 0 */
    int64_t start_deadline_ns;
    int64_t beat_ns;      /* between beats */
    int64_t next_beat_ns; /* when all are told that rank 0 lives */
    int64_t served_ns;    /* when this last ran; 0: never */
    bool started;         /* all were welcomed */
    bool aborted;
    int64_t aborted_ns;
    struct control_cause cause;
    int32_t stop_signal;
    uint64_t strangers; /* letters dropped since the last warning */
    int64_t next_warning_ns;
};

/* Starts a message from the coordinator in its pack. */
void coordinator_begin(struct coordinator *coordinator, enum control_kind kind);

/* Sends the pack to one route, or to all that are present. Who cannot be reached is cut off where
 * it is a `member` (NULL for others); a full queue belongs to a member that does not read, which
 * its silence will tell. */
enum status coordinator_send(struct coordinator *coordinator, const struct wire_name *route,
                             struct member *member);
enum status coordinator_send_to_all(struct coordinator *coordinator);

/* Ends the job: the first cause wins, and all that are here are told. */
enum status coordinator_abort(struct coordinator *coordinator, const struct control_cause *cause);

/* Does what one letter asks for. A letter that does not hold together ends the job where it comes
 * from a member, and is dropped where it comes from a stranger. */
enum status coordinator_on_letter(struct coordinator *coordinator, const struct wire_letter *letter,
                                  int64_t now_ns);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_COORDINATOR_STATE_H */

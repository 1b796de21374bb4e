/*
 * control_link_state -- what the parts of the control thread share: control_link.c, which carries and
 * judges, and control_link_clock.c, which measures the clock.
 *
 * Private to them.
 */
#ifndef COLLECTIVES_CONTROL_LINK_STATE_H
#define COLLECTIVES_CONTROL_LINK_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "collectives/control.h"
#include "collectives/control_clock.h"
#include "collectives/control_link.h"
#include "collectives/control_message.h"
#include "collectives/coordinator.h"
#include "collectives/desk.h"
#include "collectives/message.h"
#include "collectives/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

struct control_link {
    const struct control_config *config;
    struct desk *desk;
    pthread_t thread;
    char path[WIRE_PATH_MOST + 1];
    char endpoint[WIRE_ENDPOINT_BYTES];
    struct wire_hub *hub;
    struct wire *wire;
    struct message_pack *pack;
    struct message_view *view;
    struct coordinator *coordinator; /* rank 0 only */
    struct control_place host;       /* rank 0's process, as it told; pid 0 before */
    struct control_place here;
    struct clock_probe probe;
    uint64_t probe_asked; /* the desk's number of the measurement that it is for */
    uint64_t job;         /* 0 before the coordinator's first word */
    int64_t opened_ns;
    int64_t heard_ns; /* from the coordinator */
    int64_t turned_ns;
    int64_t next_beat_ns;
    int32_t device; /* what the device was at, as last seen, and when that changed */
    bool inside;
    int64_t device_ns;
    int64_t farewell_ns; /* when BYE, or an own ABORT, was said; 0 before */
    bool stop_sent;
    bool farewell_heard;
    bool abort_called; /* config->on_abort */
};

/* Starts a message to the coordinator in the pack; sends the pack: STATUS_IN_PROGRESS where the queue is
 * full: the coordinator does not read. */
void control_link_begin(struct control_link *link, enum control_kind kind);
enum status control_link_send(struct control_link *link);

/* The clock that is measured: this rank's. */
int64_t control_link_now(const struct control_link *link);

/* The main thread asks for a measurement; there is none to be made within one clock. */
void control_link_ask_clock(struct control_link *link, uint64_t asked);

/* Sends the next ping of a measurement, where there is one to be sent. */
enum status control_link_ping(struct control_link *link);

/* The letter in the view, which came at `come_ns` of the clock that is measured, answers a ping. */
enum status control_link_hear_clock(struct control_link *link, int64_t come_ns);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_CONTROL_LINK_STATE_H */

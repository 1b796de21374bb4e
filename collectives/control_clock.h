/*
 * control_clock -- how far rank 0's clock is ahead of another host's, by ping-pongs.
 *
 *     rank r     t0 ─────────────→ t1     rank 0
 *                t3 ←───────────── t2
 *
 * Both ways take some time, nobody knows which takes more, so rank 0's clock is ahead by
 * ((t1 - t0) + (t2 - t3)) / 2, give or take half of (t3 - t0) - (t2 - t1). Of several ping-pongs the one of
 * the least round trip says most. One is under way at a time; each has a number, and an answer to another
 * than the last is not taken.
 *
 * Pure but for control_clock_name(): no messages, no clock, no threads.
 */
#ifndef COLLECTIVES_CONTROL_CLOCK_H
#define COLLECTIVES_CONTROL_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/control.h"
#include "collectives/control_message.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Names the clock that this process reads: what CLOCK_MONOTONIC of two processes with the same name says is
 * the same. Made of the kernel's boot and the time namespace; 0 where the kernel does not tell. */
uint64_t control_clock_name(void);

/* Whether processes at the two places read the same clock; by the name of their hosts where the clock of one
 * has no name. */
bool control_clock_is_shared(const struct control_place *left, const struct control_place *right);

/* One measurement while it is made. */
struct clock_probe {
    int32_t left;    /* ping-pongs to be made, the one under way included; 0: it is not under way */
    bool awaited;    /* a ping is under way */
    uint64_t number; /* of the last ping */
    int64_t sent_ns; /* t0 of it */
    int64_t least_ns; /* round trip of the best so far; -1: there is none */
    struct control_clock best;
};

/* Starts a measurement of `rounds` (>= 1) ping-pongs; one that was under way is given up. */
void clock_probe_begin(struct clock_probe *probe, int32_t rounds);

/* A ping leaves at `now_ns`; its number is in probe->number then. Only where none is under way. */
void clock_probe_send(struct clock_probe *probe, int64_t now_ns);

/* The answer has come at `now_ns`; true where it was the last: probe->best is the measurement. */
bool clock_probe_take(struct clock_probe *probe, const struct control_pong *pong, int64_t now_ns);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_CONTROL_CLOCK_H */

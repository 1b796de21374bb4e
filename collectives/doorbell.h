/*
 * doorbell -- how a process that waits for shared memory to change sleeps, and is woken.
 *
 * One doorbell a rank, in its own segment: everybody who changes something for that rank rings it.
 * Threads of that rank sleep on it, as a rule one. It works between processes as between threads, because the futex is on
 * the memory and not on the address.
 *
 * The order that loses no wake-up: who changes stores first and rings then; who waits arms first,
 * looks then at what it waits for, and only then sleeps with the value that arming gave. A ring
 * that comes after the arming makes the sleep return at once. A ring costs a system call only
 * where somebody has armed.
 */
#ifndef COLLECTIVES_DOORBELL_H
#define COLLECTIVES_DOORBELL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DOORBELL_BYTES 128 /* two cache lines, which processors fetch as a pair */

/* Zero is ready to use. Lives in shared memory; private to doorbell.c, atomic. */
struct doorbell {
    uint32_t rings;
    uint32_t armed; /* how many threads are */
    uint8_t padding[DOORBELL_BYTES - 2 * sizeof(uint32_t)];
};

/* Any thread of any process that has mapped it. Never blocks. */
void doorbell_ring(struct doorbell *bell);

/* Says that the caller is about to sleep; returns what to give to doorbell_sleep(). */
uint32_t doorbell_arm(struct doorbell *bell);

/* Sleeps until a ring after the arming that gave `seen`, at most `most_ns`; may return early. */
void doorbell_sleep(struct doorbell *bell, uint32_t seen, int64_t most_ns);

/* Ends what doorbell_arm() began, whether the caller has slept or not. */
void doorbell_disarm(struct doorbell *bell);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_DOORBELL_H */

#include "collectives/doorbell.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* The ringer writes `rings` and then reads `armed`; the sleeper writes `armed` and then reads
 * `rings`. All four are sequentially consistent, so at least one of them sees the other. */

void doorbell_ring(struct doorbell *bell)
{
    (void)__atomic_fetch_add(&bell->rings, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&bell->armed, __ATOMIC_SEQ_CST) != 0) {
        /* FUTEX_WAKE and not its private form: the sleeper is another process. */
        (void)syscall(SYS_futex, &bell->rings, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

uint32_t doorbell_arm(struct doorbell *bell)
{
    (void)__atomic_fetch_add(&bell->armed, 1, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&bell->rings, __ATOMIC_SEQ_CST);
}

void doorbell_sleep(struct doorbell *bell, uint32_t seen, int64_t most_ns)
{
    struct timespec most = {.tv_sec = most_ns / CLOCK_SECOND, .tv_nsec = most_ns % CLOCK_SECOND};

    if (most_ns > 0) {
        /* Woken, rung already, timed out, interrupted: the caller looks again in any case. */
        (void)syscall(SYS_futex, &bell->rings, FUTEX_WAIT, seen, &most, NULL, 0);
    }
}

void doorbell_disarm(struct doorbell *bell)
{
    (void)__atomic_fetch_sub(&bell->armed, 1, __ATOMIC_RELAXED);
}

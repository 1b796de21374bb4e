#include "base/clock.h"

#include <errno.h>
#include <time.h>

int64_t clock_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * CLOCK_SECOND + now.tv_nsec;
}

int64_t clock_deadline(double seconds)
{
    return seconds < 0.0 ? CLOCK_NEVER : clock_now_ns() + (int64_t)(seconds * 1e9);
}

void clock_sleep_ns(int64_t ns)
{
    struct timespec left = {.tv_sec = ns / CLOCK_SECOND, .tv_nsec = ns % CLOCK_SECOND};

    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

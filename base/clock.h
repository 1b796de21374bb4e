/*
 * clock -- time as weir counts it: nanoseconds of CLOCK_MONOTONIC, which all processes of one
 * host share. A deadline is a point of this clock; CLOCK_NEVER is a deadline that never comes.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CLOCK_NEVER  INT64_MAX
#define CLOCK_MS     ((int64_t)1000000)
#define CLOCK_SECOND ((int64_t)1000000000)

int64_t clock_now_ns(void);

/* Now plus `seconds`; CLOCK_NEVER where seconds is negative. */
int64_t clock_deadline(double seconds);

/* Sleeps at least `ns`; restarts after signals. Not for the step path. */
void clock_sleep_ns(int64_t ns);

#ifdef __cplusplus
}
#endif

#endif /* BASE_CLOCK_H */

/*
 * wd_schedule -- the weight decay of update k = 1, 2, ...
 *
 * With x = k / updates, and 1 from update `updates` on:
 *
 *   constant  start
 *   linear    start + (end - start)·x
 *   cosine    start + (end - start)·(1 + cos π(1-x))/2
 *
 * As with the learning rate, the first update has left the start by one part. Knows nothing of steps:
 * a skipped step is no update.
 */
#ifndef MIXEDPREC_WD_SCHEDULE_H
#define MIXEDPREC_WD_SCHEDULE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum wd_kind {
    WD_CONSTANT,
    WD_LINEAR,
    WD_COSINE
};

struct wd_schedule {
    enum wd_kind kind;
    double start; /* >= 0, as `end`; either may be the larger */
    double end;
    int64_t updates; /* >= 1, constant apart */
};

double wd_schedule_at(const struct wd_schedule *schedule, int64_t update);

#ifdef __cplusplus
}
#endif

#endif /* MIXEDPREC_WD_SCHEDULE_H */

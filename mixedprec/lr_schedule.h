/*
 * lr_schedule -- the learning rate of update k = 1, 2, ...
 *
 * Warm-up: k <= warmup: max·k/warmup, so that the first update already moves. Then, with
 * x = (k-warmup)/(decay-warmup) in [0,1]:
 *
 *   constant      max
 *   linear        max + (min-max)·x
 *   cosine        min + (max-min)·(1 + cos πx)/2      (Loshchilov and Hutter, 2017)
 *   wsd           max, then linear to min over the last `wsd_decay` updates before `decay`
 *   inverse_sqrt  max·sqrt(max(warmup,1))/sqrt(k), not below min
 *
 * and min from `decay` on (constant apart). Knows nothing of steps: a skipped step is no update.
 */
#ifndef MIXEDPREC_LR_SCHEDULE_H
#define MIXEDPREC_LR_SCHEDULE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum lr_kind {
    LR_CONSTANT,
    LR_LINEAR,
    LR_COSINE,
    LR_WSD,
    LR_INVERSE_SQRT
};

struct lr_schedule {
    enum lr_kind kind;
    double max;
    double min;
    int64_t warmup_updates; /* >= 0, < decay_updates */
    int64_t decay_updates;
    int64_t wsd_decay_updates; /* LR_WSD: in [1, decay - warmup] */
};

double lr_schedule_at(const struct lr_schedule *schedule, int64_t update);

#ifdef __cplusplus
}
#endif

#endif /* MIXEDPREC_LR_SCHEDULE_H */

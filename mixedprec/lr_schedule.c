#include "mixedprec/lr_schedule.h"

#include <math.h>

static double decayed(const struct lr_schedule *schedule, int64_t update, double x)
{
    static const double pi = 3.14159265358979323846;
    double range = schedule->max - schedule->min;
    int64_t into_decay = 0;
    double rate = 0.0;

    switch (schedule->kind) {
    case LR_CONSTANT:
        return schedule->max;
    case LR_LINEAR:
        return schedule->max - range * x;
    case LR_COSINE:
        return schedule->min + range * (1.0 + cos(pi * x)) / 2.0;
    case LR_WSD:
        into_decay = update - (schedule->decay_updates - schedule->wsd_decay_updates);
        return into_decay <= 0 ? schedule->max
                               : schedule->max - range * (double)into_decay /
                                                     (double)schedule->wsd_decay_updates;
    case LR_INVERSE_SQRT:
        rate = schedule->max *
               sqrt(schedule->warmup_updates > 1 ? (double)schedule->warmup_updates : 1.0) /
               sqrt((double)update);
        return rate > schedule->min ? rate : schedule->min;
    }
    return schedule->max;
}

double lr_schedule_at(const struct lr_schedule *schedule, int64_t update)
{
    if (update <= schedule->warmup_updates) {
        return schedule->max * (double)update / (double)schedule->warmup_updates;
    }
    if (update >= schedule->decay_updates && schedule->kind != LR_CONSTANT &&
        schedule->kind != LR_INVERSE_SQRT) {
        return schedule->min;
    }
    return decayed(schedule, update,
                   (double)(update - schedule->warmup_updates) /
                       (double)(schedule->decay_updates - schedule->warmup_updates));
}

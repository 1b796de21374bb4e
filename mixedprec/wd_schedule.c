#include "mixedprec/wd_schedule.h"

#include <math.h>

double wd_schedule_at(const struct wd_schedule *schedule, int64_t update)
{
    static const double pi = 3.14159265358979323846;
    double range = schedule->end - schedule->start;
    double x = 0.0;

    if (schedule->kind == WD_CONSTANT) {
        return schedule->start;
    }
    if (update >= schedule->updates) {
        return schedule->end;
    }
    x = (double)update / (double)schedule->updates;
    return schedule->kind == WD_LINEAR
               ? schedule->start + range * x
               : schedule->start + range * (1.0 + cos(pi * (1.0 - x))) / 2.0;
}

/*
 * plan_chart -- a simulated plan as a picture in characters, a row a rank, time to the right.
 *
 * `F3` is the forward of micro-batch 3, as wide as it takes; dots are idle time. Of several chunks a
 * rank, every second one has small letters. Where the width
 * does not hold the numbers, the letters stand alone.
 */
#ifndef SCHEDULER_PLAN_CHART_H
#define SCHEDULER_PLAN_CHART_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Draws at most `columns` characters a row, `prefix` before each. Draws nothing, and says so in
 * *drawn_out, where an action would be narrower than a character. STATUS_ERR_IO where `out`
 * fails. */
enum status plan_chart_print(const struct plan *lowered, const struct simulation *simulation,
                             const char *prefix, int32_t columns, FILE *out, bool *drawn_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PLAN_CHART_H */

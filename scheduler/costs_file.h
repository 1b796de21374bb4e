/*
 * costs_file -- costs.json: a table of costs as a file, which is not trusted when it is read.
 *
 *   {"version": 1, "unit": "ms",
 *    "plan": {"schedule": "1f1b", "pp": 2, "virtual_stages": 1, "num_microbatches": 8},
 *    "stages": [{"F": STAT, "I": STAT, "W": STAT, "latency_F": STAT, "latency_B": STAT}, …],
 *    "busy": [ms, …], "message": {"bytes": n, "a": ms, "b": ms a byte},
 *    "send": STAT, "action": STAT, …}
 *
 * with a STAT {"count": n, "median": ms, "p90": ms, "mean": ms, "typical": ms}. Unknown keys are left
 * alone; `a` and `b` of "message" are for people and follow from the rest.
 */
#ifndef SCHEDULER_COSTS_FILE_H
#define SCHEDULER_COSTS_FILE_H

#include "base/status.h"
#include "scheduler/costs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Replaces `path` in one move. */
enum status costs_file_write(const struct costs *costs, const char *path);

/* STATUS_ERR_REFUSED with file, key, value and what is right, where something is missing, negative,
 * not a number or too many. The caller releases *costs_out. */
enum status costs_file_read(const char *path, struct costs *costs_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_COSTS_FILE_H */

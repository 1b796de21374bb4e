/*
 * plan_traffic -- what every rank of a job moves in a step, for `weir plan`.
 */
#ifndef STAGES_COMMANDS_PLAN_TRAFFIC_H
#define STAGES_COMMANDS_PLAN_TRAFFIC_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "stages/config.h"
#include "stages/traffic.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plan_traffic {
    struct traffic *ranks; /* owns; by rank of the job */
    int32_t count;
};

/* Empty where `config` is NULL: without a model nothing has a size. plan_traffic_release() the
 * result. */
enum status plan_traffic_make(const struct config *config, const struct plan *lowered,
                              struct plan_traffic *traffic_out);

/* A table of the kinds that move: the rank that moves most of each, and the sum over the job; each
 * line with `prefix` before it. */
void plan_traffic_print(const struct plan_traffic *traffic, const char *prefix, FILE *out);

/* Safe on a zeroed one, and twice. */
void plan_traffic_release(struct plan_traffic *traffic);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_COMMANDS_PLAN_TRAFFIC_H */

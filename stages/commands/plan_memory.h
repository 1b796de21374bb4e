/*
 * plan_memory -- what every rank of a job will hold, for `weir plan`.
 *
 * The numbers are those that the ranks themselves plan with (engine_measure_rank()), as if all of
 * them ran on this host. What ZeRO would save is measured likewise, with another
 * parallel.zero_stage, and not worked out by a formula.
 */
#ifndef STAGES_COMMANDS_PLAN_MEMORY_H
#define STAGES_COMMANDS_PLAN_MEMORY_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "stages/config.h"
#include "stages/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLAN_MEMORY_ZERO_STAGES 4

struct plan_memory {
    const struct config *config; /* borrows until release */
    struct memory_table *ranks;  /* owns; by rank of the job */
    int32_t count;
    int32_t largest; /* the first rank with the largest total */
    /* Of that rank, by parallel.zero_stage: bytes of state a parameter, with the layers that are whole for a
     * while (memory_shared_each()). */
    double state_each[PLAN_MEMORY_ZERO_STAGES];
};

/* Empty where `config` is NULL: without a model nothing has a size. plan_memory_release() the
 * result. */
enum status plan_memory_make(const struct config *config, const struct plan *lowered,
                             struct plan_memory *memory_out);

/* A table with a line a stage, its largest rank, and a column a kind; the limit; and bytes of state
 * a parameter. Each line with `prefix` before it. */
void plan_memory_print(const struct plan_memory *memory, const char *prefix, FILE *out);

/* STATUS_ERR_REFUSED where a rank needs more than train.memory_limit. */
enum status plan_memory_check(const struct plan_memory *memory);

/* Safe on a zeroed one, and twice. */
void plan_memory_release(struct plan_memory *memory);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_COMMANDS_PLAN_MEMORY_H */

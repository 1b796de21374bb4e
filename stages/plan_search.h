/*
 * plan_search -- parallel.schedule auto: the plan of a job, found from its configuration.
 *
 * Costs are FLOPs (stages/model/flops.h), and a message costs as many FLOPs as go by while its bytes
 * do, a fixed number a byte. The search (scheduler/search.h) has one seed and as many evaluations as the
 * size of the plan allows, so that all ranks find the same plan, each for itself; like any other plan,
 * its lines are compared before the first step. With an even number of chunks it looks at both a
 * loop and a zigzag.
 *
 * Memory: with train.memory_limit a rank holds no more than that, buffers and bytes as the engine plans
 * them. Workspaces grow with the threads: where hosts have unlike cores or numbers of ranks, give
 * train.threads, or ranks may find different plans and refuse them. Without, no more than 2·pp - 1 micro-batches' stashes, which is what the named schedule
 * that holds most has and does not grow with num_microbatches.
 */
#ifndef STAGES_PLAN_SEARCH_H
#define STAGES_PLAN_SEARCH_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/search.h"
#include "stages/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The result's plan is compute-only. `local_ranks` share the cores, which decides what workspaces
 * take. STATUS_ERR_REFUSED where nothing fits, with the rank, its need and its limit in bytes, or where
 * the plan is too large for a search. The caller releases *result_out. */
enum status plan_search_run(const struct config *config, int32_t local_ranks,
                            struct search_result *result_out);

/* "zb_v, changed; 2.3 % above what no order can beat, by FLOPs (12000 orders timed)", cut; `costs`
 * says what was counted, "by FLOPs". */
void plan_search_print(const struct search_result *result, const char *costs, char *text,
                       size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_PLAN_SEARCH_H */

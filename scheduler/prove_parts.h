/*
 * prove_parts -- the lines of a plan lowered and proved, each while it is in the cache; in a large plan by
 * several threads, a run of ranks each.
 *
 * A line needs nothing of the others but the buffers that lowering counts beforehand; what lines have
 * to agree on, the proofs of the parts bring together (proof_join()). So the verdict and the lines are
 * the same whatever the number of parts.
 */
#ifndef SCHEDULER_PROVE_PARTS_H
#define SCHEDULER_PROVE_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/line_source.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PROVE_PARTS_MOST 4

/* How many are worth their threads: 1 for plans that take less than about a second, and where lines cannot
 * be made one by one. */
int32_t prove_parts_for(const struct line_source *lines);

/* Lowers and proves the lines of all ranks, or where `keep` is one and not ACTION_NONE, keeps that one
 * alone, with the buffers of all. *proved_out false: one line, or all together, are not proved, which
 * is no refusal yet; *lowered_out is NULL then. More than one part only with a `keep` and with lines that are
 * generated. The caller owns *lowered_out. STATUS_ERR_REFUSED as plan_lower(). */
enum status prove_parts(struct line_source *lines, int32_t parts, int32_t keep,
                        struct plan **lowered_out, bool *proved_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PROVE_PARTS_H */

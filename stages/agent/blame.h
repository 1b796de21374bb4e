/*
 * blame -- which of several failed processes failed first: pure judgement over what was seen.
 *
 * When one rank fails, its peers notice and fail too, often within a millisecond, and may even be
 * gone before it. So the order of deaths alone misleads. A process that a signal killed did not
 * fail because of a peer: it is the cause, where it died before or within BLAME_SETTLE_NS of the
 * first death (a later crash is one on the way out). Among the others, the one whose first error
 * line came first noticed first; where that does not decide, the one that died first.
 */
#ifndef STAGES_AGENT_BLAME_H
#define STAGES_AGENT_BLAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stages/agent/process.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BLAME_SETTLE_NS ((int64_t)1000000000)

struct blame_case {
    bool failed; /* ended badly, and not because it was told to */
    struct process_end end;
    int64_t ended_ns;
    int32_t order;          /* of its death among all, from 0 */
    int64_t first_error_ns; /* INT64_MAX: said nothing */
};

/* The index of the first failure, -1 where nothing failed. */
int32_t blame_first(const struct blame_case *cases, int32_t count);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_AGENT_BLAME_H */

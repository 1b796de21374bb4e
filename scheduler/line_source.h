/*
 * line_source -- the lines of a compute-only plan one after the other.
 *
 * A plan of a thousand ranks is a gigabyte before it is lowered. Most schedules give any line by
 * itself, so that none has to be there but the one that is looked at.
 */
#ifndef SCHEDULER_LINE_SOURCE_H
#define SCHEDULER_LINE_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct line_source {
    const struct plan
        *plan; /* borrows, or is `owned`: shape and placement, and the line asked for last */
    struct plan *owned; /* owns; may be NULL */
    bool generates;     /* lines of `owned` one by one */
    int32_t at;         /* rank of the line that is there then */
};

/* The lines of `plan`, which are all there: borrows it, or takes it. */
struct line_source line_source_of(const struct plan *plan);
struct line_source line_source_whole(struct plan *plan);

/* Lines that are generated when they are asked for. `plan` is empty and was asked plan_generates_lines();
 * takes it, line_source_release(). */
struct line_source line_source_made(struct plan *plan);

/* Makes the line of `rank` be there: source->plan->lines[rank]. The one before is gone. */
enum status line_source_get(struct line_source *source, int32_t rank);

/* Safe on a zeroed source, and twice. */
void line_source_release(struct line_source *source);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_LINE_SOURCE_H */

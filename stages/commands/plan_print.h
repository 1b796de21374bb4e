/*
 * plan_print -- a plan and its numbers on stdout, in the forms of `weir plan --format`.
 */
#ifndef STAGES_COMMANDS_PLAN_PRINT_H
#define STAGES_COMMANDS_PLAN_PRINT_H

#include <stdio.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/plan_report.h"
#include "stages/commands/plan_costs.h"
#include "stages/commands/plan_memory.h"
#include "stages/commands/plan_traffic.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything that is printed; costs are a rank and micro-batch, `message` a message. */
struct plan_print {
    const struct plan *compute; /* borrows; as generated */
    const struct plan *lowered; /* borrows */
    const struct plan_report *report;
    const struct plan_traffic *traffic;     /* borrows; empty without a model */
    const struct plan_memory *memory;       /* borrows; likewise */
    const struct plan_costs_request *costs; /* borrows; what was asked for */
    const char *found; /* borrows; how a search found it; "" or NULL: it was named */
    double F;
    double I;
    double W;
    double message;
};

/* One JSON object and a newline. STATUS_ERR_IO where `out` fails. */
enum status plan_print_json(const struct plan_print *print, FILE *out);

/* Numbers for people, each line with `prefix` before it. */
enum status plan_print_summary(const struct plan_print *print, const char *prefix, FILE *out);

/* The timeline of the plan as simulated, as scheduler/timeline draws runs. STATUS_ERR_REFUSED where it
 * takes no time. */
enum status plan_print_svg(const struct plan_print *print, FILE *out);

/* The lines of compute actions, the summary, and a picture where `columns` are enough for one.
 * All but the first are comments of the plan's text form, so that the output reads back as a
 * plan. */
enum status plan_print_text(const struct plan_print *print, int columns, FILE *out);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_COMMANDS_PLAN_PRINT_H */

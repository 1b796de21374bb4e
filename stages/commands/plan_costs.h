/*
 * plan_costs -- what `weir plan --costs` and `--what-if` ask for, and what a step would take.
 */
#ifndef STAGES_COMMANDS_PLAN_COSTS_H
#define STAGES_COMMANDS_PLAN_COSTS_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"
#include "scheduler/costs.h"
#include "scheduler/plan.h"
#include "scheduler/simulate.h"
#include "scheduler/what_if.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLAN_COSTS_MOST_WHAT_IFS 16

/* As asked for; zero is nothing yet. */
struct plan_costs_request {
    double uniform[4];  /* F, I, W, c a rank and micro-batch */
    const char *path;   /* borrows; of measured costs, or NULL */
    struct costs costs; /* owns; of `path` */
    struct what_if what_ifs[PLAN_COSTS_MOST_WHAT_IFS];
    int what_if_count;
};

/* "F,I,W[,c]", a file of costs, or the directory of a traced run. STATUS_ERR_REFUSED with the text. */
enum status plan_costs_parse(struct plan_costs_request *request, const char *text);

/* One more what-if, or several with ";" between them. */
enum status plan_costs_add_what_if(struct plan_costs_request *request, const char *text);

/* The costs of `plan` with the what-ifs. The caller releases them (plan_costs_release()). */
enum status plan_costs_make(const struct plan_costs_request *request, const struct plan *plan,
                            struct plan_costs *costs_out);

/* Means a rank and micro-batch, for people: F, I, W and the latency of a message. */
void plan_costs_means(const struct plan *plan, const struct plan_costs *costs, double means_out[4]);

/* Where costs were measured or something is asked: the predicted step, beside the measured one where the
 * run had this very plan, busy by rank, and before -> after of the what-ifs. `simulation` is that of the
 * costs with the what-ifs. Nothing otherwise. */
enum status plan_costs_print(const struct plan_costs_request *request, const struct plan *plan,
                             const struct simulation *simulation, const char *prefix, FILE *out);

void plan_costs_request_release(struct plan_costs_request *request);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_COMMANDS_PLAN_COSTS_H */

#include "stages/commands/plan_costs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/schedule.h"
#include "stages/calibrate.h"

#define WHAT_IF_BYTES     96
#define MOST_LISTED_RANKS 16

static bool looks_like_numbers(const char *text)
{
    return strspn(text, "0123456789.,eE+-") == strlen(text) || strncmp(text, "nan", 3) == 0 ||
           strncmp(text, "inf", 3) == 0;
}

static enum status parse_numbers(const char *text, double costs[4])
{
    double values[4] = {0.0, 0.0, 0.0, 0.0};
    const char *at = text;
    int count = 0;

    while (count < 4) {
        char *end = NULL;

        values[count] = strtod(at, &end);
        if (end == at || !isfinite(values[count]) || values[count] < 0.0) {
            break;
        }
        count++;
        at = end;
        if (*at != ',') {
            break;
        }
        at++;
    }
    if (count < 3 || *at != '\0' || at[-1] == ',' || values[0] + values[1] + values[2] <= 0.0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir plan: --costs is \"%s\", expected F,I,W or F,I,W,c (numbers of at "
                           "least 0, not all 0), a file of costs, or the directory of a traced run",
                           text);
    }
    memcpy(costs, values, sizeof(values));
    return STATUS_OK;
}

enum status plan_costs_parse(struct plan_costs_request *request, const char *text)
{
    request->path = NULL;
    costs_release(&request->costs);
    if (looks_like_numbers(text) || strchr(text, ',') != NULL) {
        return parse_numbers(text, request->uniform);
    }
    TRY(calibrate_load(text, &request->costs));
    request->path = text;
    return STATUS_OK;
}

enum status plan_costs_add_what_if(struct plan_costs_request *request, const char *text)
{
    const char *at = text;

    while (true) {
        size_t bytes = strcspn(at, ";");
        char one[WHAT_IF_BYTES];

        if (request->what_if_count == PLAN_COSTS_MOST_WHAT_IFS || bytes >= sizeof(one)) {
            return status_fail(
                STATUS_ERR_REFUSED,
                "weir plan: --what-if \"%s\": expected at most %d, each shorter than "
                "%zu characters",
                text, PLAN_COSTS_MOST_WHAT_IFS, sizeof(one));
        }
        memcpy(one, at, bytes);
        one[bytes] = '\0';
        TRY(what_if_parse(one, &request->what_ifs[request->what_if_count]));
        request->what_if_count++;
        if (at[bytes] == '\0') {
            return STATUS_OK;
        }
        at += bytes + 1;
    }
}

static enum status make_without(const struct plan_costs_request *request, const struct plan *plan,
                                struct plan_costs *costs_out)
{
    const double *c = request->uniform;

    return request->path != NULL ? costs_model(&request->costs, plan, costs_out)
                                 : plan_costs_uniform(plan, c[0], c[1], c[2], c[3], costs_out);
}

/* *rest is what a step takes beside its plan, with the what-ifs. */
static enum status make(const struct plan_costs_request *request, const struct plan *plan,
                        struct plan_costs *costs_out, double *rest)
{
    struct plan_costs base;
    struct plan_costs changed;
    enum status status;

    *rest = request->path != NULL ? request->costs.rest.typical : 0.0;
    TRY(make_without(request, plan, &base));
    status = plan_costs_copy(&base, plan_stages(plan), &changed);
    plan_costs_release(&base);
    if (status < 0) {
        return status;
    }
    for (int i = 0; i < request->what_if_count && status >= 0; i++) {
        status = what_if_apply(&request->what_ifs[i], plan, &changed, rest);
    }
    if (status < 0) {
        plan_costs_release(&changed);
        return status;
    }
    *costs_out = changed;
    return STATUS_OK;
}

enum status plan_costs_make(const struct plan_costs_request *request, const struct plan *plan,
                            struct plan_costs *costs_out)
{
    double rest;

    return make(request, plan, costs_out, &rest);
}

void plan_costs_means(const struct plan *plan, const struct plan_costs *costs, double means_out[4])
{
    int32_t stages = plan_stages(plan);
    double share = (double)plan_slices(plan) / plan->shape.ranks; /* costs are those of a slice */
    double latency = 0.0;
    int32_t links = 0;

    memset(means_out, 0, 4 * sizeof(*means_out));
    for (int32_t s = 0; s < stages; s++) {
        means_out[0] += costs->F[s] * share;
        means_out[1] += costs->I[s] * share;
        means_out[2] += costs->W[s] * share;
        for (int d = 0; d < LANE_DIRECTIONS; d++) {
            if (plan_source(plan, s, (enum lane_direction)d) != ACTION_NONE) {
                latency +=
                    costs->message_into[d] != NULL ? costs->message_into[d][s] : costs->message;
                links++;
            }
        }
    }
    means_out[3] = links > 0 ? latency / links : costs->message;
}

/* What a rank computes in a step at these costs. */
static double busy_of(const struct plan *plan, const struct plan_costs *costs, int32_t rank)
{
    double busy = 0.0;

    for (int32_t s = 0; s < plan_stages(plan); s++) {
        if (plan->rank_of[s] == rank) {
            busy += plan->shape.microbatches * (costs->F[s] + costs->I[s] + costs->W[s]);
        }
    }
    return busy;
}

static double percent(double value, double of)
{
    return of > 0.0 ? 100.0 * (value / of - 1.0) : 0.0;
}

static void print_busy(const struct plan_costs_request *request, const struct plan *plan,
                       const struct plan_costs *costs, const char *prefix, FILE *out)
{
    (void)fprintf(out, "%sbusy        by rank, predicted (measured), ms a step:", prefix);
    for (int32_t rank = 0; rank < plan->shape.ranks && rank < MOST_LISTED_RANKS; rank++) {
        double busy = busy_of(plan, costs, rank);
        double measured = request->costs.busy[rank];

        (void)fprintf(out, " %.1f (%.1f, %+.1f %%)", busy, measured, percent(busy, measured));
    }
    (void)fprintf(out, "%s\n", plan->shape.ranks > MOST_LISTED_RANKS ? " ..." : "");
}

static void print_measured(const struct plan_costs_request *request, const struct plan *plan,
                           const struct plan_costs *costs, double step, const char *prefix,
                           FILE *out)
{
    const struct costs *run = &request->costs;
    const struct costs_plan *own = &run->plan;

    if (run->step.count == 0) {
        return;
    }
    if (!costs_are_of(run, plan)) {
        (void)fprintf(out,
                      "%smeasured    %.1f ms a step of that run, which was %s, pp %d, %d "
                      "micro-batches, %d chunk%s a rank\n",
                      prefix, run->step.median, own->schedule, own->ranks, own->microbatches,
                      own->virtual_stages, own->virtual_stages == 1 ? "" : "s");
        return;
    }
    (void)fprintf(
        out, "%smeasured    %.1f ms a step, median of %lld; predicted is %+.1f %% of that\n",
        prefix, run->step.median, (long long)run->step.count, percent(step, run->step.median));
    print_busy(request, plan, costs, prefix, out);
}

static enum status makespan_of(const struct plan *plan, const struct plan_costs *costs,
                               double *makespan_out)
{
    struct simulation simulation;

    TRY(plan_simulate(plan, costs, &simulation));
    *makespan_out = simulation.makespan;
    simulation_release(&simulation);
    return STATUS_OK;
}

/* One after the other, so that each line says what it adds. */
static enum status print_what_ifs(const struct plan_costs_request *request, const struct plan *plan,
                                  double before, const char *prefix, FILE *out)
{
    const char *unit = request->path != NULL ? " ms" : "";
    struct plan_costs_request part = *request;

    for (int i = 0; i < request->what_if_count; i++) {
        struct plan_costs costs;
        char text[WHAT_IF_BYTES];
        double after = 0.0;
        double rest = 0.0;
        enum status status;

        part.what_if_count = i + 1;
        TRY(make(&part, plan, &costs, &rest));
        status = makespan_of(plan, &costs, &after);
        plan_costs_release(&costs);
        if (status < 0) {
            return status;
        }
        after += rest;
        what_if_print(&request->what_ifs[i], text, sizeof(text));
        (void)fprintf(out, "%swhat if     %s: %.6g -> %.6g%s a step, %+.1f %%\n", prefix, text,
                      before, after, unit, percent(after, before));
        before = after;
    }
    return STATUS_OK;
}

enum status plan_costs_print(const struct plan_costs_request *request, const struct plan *plan,
                             const struct simulation *simulation, const char *prefix, FILE *out)
{
    struct plan_costs_request plain = *request;
    struct plan_costs costs;
    double makespan = simulation->makespan;
    double rest = 0.0;
    enum status status = STATUS_OK;

    if (request->path == NULL && request->what_if_count == 0) {
        return STATUS_OK;
    }
    plain.what_if_count = 0;
    TRY(make(&plain, plan, &costs, &rest));
    if (request->what_if_count > 0) {
        status = makespan_of(plan, &costs, &makespan);
    }
    if (status >= 0 && request->path != NULL) {
        (void)fprintf(out, "%spredicted   %.1f ms a step: the plan %.1f, beside it %.1f\n", prefix,
                      makespan + rest, makespan, rest);
        print_measured(request, plan, &costs, makespan + rest, prefix, out);
    }
    plan_costs_release(&costs);
    return status < 0 ? status : print_what_ifs(request, plan, makespan + rest, prefix, out);
}

void plan_costs_request_release(struct plan_costs_request *request)
{
    costs_release(&request->costs);
}

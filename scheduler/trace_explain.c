#include "scheduler/trace_explain.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/bubble_formula.h"
#include "scheduler/simulate.h"
#include "scheduler/trace.h"
#include "scheduler/trace_event.h"
#include "scheduler/trace_message.h"
#include "scheduler/trace_steps.h"
#include "scheduler/trace_summary.h"

#define LEAST_SAMPLES 8 /* a p90 of fewer says nothing */

/* What one action took. */
struct sample {
    uint32_t kind;
    int32_t stage;
    double ns;
};

enum cost_kind {
    COST_F,
    COST_I,
    COST_W,
    COST_KINDS,
    COST_B = COST_KINDS /* not split; divided between I and W */
};

/* Mean costs by kind and virtual stage. */
struct costs {
    double *means; /* owns; [kind · stages + stage], with COST_B */
    int32_t stages;
};

static int compare_samples(const void *left_item, const void *right_item)
{
    const struct sample *left = left_item;
    const struct sample *right = right_item;

    if (left->kind != right->kind) {
        return left->kind < right->kind ? -1 : 1;
    }
    if (left->stage != right->stage) {
        return left->stage < right->stage ? -1 : 1;
    }
    return (left->ns > right->ns) - (left->ns < right->ns);
}

/* All compute of training, by kind, stage and time. */
static enum status gather_samples(const struct trace_run *run, struct sample **samples_out,
                                  size_t *count_out)
{
    struct sample *samples = NULL;
    size_t most = 0;
    size_t used = 0;

    for (size_t index = 0; index < run->count; index++) {
        most += run->ranks[index].count;
    }
    samples = calloc(most + 1, sizeof(*samples));
    if (samples == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: what %zu spans took", most);
    }
    for (size_t index = 0; index < run->count; index++) {
        for (size_t item = 0; item < run->ranks[index].count; item++) {
            const struct span *span = &run->ranks[index].spans[item];

            if (trace_span_trains(span)) {
                samples[used++] = (struct sample){.kind = span->kind,
                                                  .stage = span->args[TRACE_ARG_VIRTUAL_STAGE],
                                                  .ns = (double)(span->end_ns - span->begin_ns)};
            }
        }
    }
    qsort(samples, used, sizeof(*samples), compare_samples);
    *samples_out = samples;
    *count_out = used;
    return STATUS_OK;
}

static enum cost_kind cost_of(uint32_t kind)
{
    return kind == TRACE_F ? COST_F : kind == TRACE_W ? COST_W : kind == TRACE_I ? COST_I : COST_B;
}

static double *means_of(const struct costs *costs, enum cost_kind kind)
{
    return costs->means + (size_t)kind * (size_t)costs->stages;
}

/* A B that was not split is divided between I and W as those of the other stages are; all of it is I where none is
 * split. */
static void split_whole(struct costs *costs)
{
    double input = 0.0;
    double weight = 0.0;
    double share = 1.0;

    for (int32_t stage = 0; stage < costs->stages; stage++) {
        input += means_of(costs, COST_I)[stage];
        weight += means_of(costs, COST_W)[stage];
    }
    if (input + weight > 0.0) {
        share = input / (input + weight);
    }
    for (int32_t stage = 0; stage < costs->stages; stage++) {
        double whole = means_of(costs, COST_B)[stage];

        means_of(costs, COST_I)[stage] += share * whole;
        means_of(costs, COST_W)[stage] += (1.0 - share) * whole;
    }
}

static void take_group(const struct sample *group, size_t count, struct costs *costs,
                       struct trace_explanation *out)
{
    double sum = 0.0;
    double median = group[count / 2].ns;
    double late = group[count * 9 / 10].ns;

    for (size_t index = 0; index < count; index++) {
        sum += group[index].ns;
    }
    means_of(costs, cost_of(group->kind))[group->stage] = sum / (double)count;
    if (count >= LEAST_SAMPLES && median > 0.0 && late / median > out->jitter) {
        out->jitter = late / median;
        out->jitter_kind = group->kind;
        out->jitter_stage = group->stage;
    }
}

static enum status take_samples(const struct sample *samples, size_t count, struct costs *costs,
                                struct trace_explanation *out)
{
    size_t begin = 0;

    while (begin < count) {
        size_t end = begin;

        while (end < count && samples[end].kind == samples[begin].kind &&
               samples[end].stage == samples[begin].stage) {
            end++;
        }
        if (samples[begin].stage < 0 || samples[begin].stage >= costs->stages) {
            return status_fail(STATUS_ERR_REFUSED,
                               "trace: an action of virtual stage %d, but the plan of the run has "
                               "stages 0 to %d",
                               (int)samples[begin].stage, (int)costs->stages - 1);
        }
        take_group(&samples[begin], end - begin, costs, out);
        begin = end;
    }
    split_whole(costs);
    for (int32_t stage = 0; stage < costs->stages; stage++) {
        if (!(costs->means[stage] > 0.0)) {
            return status_fail(
                STATUS_ERR_REFUSED,
                "trace: no forward of virtual stage %d, which the plan of the run has", (int)stage);
        }
    }
    return STATUS_OK;
}

static enum status simulate(const struct plan *lowered, const struct costs *costs, double message,
                            double *makespan_out)
{
    const struct plan_costs plan_costs = {.F = means_of(costs, COST_F),
                                          .I = means_of(costs, COST_I),
                                          .W = means_of(costs, COST_W),
                                          .message = message};
    struct simulation simulation;

    TRY(plan_simulate(lowered, &plan_costs, &simulation));
    *makespan_out = simulation.makespan;
    simulation_release(&simulation);
    return STATUS_OK;
}

/* All virtual stages alike. */
static void make_even(struct costs *costs)
{
    for (int kind = 0; kind < COST_KINDS; kind++) {
        double *means = means_of(costs, (enum cost_kind)kind);
        double sum = 0.0;

        for (int32_t stage = 0; stage < costs->stages; stage++) {
            sum += means[stage];
        }
        for (int32_t stage = 0; stage < costs->stages; stage++) {
            means[stage] = sum / costs->stages;
        }
    }
}

/* Which rank has the most to do, and how much more than the mean. */
static void find_slowest(const struct plan *lowered, const struct costs *costs,
                         struct trace_explanation *out)
{
    double most = -1.0;
    double sum = 0.0;

    for (int32_t rank = 0; rank < lowered->shape.ranks; rank++) {
        double own = 0.0;

        for (int32_t stage = 0; stage < costs->stages; stage++) {
            for (int kind = 0; lowered->rank_of[stage] == rank && kind < COST_KINDS; kind++) {
                own += means_of(costs, (enum cost_kind)kind)[stage];
            }
        }
        sum += own;
        if (own > most) {
            most = own;
            out->slowest = rank;
        }
    }
    out->slowest_excess = most / (sum / lowered->shape.ranks) - 1.0;
}

static int compare_numbers(const void *left_item, const void *right_item)
{
    const double *left = left_item;
    const double *right = right_item;

    return (*left > *right) - (*left < *right);
}

/* A message was waited for where its receiver stood ready before its copy began. The median of those, because a
 * receiver may have had to wait for something else too. */
static enum status take_messages(const struct trace_run *run, struct trace_explanation *out)
{
    struct trace_message *messages = NULL;
    double *waits = NULL;
    size_t count = 0;
    size_t waited = 0;
    size_t copies = 0;

    TRY(trace_messages_find(run, &messages, &count));
    waits = calloc(count + 1, sizeof(*waits));
    if (waits == NULL) {
        free(messages);
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: waits for %zu messages", count);
    }
    for (size_t index = 0; index < count; index++) {
        const struct span *send = messages[index].send;
        const struct span *recv = messages[index].recv;

        if (send->args[TRACE_ARG_EVALUATION] == 1) {
            continue;
        }
        out->copy_ns += (double)(send->end_ns - send->begin_ns);
        copies++;
        if (recv->begin_ns < send->begin_ns && recv->end_ns >= send->end_ns) {
            waits[waited++] = (double)(recv->end_ns - send->begin_ns);
        }
    }
    qsort(waits, waited, sizeof(*waits), compare_numbers);
    out->copy_ns = copies > 0 ? out->copy_ns / (double)copies : 0.0;
    out->latency_ns = waited > 0 ? waits[waited / 2] : 0.0;
    free(waits);
    free(messages);
    return STATUS_OK;
}

static enum status take_steps(const struct trace_run *run, struct trace_explanation *out)
{
    struct trace_step *steps = NULL;
    struct trace_summary summary;
    size_t count = 0;
    size_t pairs = 0;

    TRY(trace_summary_make(run, &summary));
    out->steps = summary.steps;
    out->measured_ns = summary.steps > 0 ? summary.span_ns / summary.steps : 0.0;
    out->measured_bubble = summary.bubble;
    trace_summary_release(&summary);
    TRY(trace_steps_find(run, &steps, &count));
    for (size_t index = 1; index < count; index++) {
        if (steps[index].step == steps[index - 1].step + 1) {
            out->between_ns += (double)(steps[index].begin_ns - steps[index - 1].end_ns);
            pairs++;
        }
    }
    free(steps);
    out->between_ns = pairs > 0 ? out->between_ns / (double)pairs : 0.0;
    return STATUS_OK;
}

/* Of a sequence; the shape counts micro-batches in such pieces. */
static int32_t slices_of(const struct plan_shape *shape)
{
    return shape->sequence_slices > 1 ? shape->sequence_slices : 1;
}

static enum status simulate_all(const struct plan *lowered, struct costs *costs,
                                struct trace_explanation *out)
{
    const int32_t parts = lowered->shape.virtual_stages * slices_of(&lowered->shape);

    find_slowest(lowered, costs, out);
    TRY(simulate(lowered, costs, 0.0, &out->uneven_ns));
    TRY(simulate(lowered, costs, out->latency_ns, &out->message_ns));
    make_even(costs);
    TRY(simulate(lowered, costs, 0.0, &out->even_ns));
    out->F = means_of(costs, COST_F)[0] * parts;
    out->I = means_of(costs, COST_I)[0] * parts;
    out->W = means_of(costs, COST_W)[0] * parts;
    out->ideal_ns =
        lowered->shape.microbatches / slices_of(&lowered->shape) * (out->F + out->I + out->W);
    return STATUS_OK;
}

enum status trace_explain_make(const struct trace_run *run, const struct plan *lowered,
                               struct trace_explanation *explanation_out)
{
    struct trace_explanation out = {.shape = lowered->shape};
    struct costs costs = {.stages = plan_stages(lowered)};
    struct sample *samples = NULL;
    size_t count = 0;
    enum status status = STATUS_OK;

    costs.means = calloc((COST_KINDS + 1) * (size_t)costs.stages + 1, sizeof(*costs.means));
    if (costs.means == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: costs of %d stages", (int)costs.stages);
    }
    TRY_OR(done, status, gather_samples(run, &samples, &count));
    TRY_OR(done, status, take_samples(samples, count, &costs, &out));
    TRY_OR(done, status, take_steps(run, &out));
    TRY_OR(done, status, take_messages(run, &out));
    TRY_OR(done, status, simulate_all(lowered, &costs, &out));
    *explanation_out = out;
done:
    free(samples);
    free(costs.means);
    return status;
}

/* Milliseconds, and how much of the measured span that is. */
static void print_share(const struct trace_explanation *of, double ns, FILE *out)
{
    (void)fprintf(out, "%+.2f ms (%+.1f%%)", ns / 1e6,
                  of->measured_ns > 0.0 ? 100.0 * ns / of->measured_ns : 0.0);
}

static void print_plan(const struct trace_explanation *of, FILE *out)
{
    const struct plan_shape *shape = &of->shape;
    int32_t slices = slices_of(shape);
    struct bubble_formula formula;

    (void)fprintf(out, "plan      %s, pp %d, %d micro-batches", schedule_text(shape->schedule),
                  (int)shape->ranks, (int)(shape->microbatches / slices));
    if (slices > 1) {
        (void)fprintf(out, " in %d slices", (int)slices);
    }
    if (shape->virtual_stages > 1) {
        (void)fprintf(out, ", %d chunks a rank", (int)shape->virtual_stages);
    }
    (void)fprintf(out, ", early send %s\n", shape->early_send ? "on" : "off");
    (void)fprintf(out, "costs     F %.2f, I %.2f, W %.2f ms a rank and micro-batch, on the mean\n",
                  of->F / 1e6, of->I / 1e6, of->W / 1e6);
    (void)fprintf(out,
                  "measured  %.2f ms a step from the first action to the last, bubble %.1f%%\n",
                  of->measured_ns / 1e6, 100.0 * of->measured_bubble);
    (void)fprintf(out, "work      %.2f ms a rank if all had the same to do; above that:\n",
                  of->ideal_ns / 1e6);
    (void)fprintf(out, "  schedule  ");
    print_share(of, of->even_ns - of->ideal_ns, out);
    bubble_formula_find(shape, of->F, of->I, of->W, &formula);
    if (shape->ranks > 1) {
        (void)fputs(": ", out);
        bubble_formula_print(&formula, shape->schedule, out);
    }
    (void)fprintf(out, "\n");
}

static void print_differences(const struct trace_explanation *of, FILE *out)
{
    (void)fprintf(out, "  uneven    ");
    print_share(of, of->uneven_ns - of->even_ns, out);
    (void)fprintf(out, ": stage %d computes %.1f%% more than the mean of the stages\n",
                  (int)of->slowest, 100.0 * of->slowest_excess);
    (void)fprintf(out, "  messages  ");
    print_share(of, of->message_ns - of->uneven_ns, out);
    if (of->latency_ns > 0.0) {
        (void)fprintf(out, ": one that is waited for takes %.3f ms, its copy %.3f ms on the mean\n",
                      of->latency_ns / 1e6, of->copy_ns / 1e6);
    } else {
        (void)fprintf(out, ": none was waited for\n");
    }
    (void)fprintf(out, "  the rest  ");
    print_share(of, of->measured_ns - of->message_ns, out);
    (void)fprintf(out, ": jitter, copies, the host");
    if (of->jitter > 0.0) {
        (void)fprintf(out,
                      "; the least steady is %s of virtual stage %d: one in ten takes %.2f "
                      "times its median or more",
                      trace_kind_name(of->jitter_kind), (int)of->jitter_stage, of->jitter);
    }
    (void)fprintf(out, "\n");
    if (of->between_ns > 0.0) {
        (void)fprintf(out,
                      "between   %.2f ms from the last action of a step to the first of the next: "
                      "reductions, optimizer, STEP\n",
                      of->between_ns / 1e6);
    }
}

/* What would help most against what there is most of. */
static void print_advice(const struct trace_explanation *of, FILE *out)
{
    double schedule = of->even_ns - of->ideal_ns;
    double uneven = of->uneven_ns - of->even_ns;
    double messages = of->message_ns - of->uneven_ns;
    double rest = of->measured_ns - of->message_ns;

    if (schedule + uneven + messages + rest < 0.02 * of->measured_ns) {
        (void)fprintf(out, "There is little left to gain.\n");
    } else if (schedule >= uneven && schedule >= messages && schedule >= rest) {
        (void)fprintf(out,
                      "Most of it is the schedule's: more micro-batches a step, virtual stages, "
                      "or another schedule (weir plan shows each).\n");
    } else if (uneven >= messages && uneven >= rest) {
        (void)fprintf(out,
                      "Most of it is uneven work: move layers away from stage %d "
                      "(parallel.layers_per_stage).\n",
                      (int)of->slowest);
    } else if (messages >= rest) {
        (void)fprintf(out,
                      "Most of it is waiting for messages: larger micro-batches, fewer virtual "
                      "stages, or a schedule with more in flight.\n");
    } else {
        (void)fprintf(out, "Most of it is jitter, copies and the host: see whether the ranks share "
                           "their cores with each other or with something else.\n");
    }
}

enum status trace_explain_print(const struct trace_explanation *explanation, FILE *out)
{
    print_plan(explanation, out);
    print_differences(explanation, out);
    print_advice(explanation, out);
    return ferror(out) != 0 ? status_fail(STATUS_ERR_IO, "explaining a trace failed") : STATUS_OK;
}

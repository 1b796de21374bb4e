#include <stdlib.h>
#include <string.h>

#include "scheduler/costs.h"
#include "scheduler/trace_event.h"
#include "scheduler/trace_message.h"
#include "scheduler/trace_steps.h"

/* Of one cost; beyond these only every second, fourth, … sample is kept. */
#define MOST_SAMPLES ((size_t)1 << 16)

#define MS 1e-6 /* of a nanosecond */

/* Samples of one cost, thinned out evenly where there are too many. */
struct samples {
    double *values; /* owns; MOST_SAMPLES */
    size_t count;
    size_t seen;
    size_t every;
};

static void samples_clear(struct samples *samples)
{
    samples->count = 0;
    samples->seen = 0;
    samples->every = 1;
}

static void samples_add(struct samples *samples, double value)
{
    if (samples->seen++ % samples->every != 0) {
        return;
    }
    if (samples->count == MOST_SAMPLES) {
        for (size_t i = 0; i < MOST_SAMPLES / 2; i++) {
            samples->values[i] = samples->values[2 * i];
        }
        samples->count = MOST_SAMPLES / 2;
        samples->every *= 2;
        if ((samples->seen - 1) % samples->every != 0) {
            return;
        }
    }
    samples->values[samples->count++] = value;
}

/* What a pass over the spans asks for. */
struct measuring {
    const struct trace_run *run;
    struct costs *costs;
    struct samples samples;
};

static double ms_of(const struct span *span)
{
    return (double)(span->end_ns - span->begin_ns) * MS;
}

/* Every span of training of this kind and, where it is not negative, this virtual stage. */
static struct cost_stat stat_of_kind(struct measuring *measuring, enum trace_kind kind,
                                     int32_t stage)
{
    samples_clear(&measuring->samples);
    for (size_t r = 0; r < measuring->run->count; r++) {
        const struct trace_rank *rank = &measuring->run->ranks[r];

        for (size_t i = 0; i < rank->count; i++) {
            const struct span *span = &rank->spans[i];

            if (span->kind == (uint32_t)kind && span->args[TRACE_ARG_EVALUATION] != 1 &&
                (stage < 0 || span->args[TRACE_ARG_VIRTUAL_STAGE] == stage)) {
                samples_add(&measuring->samples, ms_of(span));
            }
        }
    }
    return cost_stat_of(measuring->samples.values, measuring->samples.count);
}

/* Sum of a kind over each step of each rank. */
static struct cost_stat stat_of_steps(struct measuring *measuring, enum trace_kind kind)
{
    samples_clear(&measuring->samples);
    for (size_t r = 0; r < measuring->run->count; r++) {
        const struct trace_rank *rank = &measuring->run->ranks[r];
        int32_t step = -1;
        double sum = 0.0;

        for (size_t i = 0; i < rank->count; i++) {
            const struct span *span = &rank->spans[i];

            if (span->kind != (uint32_t)kind || span->args[TRACE_ARG_EVALUATION] == 1) {
                continue;
            }
            if (step >= 0 && step != span->args[TRACE_ARG_STEP]) {
                samples_add(&measuring->samples, sum);
                sum = 0.0;
            }
            step = span->args[TRACE_ARG_STEP];
            sum += ms_of(span);
        }
        if (step >= 0) {
            samples_add(&measuring->samples, sum);
        }
    }
    return cost_stat_of(measuring->samples.values, measuring->samples.count);
}

static enum status measure_compute(struct measuring *measuring)
{
    static const enum trace_kind kinds[COST_KINDS] = {TRACE_F, TRACE_I, TRACE_W};
    static const char *const names[COST_KINDS] = {
#define X(kind, key) key,
        COST_TABLE(X)
#undef X
    };
    struct costs *costs = measuring->costs;

    for (int k = 0; k < COST_KINDS; k++) {
        bool any = k == COST_F;

        for (int32_t s = 0; s < costs->stages; s++) {
            costs->compute[k][s] = stat_of_kind(measuring, kinds[k], s);
            any = any || costs->compute[k][s].count > 0;
        }
        for (int32_t s = 0; any && s < costs->stages; s++) {
            if (costs->compute[k][s].count == 0) {
                return status_fail(STATUS_ERR_REFUSED,
                                   "costs: the trace has no %s of virtual stage %d in the steps "
                                   "that count; expected one of each of %d",
                                   names[k], s, costs->stages);
            }
        }
    }
    return STATUS_OK;
}

/* Copies, and how long after its copy a message was used by a receiver that stood waiting. */
static void measure_messages(struct measuring *measuring, const struct trace_message *messages,
                             size_t count)
{
    struct costs *costs = measuring->costs;
    double bytes = 0.0;

    for (int32_t cell = 0; cell < costs->stages * LANE_DIRECTIONS; cell++) {
        int32_t direction = cell / costs->stages;
        int32_t stage = cell % costs->stages;

        samples_clear(&measuring->samples);
        for (size_t i = 0; i < count; i++) {
            const struct span *send = messages[i].send;
            const struct span *recv = messages[i].recv;

            if (recv->args[TRACE_ARG_VIRTUAL_STAGE] == stage &&
                recv->args[TRACE_ARG_DIRECTION] == direction &&
                recv->args[TRACE_ARG_EVALUATION] != 1 && recv->begin_ns < send->begin_ns &&
                recv->end_ns >= send->end_ns) {
                samples_add(&measuring->samples, (double)(recv->end_ns - send->end_ns) * MS);
            }
        }
        costs->latency[direction][stage] =
            cost_stat_of(measuring->samples.values, measuring->samples.count);
    }
    for (size_t i = 0; i < count; i++) {
        bytes += (double)messages[i].send->bytes;
    }
    costs->message_bytes = count > 0 ? bytes / (double)count : 0.0;
    costs->send = stat_of_kind(measuring, TRACE_SEND, -1);
}

/* Where nobody ever waited on a link, its latency is that of the others: none is known, not none. */
static void fill_latencies(struct costs *costs)
{
    double sum = 0.0;
    int known = 0;

    for (int32_t cell = 0; cell < costs->stages * LANE_DIRECTIONS; cell++) {
        const struct cost_stat *stat = &costs->latency[cell / costs->stages][cell % costs->stages];

        sum += stat->count > 0 ? stat->typical : 0.0;
        known += stat->count > 0 ? 1 : 0;
    }
    for (int32_t cell = 0; known > 0 && cell < costs->stages * LANE_DIRECTIONS; cell++) {
        struct cost_stat *stat = &costs->latency[cell / costs->stages][cell % costs->stages];

        if (stat->count == 0) {
            stat->median = stat->p90 = stat->mean = stat->typical = sum / (double)known;
        }
    }
}

static bool is_main_work(const struct span *span)
{
    return trace_kind_is_compute(span->kind) || span->kind == TRACE_SEND ||
           span->kind == TRACE_RECV || span->kind == TRACE_WAIT || span->kind == TRACE_GATHER;
}

/* From the end of whatever a rank did or waited for last to the begin of a compute action. */
static void measure_action(struct measuring *measuring)
{
    samples_clear(&measuring->samples);
    for (size_t r = 0; r < measuring->run->count; r++) {
        const struct trace_rank *rank = &measuring->run->ranks[r];
        int64_t last_ns = INT64_MAX;
        int32_t step = -1;

        for (size_t i = 0; i < rank->count; i++) {
            const struct span *span = &rank->spans[i];

            if (!is_main_work(span) || span->args[TRACE_ARG_EVALUATION] == 1) {
                continue;
            }
            if (span->args[TRACE_ARG_STEP] != step) {
                step = span->args[TRACE_ARG_STEP];
                last_ns = INT64_MAX;
            }
            if (trace_kind_is_compute(span->kind) && last_ns <= span->begin_ns) {
                samples_add(&measuring->samples, (double)(span->begin_ns - last_ns) * MS);
            }
            last_ns = last_ns == INT64_MAX || span->end_ns > last_ns ? span->end_ns : last_ns;
        }
    }
    measuring->costs->action = cost_stat_of(measuring->samples.values, measuring->samples.count);
}

static void measure_spans(struct measuring *measuring, const struct trace_step *spans, size_t count)
{
    samples_clear(&measuring->samples);
    for (size_t i = 0; i < count; i++) {
        samples_add(&measuring->samples, (double)(spans[i].end_ns - spans[i].begin_ns) * MS);
    }
    measuring->costs->span = cost_stat_of(measuring->samples.values, measuring->samples.count);
}

/* What a step takes beside its span: by the clock of whoever counted it, or up to the next step. */
static void measure_rest(struct measuring *measuring, const struct trace_step *spans, size_t count,
                         const struct costs_step *steps, size_t step_count)
{
    samples_clear(&measuring->samples);
    for (size_t i = 0; i < step_count; i++) {
        const struct trace_step *span = trace_steps_at(spans, count, (int32_t)steps[i].step);

        if (span != NULL) {
            double rest = steps[i].ms - (double)(span->end_ns - span->begin_ns) * MS;

            samples_add(&measuring->samples, rest > 0.0 ? rest : 0.0);
        }
    }
    for (size_t i = 1; step_count == 0 && i < count; i++) {
        if (spans[i].step == spans[i - 1].step + 1) {
            samples_add(&measuring->samples,
                        (double)(spans[i].begin_ns - spans[i - 1].end_ns) * MS);
        }
    }
    measuring->costs->rest = cost_stat_of(measuring->samples.values, measuring->samples.count);
    samples_clear(&measuring->samples);
    for (size_t i = 0; i < step_count; i++) {
        samples_add(&measuring->samples, steps[i].ms);
    }
    measuring->costs->step = cost_stat_of(measuring->samples.values, measuring->samples.count);
}

/* Compute of a step by pipeline rank, the mean of its shards and replicas. */
static void measure_busy(struct measuring *measuring, size_t step_count)
{
    struct costs *costs = measuring->costs;

    for (int32_t stage = 0; stage < costs->plan.ranks && step_count > 0; stage++) {
        double sum = 0.0;
        int ranks = 0;

        for (size_t r = 0; r < measuring->run->count; r++) {
            const struct trace_rank *rank = &measuring->run->ranks[r];

            ranks += rank->pipeline_rank == stage ? 1 : 0;
            for (size_t i = 0; rank->pipeline_rank == stage && i < rank->count; i++) {
                sum += trace_span_trains(&rank->spans[i]) ? ms_of(&rank->spans[i]) : 0.0;
            }
        }
        costs->busy[stage] = ranks > 0 ? sum / ((double)ranks * (double)step_count) : 0.0;
    }
}

static enum status measure(struct measuring *measuring, const struct costs_step *steps,
                           size_t step_count)
{
    struct costs *costs = measuring->costs;
    struct trace_message *messages = NULL;
    struct trace_step *spans = NULL;
    size_t message_count = 0;
    size_t span_count = 0;

    TRY(measure_compute(measuring));
    TRY(trace_messages_find(measuring->run, &messages, &message_count));
    measure_messages(measuring, messages, message_count);
    free(messages);
    fill_latencies(costs);
    TRY(trace_steps_find(measuring->run, &spans, &span_count));
    measure_spans(measuring, spans, span_count);
    measure_rest(measuring, spans, span_count, steps, step_count);
    free(spans);
    measure_action(measuring);
    measure_busy(measuring, span_count);
    costs->gather = stat_of_kind(measuring, TRACE_GATHER, -1);
    costs->optimizer = stat_of_steps(measuring, TRACE_OPTIMIZER);
    costs->round = stat_of_steps(measuring, TRACE_STEP);
    costs->reduce = stat_of_steps(measuring, TRACE_REDUCE);
    return STATUS_OK;
}

enum status costs_measure(const struct trace_run *run, const struct costs_plan *plan,
                          const struct costs_step *steps, size_t step_count,
                          struct costs *costs_out)
{
    struct measuring measuring = {.run = run, .costs = costs_out};
    enum status status;

    TRY(costs_init(costs_out, plan));
    measuring.samples.values = malloc(MOST_SAMPLES * sizeof(double));
    status =
        measuring.samples.values == NULL
            ? status_fail(STATUS_ERR_NO_MEMORY, "costs: no memory for %zu samples", MOST_SAMPLES)
            : measure(&measuring, steps, step_count);
    free(measuring.samples.values);
    if (status < 0) {
        costs_release(costs_out);
    }
    return status;
}

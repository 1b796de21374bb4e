#include "scheduler/trace_summary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/trace_event.h"
#include "scheduler/trace_steps.h"

static enum status sum_steps(const struct trace_run *run, struct trace_summary *summary)
{
    struct trace_step *steps = NULL;
    size_t count = 0;

    TRY(trace_steps_find(run, &steps, &count));
    for (size_t index = 0; index < count; index++) {
        summary->span_ns += (double)(steps[index].end_ns - steps[index].begin_ns);
    }
    summary->steps = (int32_t)count;
    free(steps);
    return STATUS_OK;
}

static enum status sum_rank(const struct trace_rank *rank, int32_t stages,
                            struct trace_summary_rank *sum)
{
    sum->rank = rank->rank;
    sum->pipeline_rank = rank->pipeline_rank;
    sum->wait_ns = calloc((size_t)stages + 1, sizeof(*sum->wait_ns));
    if (sum->wait_ns == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: waits for %d stages", (int)stages);
    }
    for (size_t index = 0; index < rank->count; index++) {
        const struct span *span = &rank->spans[index];
        double ns = (double)(span->end_ns - span->begin_ns);
        int32_t peer = span->args[TRACE_ARG_PEER];

        if (span->args[TRACE_ARG_EVALUATION] == 1 || span->kind >= TRACE_KINDS) {
            continue;
        }
        sum->kind_ns[span->kind] += ns;
        sum->busy_ns += trace_kind_is_compute(span->kind) ? ns : 0.0;
        if (span->kind == TRACE_WAIT) {
            sum->wait_ns[peer >= 0 && peer < stages ? peer : stages] += ns;
        }
    }
    return STATUS_OK;
}

static void find_bubble(struct trace_summary *summary)
{
    double busy_ns = 0.0;

    for (size_t index = 0; index < summary->count; index++) {
        struct trace_summary_rank *rank = &summary->ranks[index];

        busy_ns += rank->busy_ns;
        rank->bubble = summary->span_ns > 0.0 ? 1.0 - rank->busy_ns / summary->span_ns : 0.0;
        if (rank->busy_ns > summary->ranks[summary->slowest].busy_ns) {
            summary->slowest = index;
        }
    }
    if (summary->span_ns > 0.0) {
        summary->bubble = 1.0 - busy_ns / ((double)summary->count * summary->span_ns);
    }
}

static enum status sum_memory(const struct trace_run *run, struct trace_summary *summary)
{
    struct trace_message *messages = NULL;
    size_t count = 0;
    enum status status = STATUS_OK;

    TRY(trace_messages_find(run, &messages, &count));
    for (size_t index = 0; status >= 0 && index < run->count; index++) {
        struct trace_summary_rank *rank = &summary->ranks[index];
        struct trace_memory memory;

        status = trace_memory_make(&run->ranks[index], messages, count, &memory);
        memcpy(rank->taken, memory.peak, sizeof(rank->taken));
        rank->taken_together = memory.peak_together;
        trace_memory_release(&memory);
    }
    free(messages);
    return status;
}

enum status trace_summary_make(const struct trace_run *run, struct trace_summary *summary_out)
{
    struct trace_summary summary = {.stages = trace_run_stages(run)};
    enum status status = STATUS_OK;

    summary.ranks = calloc(run->count + 1, sizeof(*summary.ranks));
    if (summary.ranks == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: a summary of %zu ranks", run->count);
    }
    summary.count = run->count;
    for (size_t index = 0; index < run->count; index++) {
        summary.dropped += run->ranks[index].dropped;
        TRY_OR(fail, status, sum_rank(&run->ranks[index], summary.stages, &summary.ranks[index]));
    }
    TRY_OR(fail, status, sum_steps(run, &summary));
    TRY_OR(fail, status, sum_memory(run, &summary));
    find_bubble(&summary);
    *summary_out = summary;
    return STATUS_OK;
fail:
    trace_summary_release(&summary);
    return status;
}

/* Milliseconds a step. */
static double per_step(const struct trace_summary *summary, double ns)
{
    return summary->steps > 0 ? ns / 1e6 / summary->steps : 0.0;
}

static void print_table(const struct trace_summary *summary, FILE *out)
{
    (void)fprintf(out, "%5s %6s %9s %9s %9s %9s %9s %9s %9s %9s %9s %8s\n", "rank", "stage", "busy",
                  "F", "I", "W", "B", "wait", "reduce", "optimizer", "STEP", "bubble");
    for (size_t index = 0; index < summary->count; index++) {
        const struct trace_summary_rank *rank = &summary->ranks[index];

        (void)fprintf(
            out, "%5d %6d %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %7.1f%%\n",
            (int)rank->rank, (int)rank->pipeline_rank, per_step(summary, rank->busy_ns),
            per_step(summary, rank->kind_ns[TRACE_F]), per_step(summary, rank->kind_ns[TRACE_I]),
            per_step(summary, rank->kind_ns[TRACE_W]), per_step(summary, rank->kind_ns[TRACE_B]),
            per_step(summary, rank->kind_ns[TRACE_WAIT]),
            per_step(summary, rank->kind_ns[TRACE_REDUCE]),
            per_step(summary, rank->kind_ns[TRACE_OPTIMIZER]),
            per_step(summary, rank->kind_ns[TRACE_STEP]), 100.0 * rank->bubble);
    }
}

static void print_waits(const struct trace_summary *summary, FILE *out)
{
    for (size_t index = 0; index < summary->count; index++) {
        const struct trace_summary_rank *rank = &summary->ranks[index];

        if (rank->kind_ns[TRACE_WAIT] <= 0.0) {
            continue;
        }
        (void)fprintf(out, "rank %d waits", (int)rank->rank);
        for (int32_t peer = 0; peer <= summary->stages; peer++) {
            double ms = per_step(summary, rank->wait_ns[peer]);

            if (rank->wait_ns[peer] <= 0.0) {
                continue;
            }
            if (peer < summary->stages) {
                (void)fprintf(out, "  stage %d: %.2f ms", (int)peer, ms);
            } else {
                (void)fprintf(out, "  other: %.2f ms", ms);
            }
        }
        (void)fprintf(out, "\n");
    }
}

static void print_memory(const struct trace_summary *summary, FILE *out)
{
    const double mib = 1024.0 * 1024.0;
    int64_t most = 0;

    for (size_t index = 0; index < summary->count; index++) {
        most = summary->ranks[index].taken_together > most ? summary->ranks[index].taken_together
                                                           : most;
    }
    if (most == 0) {
        return;
    }
    (void)fprintf(out, "MiB of buffers taken at most:\n%5s %6s", "rank", "stage");
    for (int kind = 0; kind < TRACE_MEMORY_KINDS; kind++) {
        (void)fprintf(out, " %9s", trace_memory_name((enum trace_memory_kind)kind));
    }
    (void)fprintf(out, " %9s\n", "together");
    for (size_t index = 0; index < summary->count; index++) {
        const struct trace_summary_rank *rank = &summary->ranks[index];

        (void)fprintf(out, "%5d %6d", (int)rank->rank, (int)rank->pipeline_rank);
        for (int kind = 0; kind < TRACE_MEMORY_KINDS; kind++) {
            (void)fprintf(out, " %9.2f", (double)rank->taken[kind] / mib);
        }
        (void)fprintf(out, " %9.2f\n", (double)rank->taken_together / mib);
    }
    (void)fprintf(out, "\n");
}

enum status trace_summary_print(const struct trace_summary *summary, FILE *out)
{
    (void)fprintf(out,
                  "%d step%s, %zu rank%s, %.2f ms from the first action to the last, bubble "
                  "%.1f%%\n\n",
                  (int)summary->steps, summary->steps == 1 ? "" : "s", summary->count,
                  summary->count == 1 ? "" : "s", per_step(summary, summary->span_ns),
                  100.0 * summary->bubble);
    (void)fprintf(out, "milliseconds a step:\n");
    print_table(summary, out);
    (void)fprintf(out, "\n");
    print_memory(summary, out);
    print_waits(summary, out);
    if (summary->count > 0 && summary->steps > 0) {
        const struct trace_summary_rank *slowest = &summary->ranks[summary->slowest];

        (void)fprintf(out, "slowest: stage %d (rank %d), busy %.2f ms a step\n",
                      (int)slowest->pipeline_rank, (int)slowest->rank,
                      per_step(summary, slowest->busy_ns));
    }
    if (summary->dropped > 0) {
        (void)fprintf(out, "%" PRIu64 " spans are not in the trace: the files met trace.max_mb\n",
                      summary->dropped);
    }
    return fflush(out) == 0 && !ferror(out)
               ? STATUS_OK
               : status_fail(STATUS_ERR_IO, "printing the summary of a trace");
}

void trace_summary_release(struct trace_summary *summary)
{
    for (size_t index = 0; summary->ranks != NULL && index < summary->count; index++) {
        free(summary->ranks[index].wait_ns);
    }
    free(summary->ranks);
    memset(summary, 0, sizeof(*summary));
}

#include "stages/run_trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "collectives/control.h"
#include "scheduler/action.h"
#include "stages/fault.h"

/* What one micro-batch takes in each chunk of this rank. The caller frees *sizes_out. */
static enum status size_chunks(const struct engine *engine, struct trace_memory_size **sizes_out)
{
    struct trace_memory_size *sizes = calloc((size_t)engine->chunk_count, sizeof(*sizes));

    if (sizes == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: %d chunks", engine->chunk_count);
    }
    for (int32_t i = 0; i < engine->chunk_count; i++) {
        const struct chunk *chunk = &engine->chunks[i].chunk;

        sizes[i] = (struct trace_memory_size){
            .virtual_stage = engine->chunks[i].virtual_stage,
            .stash_bytes = chunk->stash.planned_bytes / (size_t)chunk->slot_count,
            .gradient_bytes = (chunk->kept.planned_bytes + chunk->again.planned_bytes) /
                              (size_t)chunk->gradient_count,
        };
    }
    *sizes_out = sizes;
    return STATUS_OK;
}

static enum status measure(struct run_trace *trace, double patience_s, struct trace_clock *clock)
{
    struct control_clock measured;

    TRY(control_measure_clock(trace->engine->control, clock_deadline(patience_s), &measured));
    trace->clock_differs = measured.differs;
    *clock = (struct trace_clock){.at_ns = measured.at_ns,
                                  .offset_ns = measured.offset_ns,
                                  .uncertainty_ns = measured.uncertainty_ns};
    return STATUS_OK;
}

static enum status open_writer(struct run_trace *trace, const char *path,
                               const struct trace_clock *clock)
{
    const struct engine *engine = trace->engine;
    struct trace_memory_size *sizes = NULL;
    enum status status = STATUS_OK;

    TRY(size_chunks(engine, &sizes));
    const struct trace_writer_config config = {
        .path = path,
        .run_name = trace->config->name,
        .rank = engine->grid.rank,
        .pipeline_rank = engine->grid.pp,
        .most_bytes = (uint64_t)trace->config->trace.max_mb * 1000000U,
        .origin_ns = engine->origin_ns,
        .clock = trace->clock_differs ? clock : NULL,
        .sizes = sizes,
        .size_count = (size_t)engine->chunk_count,
    };

    status = trace_writer_open(&config, &trace->writer);
    free(sizes);
    return status;
}

enum status run_trace_open(struct run_trace *trace, const struct config *config,
                           struct engine *engine)
{
    char name[64];
    char path[FILE_PATH_BYTES];
    struct trace_clock clock;

    *trace = (struct run_trace){.config = config, .engine = engine};
    if (!config->trace.enabled) {
        return STATUS_OK;
    }
    (void)snprintf(name, sizeof(name), "trace/rank-%d.json", engine->grid.rank);
    TRY(folder_path(config->train.run_dir, name, path));
    TRY(measure(trace, config->control.start_timeout_s, &clock));
    return open_writer(trace, path, &clock);
}

enum status run_trace_keep(struct run_trace *trace, int64_t step)
{
    struct span_ring *spans = &trace->engine->spans;

    if (trace->writer != NULL && step >= trace->config->trace.first_step &&
        step <= trace->config->trace.last_step) {
        fault_skew(&trace->engine->worker.fault, trace->engine->grid.rank, spans);
        return trace_writer_drain(trace->writer, spans);
    }
    span_ring_discard(spans);
    return STATUS_OK;
}

enum status run_trace_keep_evaluation(struct run_trace *trace, int64_t step, int64_t begin_ns)
{
    struct span span = {.begin_ns = begin_ns, .end_ns = clock_now_ns(), .kind = TRACE_EVALUATE};

    for (int arg = 0; arg < SPAN_ARGS; arg++) {
        span.args[arg] = ACTION_NONE;
    }
    span.args[TRACE_ARG_STEP] = (int32_t)step;
    span_ring_discard(&trace->engine->spans);
    trace->engine->spans.dropped = 0; /* of those */
    span_ring_put(&trace->engine->spans, &span);
    return run_trace_keep(trace, step);
}

enum status run_trace_end(struct run_trace *trace)
{
    struct trace_clock clock;

    if (trace->writer == NULL || !trace->clock_differs) {
        return STATUS_OK;
    }
    enum status status = measure(trace, trace->config->control.dead_after_s, &clock);

    if (status == STATUS_ERR_TIMEOUT) {
        log_warn("trace: rank %d's clock is known from the start of the run alone",
                 trace->engine->grid.rank);
        return STATUS_OK;
    }
    TRY(status);
    return trace_writer_put_clock(trace->writer, &clock);
}

enum status run_trace_close(struct run_trace *trace)
{
    return trace_writer_close(&trace->writer);
}

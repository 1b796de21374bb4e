#include "tests/bench/step_rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/folder.h"
#include "scheduler/simulate.h"
#include "scheduler/trace.h"
#include "stages/backends.h"
#include "stages/engine.h"

#define TEXT_BYTES (1 << 20)

long step_world(const struct step_shape *shape)
{
    return shape->pp * shape->tp * shape->dp;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return x < y ? -1 : x > y;
}

double step_median(const double *values, long count)
{
    double sorted[STEPS_MOST];
    long n = count > 1 ? count - 1 : count;

    memcpy(sorted, values + (count > 1 ? 1 : 0), (size_t)n * sizeof(double));
    qsort(sorted, (size_t)n, sizeof(double), compare);
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0;
}

static enum status write_text(const char *path)
{
    FILE *file = fopen(path, "w");
    uint32_t word = 1;

    if (file == NULL) {
        return status_fail(STATUS_ERR_IO, "cannot write %s", path);
    }
    for (int i = 0; i < TEXT_BYTES; i++) {
        word = word * 1664525U + 1013904223U;
        (void)fputc((int)(word >> 25), file);
    }
    return fclose(file) == 0 ? STATUS_OK : status_fail(STATUS_ERR_IO, "cannot write %s", path);
}

static enum status write_config(const char *path, const char *text, const struct step_shape *shape)
{
    FILE *file = fopen(path, "w");

    if (file == NULL) {
        return status_fail(STATUS_ERR_IO, "cannot write %s", path);
    }
    (void)fprintf(file,
                  "model: {num_layers: %ld, hidden_size: %ld, num_heads: %ld, seq_len: %ld, "
                  "vocab_size: %ld, dropout: %g}\n"
                  "parallel: {pp: %ld, tp: %ld, dp: %ld, virtual_stages: %ld, schedule: %s, "
                  "layers_per_stage: %s, embedding_sync: %s, device: %s}\n"
                  "train: {steps: %ld, micro_batch_size: %ld, num_microbatches: %ld, threads: %ld, "
                  "recompute: %s, run_dir: unused}\n"
                  "precision: {dtype: %s}\n"
                  "optimizer: {lr: 1.0e-4, warmup_steps: 1, decay_steps: 1000}\n"
                  "data: {train: %s, format: text}\n",
                  shape->layers, shape->hidden, shape->heads, shape->seq_len, shape->vocab,
                  shape->dropout, shape->pp, shape->tp, shape->dp, shape->virtual_stages,
                  shape->virtual_stages > 1 ? "interleaved_1f1b" : "1f1b", shape->split,
                  shape->sync, shape->device != NULL ? shape->device : "cpu", shape->steps,
                  shape->micro_batch_size, shape->microbatches, shape->threads,
                  shape->recompute != NULL ? shape->recompute : "none",
                  shape->dtype != NULL ? shape->dtype : "fp32", text);
    return fclose(file) == 0 ? STATUS_OK : status_fail(STATUS_ERR_IO, "cannot write %s", path);
}

/* What the plan itself leaves idle at this step's mean costs. */
static double ideal_bubble(const struct engine *engine)
{
    const struct update_outcome *outcome = &engine->update.outcome;
    struct plan_costs costs = {.F = outcome->F, .I = outcome->I, .W = outcome->W};
    double bubble = NAN;

    return plan_idle_share(engine->plan, &costs, &bubble) < 0 ? NAN : bubble;
}

/* A step's time ends when its spans are written, where they are. */
static enum status run_steps(struct engine *engine, struct trace_writer *trace,
                             struct step_result *result)
{
    for (int64_t step = 0; step < engine->config->train.steps; step++) {
        int64_t begin_ns = clock_now_ns();

        TRY(engine_step(engine));
        TRY(trace != NULL ? trace_writer_drain(trace, &engine->spans) : STATUS_OK);
        if (engine->grid.rank == 0) {
            result->seconds[step] = (double)(clock_now_ns() - begin_ns) * 1e-9;
            result->bubble[step] = engine->update.outcome.bubble;
            result->ideal[step] = ideal_bubble(engine);
            result->sync_transfer[step] = engine->update.outcome.sync_transfer_s;
            result->sync_exposed[step] = engine->update.outcome.sync_exposed_s;
            result->flops_per_token = model_flops_per_token(&engine->shape);
        }
        span_ring_discard(&engine->spans);
    }
    return STATUS_OK;
}

static enum status open_trace(const struct engine *engine, const char *path,
                              struct trace_writer **trace_out)
{
    const struct trace_writer_config config = {
        .path = path,
        .run_name = "bench_step",
        .rank = engine->grid.rank,
        .pipeline_rank = engine->grid.pp,
        .most_bytes = (uint64_t)1 << 30,
        .origin_ns = engine->origin_ns,
    };

    return trace_writer_open(&config, trace_out);
}

/* All steps, in a trace beside the configuration where one is asked for. */
static enum status run_traced(const struct step_shape *shape, struct engine *engine,
                              const char *directory, struct step_result *result)
{
    struct trace_writer *trace = NULL;
    char path[256];
    enum status status = STATUS_OK;
    enum status closed = STATUS_OK;

    (void)snprintf(path, sizeof(path), "%s/trace-%d.json", directory, (int)engine->grid.rank);
    if (shape->trace) {
        TRY(open_trace(engine, path, &trace));
    }
    status = run_steps(engine, trace, result);
    closed = trace_writer_close(&trace);
    return status < 0 ? status : closed;
}

static int run_rank(const struct step_shape *shape, const char *directory, int32_t rank,
                    struct step_result *result)
{
    char path[256];
    struct config *config = NULL;
    struct engine *engine = NULL;
    struct cancel cancel = {0};
    struct engine_options options = {
        .rank = rank,
        .world = (int32_t)step_world(shape),
        .local_ranks = (int32_t)step_world(shape),
        .job_directory = directory,
        .cancel = &cancel,
    };
    enum status status = STATUS_OK;

    (void)snprintf(path, sizeof(path), "%s/bench.yaml", directory);
    status = config_load(path, NULL, 0, &config);
    if (status >= 0) {
        options.config = config;
        options.ordinal = backend_ordinal(rank);
        status = backend_choose(config, &options.backend);
    }
    if (status >= 0) {
        status = engine_open(&options, &engine);
    }
    if (status >= 0) {
        status = run_traced(shape, engine, directory, result);
    }
    status = engine_close(&engine, status);
    config_destroy(&config);
    return status < 0 ? 1 : 0;
}

static int run_processes(const struct step_shape *shape, const char *directory,
                         struct step_result *result)
{
    int failed = 0;

    for (long rank = 0; rank < step_world(shape); rank++) {
        pid_t child = fork();

        if (child == 0) {
            _exit(run_rank(shape, directory, (int32_t)rank, result));
        }
        failed += child < 0;
    }
    for (long rank = 0; rank < step_world(shape); rank++) {
        int status = 0;

        failed += wait(&status) < 0 || status != 0;
    }
    return failed;
}

int step_measure(const struct step_shape *shape, struct step_result *result)
{
    char directory[] = "/tmp/weir-bench-XXXXXX";
    char text[64];
    char yaml[64];
    struct step_result *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int failed = 1;

    if (shared == MAP_FAILED || mkdtemp(directory) == NULL) {
        return 1;
    }
    (void)snprintf(text, sizeof(text), "%s/bench.txt", directory);
    (void)snprintf(yaml, sizeof(yaml), "%s/bench.yaml", directory);
    if (write_text(text) >= 0 && write_config(yaml, text, shape) >= 0) {
        failed = run_processes(shape, directory, shared);
    }
    *result = *shared;
    folder_discard(directory); /* with the sockets of the job */
    (void)munmap(shared, sizeof(*shared));
    return failed;
}

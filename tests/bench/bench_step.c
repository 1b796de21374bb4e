/*
 * bench_step -- whole training steps: tokens per second, and the share of the machine's measured
 * FMA peak that they reach.
 *
 *     bench_step                          GPT-2 124M fp32, 4 × 256: one process × 1 and 2 threads,
 *                                         and 2 stage processes × 1 thread with m = 8
 *     bench_step --crowded                pp 8 against pp 2, one thread each, a smaller model
 *     bench_step --overhead               time an action costs beside its compute, tiny model
 *     bench_step --pp 2 --threads 1 --num-microbatches 8 --micro-batch-size 4 --seq-len 256
 *                --num-layers 12 --hidden 768 --heads 12 --vocab 50257 --steps 5
 *
 * Prints `name shape value unit`, tab separated; medians over the steps after the first.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "scheduler/simulate.h"
#include "stages/engine.h"
#include "tests/bench/peak.h"

#define STEPS_MOST 64
#define TEXT_BYTES (1 << 20)

struct shape {
    long pp;
    long threads;
    long microbatches;
    long micro_batch_size;
    long seq_len;
    long layers;
    long hidden;
    long heads;
    long vocab;
    long steps;
    const char *split; /* layers_per_stage */
};

/* What the processes of one measurement share. */
struct result {
    double seconds[STEPS_MOST];
    double bubble[STEPS_MOST];
    double ideal[STEPS_MOST];
    double flops_per_token;
    int failed;
};

static const struct shape gpt2_124m = {
    .pp = 1,
    .threads = 1,
    .microbatches = 1,
    .micro_batch_size = 4,
    .seq_len = 256,
    .layers = 12,
    .hidden = 768,
    .heads = 12,
    .vocab = 50257,
    .steps = 4,
    .split = "auto",
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Of the steps after the first, which warms up caches and touches the moments. */
static double median(const double *values, long count)
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

static enum status write_config(const char *path, const char *text, const struct shape *shape)
{
    FILE *file = fopen(path, "w");

    if (file == NULL) {
        return status_fail(STATUS_ERR_IO, "cannot write %s", path);
    }
    (void)fprintf(file,
                  "model: {num_layers: %ld, hidden_size: %ld, num_heads: %ld, seq_len: %ld, "
                  "vocab_size: %ld}\n"
                  "parallel: {pp: %ld, layers_per_stage: %s}\n"
                  "train: {steps: %ld, micro_batch_size: %ld, num_microbatches: %ld, threads: %ld, "
                  "run_dir: unused}\n"
                  "optimizer: {lr: 1.0e-4, warmup_steps: 1, decay_steps: 1000}\n"
                  "data: {train: %s, format: text}\n",
                  shape->layers, shape->hidden, shape->heads, shape->seq_len, shape->vocab,
                  shape->pp, shape->split, shape->steps, shape->micro_batch_size,
                  shape->microbatches, shape->threads, text);
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

static enum status run_steps(struct engine *engine, struct result *result)
{
    for (int64_t step = 0; step < engine->config->train.steps; step++) {
        int64_t begin_ns = clock_now_ns();

        TRY(engine_step(engine));
        if (engine->grid.rank == 0) {
            result->seconds[step] = (double)(clock_now_ns() - begin_ns) * 1e-9;
            result->bubble[step] = engine->update.outcome.bubble;
            result->ideal[step] = ideal_bubble(engine);
            result->flops_per_token = model_flops_per_token(&engine->shape);
        }
        span_ring_discard(&engine->spans);
    }
    return STATUS_OK;
}

static int run_rank(const struct shape *shape, const char *directory, int32_t rank,
                    struct result *result)
{
    char path[256];
    struct config *config = NULL;
    struct engine *engine = NULL;
    struct cancel cancel = {0};
    struct engine_options options = {
        .rank = rank,
        .world = (int32_t)shape->pp,
        .local_ranks = (int32_t)shape->pp,
        .job_directory = directory,
        .cancel = &cancel,
    };
    enum status status = STATUS_OK;

    (void)snprintf(path, sizeof(path), "%s/bench.yaml", directory);
    status = config_load(path, NULL, 0, &config);
    if (status >= 0) {
        options.config = config;
        status = engine_open(&options, &engine);
    }
    if (status >= 0) {
        status = run_steps(engine, result);
    }
    status = engine_close(&engine, status);
    config_destroy(&config);
    return status < 0 ? 1 : 0;
}

static int run_processes(const struct shape *shape, const char *directory, struct result *result)
{
    int failed = 0;

    for (long rank = 0; rank < shape->pp; rank++) {
        pid_t child = fork();

        if (child == 0) {
            _exit(run_rank(shape, directory, (int32_t)rank, result));
        }
        failed += child < 0;
    }
    for (long rank = 0; rank < shape->pp; rank++) {
        int status = 0;

        failed += wait(&status) < 0 || status != 0;
    }
    return failed;
}

/* Runs the shape in processes of its own and fills *result; 0 on success. */
static int measure(const struct shape *shape, struct result *result)
{
    char directory[] = "/tmp/weir-bench-XXXXXX";
    char text[64];
    char yaml[64];
    struct result *shared =
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
    (void)unlink(text);
    (void)unlink(yaml);
    (void)rmdir(directory);
    (void)munmap(shared, sizeof(*shared));
    return failed;
}

static double tokens_per_second(const struct shape *shape, const struct result *result)
{
    return (double)(shape->microbatches * shape->micro_batch_size * shape->seq_len) /
           median(result->seconds, shape->steps);
}

/* Measures and prints one shape; tokens/s, or 0 where it failed. `peak` is of all its threads. */
static double report(const struct shape *shape, double peak)
{
    char name[128];
    struct result result;
    double rate = 0.0;

    (void)snprintf(name, sizeof(name), "pp%ld-t%ld-m%ld-%ldx%ld-L%ld-C%ld-V%ld", shape->pp,
                   shape->threads, shape->microbatches, shape->micro_batch_size, shape->seq_len,
                   shape->layers, shape->hidden, shape->vocab);
    if (measure(shape, &result) != 0) {
        (void)printf("step\t%s\tnan\ttokens/s\n", name);
        return 0.0;
    }
    rate = tokens_per_second(shape, &result);
    (void)printf("step\t%s\t%.1f\ttokens/s\n", name, rate);
    (void)printf("step\t%s\t%.1f\t%% of FMA peak\n", name,
                 100.0 * rate * result.flops_per_token / peak);
    (void)printf("step\t%s\t%.2f\t%% bubble\n", name, 100.0 * median(result.bubble, shape->steps));
    (void)printf("step\t%s\t%.2f\t%% bubble, ideal\n", name,
                 100.0 * median(result.ideal, shape->steps));
    (void)fflush(stdout);
    return rate;
}

static void run_usual(void)
{
    struct shape one = gpt2_124m;
    struct shape two = gpt2_124m;
    struct shape pipeline = gpt2_124m;
    struct shape alone = gpt2_124m;
    double peak1 = peak_measure_flops(1);
    double peak2 = peak_measure_flops(2);
    double piped = 0.0;
    double single = 0.0;

    two.threads = 2;
    pipeline.pp = 2;
    pipeline.microbatches = 8;
    pipeline.steps = 3;
    pipeline.split = "[9, 3]"; /* the head costs as much as 5.5 layers */
    alone.microbatches = 8;
    alone.steps = 3;
    (void)printf("peak\t1 thread\t%.1f\tGFLOP/s\n", peak1 * 1e-9);
    (void)printf("peak\t2 threads\t%.1f\tGFLOP/s\n", peak2 * 1e-9);
    (void)report(&one, peak1);
    (void)report(&two, peak2);
    single = report(&alone, peak1);
    piped = report(&pipeline, peak2);
    if (single > 0.0) {
        (void)printf("ratio\tpp2 x 1 thread / 1 process x 1 thread, m 8\t%.3f\t\n", piped / single);
    }
}

static void run_crowded(void)
{
    struct shape two = {
        .pp = 2,
        .threads = 1,
        .microbatches = 16,
        .micro_batch_size = 4,
        .seq_len = 128,
        .layers = 8,
        .hidden = 256,
        .heads = 4,
        .vocab = 256,
        .steps = 8,
        .split = "auto",
    };
    struct shape eight = two;
    double peak = peak_measure_flops(2);
    double rate2 = 0.0;
    double rate8 = 0.0;

    eight.pp = 8;
    rate2 = report(&two, peak);
    rate8 = report(&eight, peak);
    (void)printf("ratio\tpp 8 / pp 2, m 16, 1 thread each\t%.3f\t\n", rate8 / rate2);
}

/* What a rank's time holds besides compute, by action; one stage sends nothing, so its figure is
 * executor and spans alone, and two stages add lanes, latency and the pipeline's own bubble. */
static void run_overhead(void)
{
    struct shape shape = {
        .pp = 1,
        .threads = 1,
        .microbatches = 512,
        .micro_batch_size = 1,
        .seq_len = 2,
        .layers = 2,
        .hidden = 8,
        .heads = 1,
        .vocab = 256,
        .steps = 16,
        .split = "auto",
    };

    for (shape.pp = 1; shape.pp <= 2; shape.pp++) {
        /* F, then B on one stage; F, RECV, SEND, I, W with messages each way on two. */
        double actions = (double)shape.microbatches * (shape.pp == 1 ? 2.0 : 5.0);
        struct result result;

        if (measure(&shape, &result) != 0) {
            (void)printf("overhead\tpp%ld\tnan\tus/action\n", shape.pp);
            continue;
        }
        (void)printf("overhead\tpp%ld, %ld micro-batches\t%.2f\tus/action\n", shape.pp,
                     shape.microbatches,
                     1e6 * median(result.bubble, shape.steps) *
                         median(result.seconds, shape.steps) / actions);
    }
}

static int run_given(int argc, char **argv)
{
    static const struct option options[] = {
        {"pp", required_argument, NULL, 0},
        {"threads", required_argument, NULL, 1},
        {"num-microbatches", required_argument, NULL, 2},
        {"micro-batch-size", required_argument, NULL, 3},
        {"seq-len", required_argument, NULL, 4},
        {"num-layers", required_argument, NULL, 5},
        {"hidden", required_argument, NULL, 6},
        {"heads", required_argument, NULL, 7},
        {"vocab", required_argument, NULL, 8},
        {"steps", required_argument, NULL, 9},
        {"crowded", no_argument, NULL, 10},
        {"overhead", no_argument, NULL, 11},
        {NULL, 0, NULL, 0},
    };
    struct shape shape = gpt2_124m;
    long *fields[] = {&shape.pp,      &shape.threads, &shape.microbatches, &shape.micro_batch_size,
                      &shape.seq_len, &shape.layers,  &shape.hidden,       &shape.heads,
                      &shape.vocab,   &shape.steps};
    int option = 0;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 10) {
            run_crowded();
            return 0;
        }
        if (option == 11) {
            run_overhead();
            return 0;
        }
        if (option < 0 || option > 9) {
            return 1;
        }
        *fields[option] = strtol(optarg, NULL, 10);
    }
    if (shape.steps < 1 || shape.steps > STEPS_MOST || shape.pp < 1) {
        return 1;
    }
    return report(&shape, peak_measure_flops((int)(shape.pp * shape.threads))) > 0.0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        return run_given(argc, argv);
    }
    run_usual();
    return 0;
}

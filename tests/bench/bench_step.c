/*
 * bench_step -- whole training steps: tokens per second, and the share of the machine's measured
 * FMA peak that they reach.
 *
 *     bench_step                          GPT-2 124M fp32, 4 × 256: one process × 1 and 2 threads,
 *                                         and 2 stage processes × 1 thread with m = 8
 *     bench_step --crowded                pp 8 against pp 2, one thread each, a smaller model
 *     bench_step --overhead               time an action costs beside its compute, tiny model
 *     bench_step --layouts                one process × 1 thread beside tp 2, dp 2, pp 2, and pp 2
 *                                         interleaved, one thread a rank
 *     bench_step --embedding              what the embedding sync takes, and what is exposed of it:
 *                                         pp 4, m 8, 150 MB, over ZeroMQ and over the data plane
 *     bench_step --formats                one process × 1 thread in fp32, bf16 and fp16, in turns
 *     bench_step --recompute              the same in fp32 with recompute and with dropout, in turns
 *     bench_step --trace [options]        what tracing every step costs: a small model on 2 ranks x 1 thread,
 *                                         traced and not, in turns; the options below change its shape
 *     bench_step --pp 2 --tp 1 --dp 1 --virtual-stages 1 --threads 1 --num-microbatches 8
 *                --micro-batch-size 4 --seq-len 256 --num-layers 12 --hidden 768 --heads 12
 *                --vocab 50257 --steps 5
 *
 * Prints `name shape value unit`, tab separated; medians over the steps after the first.
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/peak.h"
#include "tests/bench/step_rig.h"

static const struct step_shape gpt2_124m = {
    .pp = 1,
    .tp = 1,
    .dp = 1,
    .virtual_stages = 1,
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
    .sync = "auto",
};

/* Seconds on two cores. */
static const struct step_shape small = {
    .pp = 2,
    .tp = 1,
    .dp = 1,
    .virtual_stages = 1,
    .threads = 1,
    .microbatches = 8,
    .micro_batch_size = 2,
    .seq_len = 128,
    .layers = 8,
    .hidden = 256,
    .heads = 4,
    .vocab = 256,
    .steps = 8,
    .split = "auto",
    .sync = "auto",
};

static double tokens_per_second(const struct step_shape *shape, const struct step_result *result)
{
    return (double)(shape->dp * shape->microbatches * shape->micro_batch_size * shape->seq_len) /
           step_median(result->seconds, shape->steps);
}

/* Measures and prints one shape; tokens/s, or 0 where it failed. `peak` is of all its threads. */
static double report(const struct step_shape *shape, double peak)
{
    char name[128];
    struct step_result result;
    double rate = 0.0;

    (void)snprintf(name, sizeof(name), "pp%ld-tp%ld-dp%ld-v%ld-t%ld-m%ld-%ldx%ld-L%ld-C%ld-V%ld",
                   shape->pp, shape->tp, shape->dp, shape->virtual_stages, shape->threads,
                   shape->microbatches, shape->micro_batch_size, shape->seq_len, shape->layers,
                   shape->hidden, shape->vocab);
    if (step_measure(shape, &result) != 0) {
        (void)printf("step\t%s\tnan\ttokens/s\n", name);
        return 0.0;
    }
    rate = tokens_per_second(shape, &result);
    (void)printf("step\t%s\t%.1f\ttokens/s\n", name, rate);
    (void)printf("step\t%s\t%.1f\t%% of FMA peak\n", name,
                 100.0 * rate * result.flops_per_token / peak);
    (void)printf("step\t%s\t%.2f\t%% bubble\n", name,
                 100.0 * step_median(result.bubble, shape->steps));
    (void)printf("step\t%s\t%.2f\t%% bubble, ideal\n", name,
                 100.0 * step_median(result.ideal, shape->steps));
    (void)fflush(stdout);
    return rate;
}

static void run_usual(void)
{
    struct step_shape one = gpt2_124m;
    struct step_shape two = gpt2_124m;
    struct step_shape pipeline = gpt2_124m;
    struct step_shape alone = gpt2_124m;
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

/* The same global batch in each: four micro-batches of one pipeline, two of each of two. */
static void run_layouts(void)
{
    struct step_shape shapes[5] = {gpt2_124m, gpt2_124m, gpt2_124m, gpt2_124m, gpt2_124m};
    static const char *const names[] = {"", "tp 2", "dp 2", "pp 2", "pp 2, 2 virtual stages"};
    double peak1 = peak_measure_flops(1);
    double peak2 = peak_measure_flops(2);
    double single = 0.0;

    for (int i = 0; i < 5; i++) {
        shapes[i].microbatches = 4;
        shapes[i].steps = 3;
    }
    shapes[1].tp = 2;
    shapes[2].dp = 2;
    shapes[2].microbatches = 2;
    shapes[3].pp = 2;
    shapes[3].split = "[9, 3]"; /* the head costs as much as 5.5 layers */
    shapes[4].pp = 2;
    shapes[4].virtual_stages = 2;
    shapes[4].split = "[5, 4, 3, 0]";
    for (int i = 0; i < 5; i++) {
        double rate = report(&shapes[i], i == 0 ? peak1 : peak2);

        if (i == 0) {
            single = rate;
        } else if (single > 0.0) {
            (void)printf("ratio\t%s / one process, 1 thread a rank\t%.3f\t\n", names[i],
                         rate / single);
        }
        (void)fflush(stdout);
    }
}

/* A vocabulary of 150 MB at a hidden size that leaves the rest of the model small. */
static void run_embedding(void)
{
    static const char *const ways[] = {"zmq", "data_plane"};
    struct step_shape shape = gpt2_124m;

    shape.pp = 4;
    shape.microbatches = 8;
    shape.layers = 8;
    shape.split = "[3, 3, 2, 0]";
    shape.steps = 4;
    for (int i = 0; i < 2; i++) {
        struct step_result result;

        shape.sync = ways[i];
        if (step_measure(&shape, &result) != 0) {
            (void)printf("embedding\t%s\tnan\tms\n", ways[i]);
            continue;
        }
        double took = step_median(result.sync_transfer, shape.steps);
        double exposed = step_median(result.sync_exposed, shape.steps);

        (void)printf("embedding\t%s, both ways, a step\t%.1f\tms\n", ways[i], 1e3 * took);
        (void)printf("embedding\t%s, exposed\t%.2f\tms\n", ways[i], 1e3 * exposed);
        (void)printf("embedding\t%s, exposed\t%.2f\t%%\n", ways[i], 100.0 * exposed / took);
        (void)fflush(stdout);
    }
}

/* Rounds of all in turns, so that a slow minute of the machine is everybody's. */
#define TURNS 3

struct variant {
    const char *name;
    struct step_shape shape;
    double seconds[TURNS];
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Prints what each takes beside the first: the median over rounds of the median step. 0 where all ran. */
static int run_in_turns(struct variant *variants, int count)
{
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < count; i++) {
            struct step_result result;

            if (step_measure(&variants[i].shape, &result) != 0) {
                (void)printf("step\t%s\tnan\ts\n", variants[i].name);
                return 1;
            }
            variants[i].seconds[turn] = step_median(result.seconds, variants[i].shape.steps);
        }
    }
    for (int i = 0; i < count; i++) {
        qsort(variants[i].seconds, TURNS, sizeof(double), by_size);
        (void)printf("step\t%s\t%.3f\ts\n", variants[i].name, variants[i].seconds[TURNS / 2]);
        if (i > 0) {
            (void)printf("ratio\t%s / %s\t%.3f\t\n", variants[i].name, variants[0].name,
                         variants[i].seconds[TURNS / 2] / variants[0].seconds[TURNS / 2]);
        }
    }
    return 0;
}

static void run_formats(void)
{
    struct variant variants[] = {
        {.name = "fp32", .shape = gpt2_124m},
        {.name = "bf16", .shape = gpt2_124m},
        {.name = "fp16", .shape = gpt2_124m},
    };

    for (int i = 0; i < 3; i++) {
        variants[i].shape.dtype = variants[i].name;
        variants[i].shape.steps = 3;
    }
    (void)run_in_turns(variants, 3);
}

static void run_recompute(void)
{
    struct variant variants[] = {
        {.name = "none", .shape = gpt2_124m},
        {.name = "selective", .shape = gpt2_124m},
        {.name = "full", .shape = gpt2_124m},
        {.name = "none, dropout 0.1", .shape = gpt2_124m},
    };

    for (int i = 0; i < 4; i++) {
        variants[i].shape.recompute = i < 3 ? variants[i].name : "none";
        variants[i].shape.steps = 3;
    }
    variants[3].shape.dropout = 0.1;
    (void)run_in_turns(variants, 4);
}

/* Spans are kept either way, because the step line is made of them; a trace writes them behind each step. */
static int run_trace(const struct step_shape *shape)
{
    struct variant variants[] = {
        {.name = "trace off", .shape = *shape},
        {.name = "trace on", .shape = *shape},
    };

    variants[1].shape.trace = true;
    return run_in_turns(variants, 2);
}

static void run_crowded(void)
{
    struct step_shape two = {
        .pp = 2,
        .tp = 1,
        .dp = 1,
        .virtual_stages = 1,
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
        .sync = "auto",
    };
    struct step_shape eight = two;
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
    struct step_shape shape = {
        .pp = 1,
        .tp = 1,
        .dp = 1,
        .virtual_stages = 1,
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
        .sync = "auto",
    };

    for (shape.pp = 1; shape.pp <= 2; shape.pp++) {
        /* F, then B on one stage; F, RECV, SEND, I, W with messages each way on two. */
        double actions = (double)shape.microbatches * (shape.pp == 1 ? 2.0 : 5.0);
        struct step_result result;

        if (step_measure(&shape, &result) != 0) {
            (void)printf("overhead\tpp%ld\tnan\tus/action\n", shape.pp);
            continue;
        }
        (void)printf("overhead\tpp%ld, %ld micro-batches\t%.2f\tus/action\n", shape.pp,
                     shape.microbatches,
                     1e6 * step_median(result.bubble, shape.steps) *
                         step_median(result.seconds, shape.steps) / actions);
    }
}

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
    {"tp", required_argument, NULL, 10},
    {"dp", required_argument, NULL, 11},
    {"virtual-stages", required_argument, NULL, 12},
    {"trace", no_argument, NULL, 13},
    {NULL, 0, NULL, 0},
};

static int run_given(int argc, char **argv)
{
    bool trace = strcmp(argv[1], "--trace") == 0;
    struct step_shape shape = trace ? small : gpt2_124m;
    long *fields[] = {&shape.pp,
                      &shape.threads,
                      &shape.microbatches,
                      &shape.micro_batch_size,
                      &shape.seq_len,
                      &shape.layers,
                      &shape.hidden,
                      &shape.heads,
                      &shape.vocab,
                      &shape.steps,
                      &shape.tp,
                      &shape.dp,
                      &shape.virtual_stages};
    int option = 0;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 13 && trace) {
            continue;
        }
        if (option < 0 || option > 12) {
            return 1;
        }
        *fields[option] = strtol(optarg, NULL, 10);
    }
    if (shape.steps < 1 || shape.steps > STEPS_MOST || step_world(&shape) < 1) {
        return 1;
    }
    if (trace) {
        return run_trace(&shape);
    }
    return report(&shape, peak_measure_flops((int)(step_world(&shape) * shape.threads))) > 0.0 ? 0
                                                                                               : 1;
}

/* A run with a name; NULL where the argument is not one. */
static void (*find_run(const char *name))(void)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } runs[] = {
        {"--crowded", run_crowded}, {"--overhead", run_overhead},
        {"--layouts", run_layouts}, {"--embedding", run_embedding},
        {"--formats", run_formats}, {"--recompute", run_recompute},
    };

    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        if (strcmp(name, runs[i].name) == 0) {
            return runs[i].run;
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    void (*run)(void) = argc > 1 ? find_run(argv[1]) : run_usual;

    if (run == NULL) {
        return run_given(argc, argv);
    }
    run();
    return 0;
}

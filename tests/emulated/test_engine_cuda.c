/*
 * Whole trainings on the GPU as a device, over the fake runtime: each rank is a thread with a GPU of its own, whose
 * memory the host cannot touch, and whose streams run as late as they may, in an order drawn from a seed. Ranks reach
 * each other through the host (collectives/comm_staged.h). The same program over the real runtime is gpu.test_engine
 * (tests/on_gpu): there the ranks share a GPU, and the order is its own.
 *
 * `test_engine_cuda --seeds N` compares N orders in place of a few.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cuda/device_cuda.h"
#include "tests/emulated/gpu_order.h"
#include "tests/stages/base_run.h"
#include "tests/stages/oracle.h"

#define SEEDS       5
#define ORDERS_MOST 1000

static int orders = SEEDS;

/* Of the job that runs: read by its ranks. */
static uint64_t order_seed;

/* A GPU of the rank's own, kernels and streams in an order of the seed. */
static void begin_rank(void *context)
{
    const uint64_t *seed = context;

    gpu_begin(*seed);
}

static const struct rig_hooks on_gpu = {.context = &order_seed, .on_begin = begin_rank};

/* The table is a function's to give, so it is no constant. */
static struct rig_hooks gpu_hooks(void)
{
    struct rig_hooks hooks = on_gpu;

    hooks.backend = device_cuda();
    return hooks;
}

struct format {
    const char *name;
    double first_loss; /* of the oracle's losses, as in tests/stages/test_precision.c */
    double loss;
};

static const struct format formats[] = {{"fp32", ORACLE_LOSS_TOLERANCE, ORACLE_LOSS_TOLERANCE},
                                        {"bf16", 2e-4, 2e-2},
                                        {"fp16", 3e-5, 3e-3}};

#define FORMATS (sizeof(formats) / sizeof(formats[0]))

struct layout {
    int pp;
    int tp;
    int dp;
    int micro_batch;
    int steps; /* 0: all of the oracle's */
};

static void follow(const struct oracle *oracle, const struct format *format,
                   const struct layout *layout)
{
    const struct rig_hooks hooks = gpu_hooks();
    static struct rig_result run;
    char text[6][64];
    const char *overrides[6] = {text[0], text[1], text[2], text[3], text[4], text[5]};
    char what[128];

    (void)snprintf(text[0], sizeof(text[0]), "precision.dtype=%s", format->name);
    (void)snprintf(text[1], sizeof(text[1]), "parallel.pp=%d", layout->pp);
    (void)snprintf(text[2], sizeof(text[2]), "parallel.tp=%d", layout->tp);
    (void)snprintf(text[3], sizeof(text[3]), "parallel.dp=%d", layout->dp);
    (void)snprintf(text[4], sizeof(text[4]), "train.micro_batch_size=%d", layout->micro_batch);
    (void)snprintf(text[5], sizeof(text[5]), "train.steps=%d", layout->steps);
    (void)snprintf(what, sizeof(what), "%s, pp %d, tp %d, dp %d, micro-batch %d", format->name,
                   layout->pp, layout->tp, layout->dp, layout->micro_batch);
    rig_run_watched(oracle->yaml, overrides, layout->steps > 0 ? 6 : 5, &hooks, &run);
    if (run.status < 0) {
        fail_msg("%s: %s", what, run.message);
    }
    assert_int_equal(run.ranks_disagree + run.copies_disagree + run.holes, 0);
    if (strcmp(format->name, "fp32") == 0) {
        oracle_check(oracle, &run, what);
    } else {
        oracle_check_losses(oracle, &run, format->first_loss, format->loss, what);
    }
    rig_release(&run);
}

static void one_gpu_follows_the_oracles_to_their_end(void **state)
{
    static const struct layout alone = {1, 1, 1, 8, 0};

    (void)state;
    order_seed = 1;
    for (size_t f = 0; f < FORMATS; f++) {
        follow(&oracle_plain, &formats[f], &alone);
        follow(&oracle_masked, &formats[f], &alone);
    }
}

static void several_gpus_follow_the_oracles(void **state)
{
    static const struct layout layouts[] = {
        {2, 1, 1, 4, 3}, {1, 2, 1, 4, 3}, {1, 1, 2, 4, 3}, {2, 2, 2, 4, 3}};

    (void)state;
    order_seed = 2;
    for (size_t f = 0; f < 2; f++) {
        for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
            follow(i % 2 == 0 ? &oracle_plain : &oracle_masked, &formats[f], &layouts[i]);
        }
    }
}

static void train(const struct base_run *base, uint64_t seed, struct rig_result *run)
{
    const struct rig_hooks hooks = gpu_hooks();
    struct base_run on = *base;

    order_seed = seed;
    on.hooks = &hooks;
    base_train(&on, run);
}

/* Whatever order the streams run in, and the threads of a kernel. */
static void every_order_gives_the_same_bits(void **state)
{
    static const struct base_run jobs[] = {
        {.steps = 2, .micro_batch = 4},
        {.pp = 2, .steps = 2, .micro_batch = 4, .more = {"precision.dtype=bf16"}},
    };
    static struct rig_result first;
    static struct rig_result run;

    (void)state;
    for (size_t job = 0; job < sizeof(jobs) / sizeof(jobs[0]); job++) {
        train(&jobs[job], 1, &first);
        for (int seed = 2; seed <= orders; seed++) {
            train(&jobs[job], (uint64_t)seed, &run);
            base_assert_same(&jobs[job], &run, &first);
            rig_release(&run);
        }
        rig_release(&first);
    }
}

/* DESIGN 5.2 on a GPU: pipelines, recompute, slices of the optimizer change no bit; shards and replicas are each
 * compared with their like. */
static void layouts_of_one_kind_have_the_same_bits(void **state)
{
    static const struct {
        struct base_run one;
        struct base_run other[4];
    } kinds[] = {
        {{.steps = 2, .micro_batch = 4},
         {{.pp = 2, .steps = 2, .micro_batch = 4},
          {.pp = 3, .steps = 2, .micro_batch = 4, .schedule = "gpipe"},
          {.pp = 2, .virtual_stages = 2, .steps = 2, .micro_batch = 4},
          {.steps = 2, .micro_batch = 4, .more = {"train.recompute=full"}}}},
        {{.steps = 2, .micro_batch = 4, .more = {"precision.dtype=bf16", "model.dropout=0.1"}},
         {{.pp = 2,
           .steps = 2,
           .micro_batch = 4,
           .more = {"precision.dtype=bf16", "model.dropout=0.1"}},
          {.steps = 2,
           .micro_batch = 4,
           .more = {"precision.dtype=bf16", "model.dropout=0.1", "train.recompute=selective"}},
          {.steps = 2,
           .micro_batch = 4,
           .more = {"precision.dtype=bf16", "model.dropout=0.1", "train.recompute=full"}},
          {.steps = 0}}},
        {{.dp = 2, .steps = 2, .micro_batch = 4},
         {{.dp = 2, .steps = 2, .micro_batch = 4, .more = {"parallel.zero_stage=1"}},
          {.dp = 2, .steps = 2, .micro_batch = 4, .more = {"parallel.zero_stage=2"}},
          {.dp = 2, .steps = 2, .micro_batch = 4, .more = {"parallel.zero_stage=3"}},
          {.pp = 2, .dp = 2, .steps = 2, .micro_batch = 4, .more = {"parallel.zero_stage=3"}}}},
        {{.tp = 2, .steps = 2, .micro_batch = 4, .more = {"precision.dtype=fp16"}},
         {{.pp = 2, .tp = 2, .steps = 2, .micro_batch = 4, .more = {"precision.dtype=fp16"}},
          {.steps = 0},
          {.steps = 0},
          {.steps = 0}}},
    };
    static struct rig_result one;
    static struct rig_result other;

    (void)state;
    for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
        train(&kinds[kind].one, 3, &one);
        for (size_t i = 0; i < 4 && kinds[kind].other[i].steps > 0; i++) {
            train(&kinds[kind].other[i], 4, &other);
            base_assert_same(&kinds[kind].other[i], &other, &one);
            if (kinds[kind].other[i].pp > 1) {
                base_assert_copy(&other);
            }
            rig_release(&other);
        }
        rig_release(&one);
    }
}

/* The masks of dropout are the CPU's, to the bit, so that the training is close to the CPU's; another seed's is not. */
static void dropout_is_that_of_the_cpu(void **state)
{
    const struct base_run dropped = {.steps = 3, .micro_batch = 4, .more = {"model.dropout=0.1"}};
    const struct base_run other = base_with(&dropped, "train.seed=4321");
    static struct rig_result gpu;
    static struct rig_result cpu;

    (void)state;
    train(&dropped, 5, &gpu);
    base_train(&dropped, &cpu);
    base_assert_close(&dropped, &gpu, &cpu);
    rig_release(&cpu);
    base_train(&other, &cpu);
    assert_true(oracle_relative(gpu.loss[0], cpu.loss[0]) > 1e-4);
    rig_release(&cpu);
    rig_release(&gpu);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_gpu_follows_the_oracles_to_their_end),
        cmocka_unit_test(several_gpus_follow_the_oracles),
        cmocka_unit_test(every_order_gives_the_same_bits),
        cmocka_unit_test(layouts_of_one_kind_have_the_same_bits),
        cmocka_unit_test(dropout_is_that_of_the_cpu),
    };

    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) {
        orders = atoi(argv[2]);
    }
    if (orders < 2 || orders > ORDERS_MOST) {
        (void)fprintf(stderr, "test_engine_cuda: --seeds N, of 2 to %d\n", ORDERS_MOST);
        return 1;
    }
    return cmocka_run_group_tests_name("engine_cuda", tests, base_make, base_remove);
}

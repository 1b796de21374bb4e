/*
 * ZeRO: gradients of layers that become sums over the replicas while W still runs, in buckets or in
 * place, on a thread of their own or not: with the bits of replicas that sum everything at the end. They
 * move what the plan says, and hold what a hand count says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "stages/engine.h"
#include "stages/engine_start.h"
#include "tests/stages/base_run.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* What was seen of the ranks, of all steps. */
struct seen {
    int64_t own;                /* gradients that are slices */
    int64_t wrong;              /* slices where the whole should be, or the other way round */
    int64_t unplanned;          /* bytes moved and not planned, or the other way round */
    int64_t unused;             /* bytes held and not planned, or the other way round */
    int64_t aside;              /* layers that a thread of their own has summed */
    int64_t layers;             /* of all ranks, times the steps */
    size_t buckets;             /* bytes, of the rank that has most */
    struct memory_table memory; /* of the rank that was last */
};

static int64_t distance(uint64_t a, uint64_t b)
{
    return (int64_t)(a > b ? a - b : b - a);
}

static bool is_matrix_of_layer(const struct param *param)
{
    return strncmp(param->name, "h.", 2) == 0 && param->rows > 1;
}

static int64_t layers_of(const struct engine *engine)
{
    int64_t layers = 0;

    for (int32_t i = 0; i < engine->params.count; i++) {
        layers += strstr(engine->params.table[i].name, ".ln_1.weight") != NULL ? 1 : 0;
    }
    return layers;
}

/* Where a step has one micro-batch, and buckets and slices are less than whole gradients. All chunks here have
 * two layers or more, or none. */
static bool should_scatter(const struct engine *engine)
{
    const struct config_parallel *parallel = &engine->config->parallel;
    int64_t buckets = parallel->overlap_grad_reduce == CONFIG_TRUE ? 2 : 1;

    return parallel->zero_stage >= 2 && engine->config->train.num_microbatches == 1 &&
           buckets * parallel->dp < layers_of(engine) * (parallel->dp - 1);
}

static void look(void *context, const struct engine *engine)
{
    struct seen *seen = context;
    bool scatters = should_scatter(engine);

    struct traffic planned = {{0}};
    struct traffic counted;

    (void)traffic_plan(engine->config, engine->plan, &engine->grid, &planned);
    engine_read_traffic(engine, &counted);
    seen->unplanned += distance(planned.bytes[TRAFFIC_GRADIENT_SUMS] * (uint64_t)engine->steps_run,
                                counted.bytes[TRAFFIC_GRADIENT_SUMS]);
    seen->unused += distance(engine->memory.total_bytes, engine_used_bytes(engine));
    seen->memory = engine->memory;
    if (engine->memory.bytes[MEMORY_BUCKETS] > seen->buckets) {
        seen->buckets = engine->memory.bytes[MEMORY_BUCKETS];
    }
    seen->aside += engine->buckets.all_given;
    for (int32_t i = 0; i < engine->params.count; i++) {
        const struct param *param = &engine->params.table[i];

        seen->own += param->own_grad ? 1 : 0;
        seen->wrong += param->own_grad != (scatters && is_matrix_of_layer(param)) ? 1 : 0;
    }
    seen->layers += layers_of(engine) * engine->steps_run;
}

static void train(const struct base_run *base, int stage, bool overlaps, struct rig_result *run,
                  struct seen *seen)
{
    const struct rig_hooks hooks = {.context = seen, .on_step = look};
    struct base_run layout = *base;
    char zero[64];
    int place = 0;

    (void)snprintf(zero, sizeof(zero), "parallel.zero_stage=%d", stage);
    while (layout.more[place] != NULL) {
        place++;
    }
    assert_true(place + 1 < BASE_MORE);
    layout.more[place] = zero;
    layout.more[place + 1] =
        overlaps ? "parallel.overlap_grad_reduce=true" : "parallel.overlap_grad_reduce=false";
    layout.hooks = &hooks;
    *seen = (struct seen){0};
    base_train(&layout, run);
    assert_int_equal(seen->unplanned, 0);
    assert_int_equal(seen->unused, 0);
    assert_int_equal(seen->wrong, 0);
    assert_int_equal(seen->aside, overlaps && stage > 0 ? seen->layers : 0);
}

/* Whether `stage` shares gradients out is said by `scatters`. */
static void check_stage(const struct base_run *layout, int stage, bool scatters,
                        const struct rig_result *whole)
{
    static struct rig_result run;
    struct seen seen;

    for (int overlaps = 0; overlaps < 2; overlaps++) {
        train(layout, stage, overlaps == 1, &run, &seen);
        assert_int_equal(seen.own > 0, scatters);
        assert_int_equal(seen.buckets > 0, scatters);
        base_assert_same(layout, &run, whole);
        rig_release(&run);
    }
}

static void check_layout(const struct base_run *layout, bool one_microbatch)
{
    static struct rig_result whole;
    struct seen seen;

    train(layout, 0, false, &whole, &seen);
    for (int stage = 1; stage <= 3; stage++) {
        check_stage(layout, stage, stage >= 2 && one_microbatch, &whole);
    }
    rig_release(&whole);
}

/* 36 columns and 257 tokens: no slice is as large as the next, and of four some are empty. */
#define ODD "model.hidden_size=36", "model.vocab_size=257"

/* Enough layers that buckets and slices are less than whole gradients on every rank. */
#define DEEP "model.num_layers=12"

/* One micro-batch a step: all of a replica's rows at once. */
static void test_one_micro_batch_has_the_bits_of_stage_zero(void **state)
{
    static const struct base_run layouts[] = {
        {.dp = 2, .micro_batch = 4, .steps = 3, .more = {DEEP}},
        {.dp = 4, .micro_batch = 2, .steps = 3, .more = {DEEP, ODD}},
        {.dp = 2, .micro_batch = 4, .steps = 2, .more = {DEEP, ODD, "precision.dtype=bf16"}},
        {.dp = 2,
         .micro_batch = 4,
         .steps = 2,
         .more = {DEEP, ODD, "model.dropout=0.1", "train.recompute=full",
                  "optimizer.grad_clip=0.1"}},
        {.tp = 2,
         .dp = 2,
         .micro_batch = 4,
         .steps = 2,
         .more = {DEEP, ODD, "precision.dtype=fp16"}},
        {.tp = 2,
         .dp = 2,
         .micro_batch = 4,
         .steps = 2,
         .more = {DEEP, "parallel.sequence_parallel=true", "optimizer.name=sgd"}},
        {.pp = 2, .dp = 2, .micro_batch = 4, .steps = 2, .more = {DEEP, ODD}},
        {.pp = 2, .dp = 2, .virtual_stages = 2, .micro_batch = 4, .steps = 2, .more = {DEEP}},
        {.pp = 2,
         .dp = 2,
         .micro_batch = 4,
         .steps = 2,
         .more = {DEEP, "parallel.layers_per_stage=[12, 0]"}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        check_layout(&layouts[i], true);
    }
}

/* The last W of each chunk gives its layers to the thread; nothing is shared out. */
static void test_more_micro_batches_overlap_with_the_bits_of_stage_zero(void **state)
{
    static const struct base_run layouts[] = {
        {.dp = 2, .steps = 3, .more = {ODD}},
        {.dp = 4, .steps = 2, .more = {ODD, "precision.dtype=bf16"}},
        {.pp = 2, .dp = 2, .steps = 2, .more = {"parallel.early_send=false"}},
        {.pp = 2, .dp = 2, .virtual_stages = 2, .steps = 2, .more = {ODD}},
        {.pp = 2, .tp = 2, .dp = 2, .steps = 2, .more = {ODD}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        check_layout(&layouts[i], false);
    }
}

/* Gradients that overflow, shared out: all ranks skip. That a bad number in a slice alone is seen, shows
 * tests/mixedprec/test_params_gradients. */
static void test_gradients_that_overflow_are_skipped_by_all(void **state)
{
    static struct rig_result run;
    const struct base_run layout = {.dp = 2,
                                    .micro_batch = 4,
                                    .steps = 2,
                                    .more = {DEEP, "parallel.zero_stage=2", "precision.dtype=fp16",
                                             "precision.initial_scale=1e18"}};

    (void)state;
    base_train(&layout, &run);
    assert_int_equal(run.skipped[0], 1);
    rig_release(&run);
}

/* Of the base model: a layer has 12 C² + 13 C numbers, of which 12 C² are in matrices; the tables have
 * 256 and 32 rows; C 64. A tied embedding's gradient stays whole. */
#define C      ((size_t)64)
#define LAYER  (12 * C * C + 13 * C)
#define REST   (C * 4 * 13 + C * 256 + C * 32 + C * 2)
#define MATRIX (12 * C * C)

static void expect_whole(const struct seen *seen)
{
    assert_int_equal(seen->memory.bytes[MEMORY_GRADIENTS], (4 * MATRIX + REST) * sizeof(float));
    assert_int_equal(seen->memory.bytes[MEMORY_BUCKETS], 0);
}

static void test_gradients_are_as_large_as_a_hand_count_says(void **state)
{
    static struct rig_result run;
    struct seen seen;
    struct base_run layout = {.dp = 2, .micro_batch = 4, .steps = 1};

    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        bool scatters = stage >= 2;

        train(&layout, stage, false, &run, &seen);
        rig_release(&run);
        assert_int_equal(seen.memory.bytes[MEMORY_GRADIENTS],
                         (4 * MATRIX / (scatters ? 2 : 1) + REST) * sizeof(float));
        assert_int_equal(seen.memory.bytes[MEMORY_BUCKETS], scatters ? MATRIX * sizeof(float) : 0);
    }
    /* With two buckets for the halves of four layers nothing would be saved; with two micro-batches there is
     * nothing to sum in time. */
    train(&layout, 2, true, &run, &seen);
    rig_release(&run);
    expect_whole(&seen);
    layout.micro_batch = 2;
    train(&layout, 2, false, &run, &seen);
    rig_release(&run);
    expect_whole(&seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_micro_batch_has_the_bits_of_stage_zero),
        cmocka_unit_test(test_more_micro_batches_overlap_with_the_bits_of_stage_zero),
        cmocka_unit_test(test_gradients_that_overflow_are_skipped_by_all),
        cmocka_unit_test(test_gradients_are_as_large_as_a_hand_count_says),
    };

    return cmocka_run_group_tests_name("zero_gradients", tests, base_make, base_remove);
}

/*
 * ZeRO: replicas that share out main params and moments train with the bits of replicas that do not,
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

/* What was seen of all ranks after all steps. */
struct seen {
    int64_t sliced; /* parameters */
    int64_t whole;
    int64_t unplanned; /* bytes that were moved and not planned, or the other way round */
};

static void look(void *context, const struct engine *engine)
{
    static const enum traffic_kind kinds[] = {TRAFFIC_GRADIENT_SUMS, TRAFFIC_WEIGHT_GATHERS};
    struct seen *seen = context;
    struct traffic planned = {{0}};
    struct traffic counted;

    (void)traffic_plan(engine->config, engine->plan, &engine->grid, &planned);
    engine_read_traffic(engine, &counted);
    for (size_t i = 0; i < COUNT(kinds); i++) {
        uint64_t expected = planned.bytes[kinds[i]] * (uint64_t)engine->steps_run;
        uint64_t found = counted.bytes[kinds[i]];

        seen->unplanned += (int64_t)(found > expected ? found - expected : expected - found);
    }
    for (int32_t i = 0; i < engine->params.count; i++) {
        *(engine->params.table[i].sliced ? &seen->sliced : &seen->whole) += 1;
    }
}

static void train(const struct base_run *base, int stage, bool tied, struct rig_result *run)
{
    struct seen seen = {0};
    const struct rig_hooks hooks = {.context = &seen, .on_step = look};
    struct base_run layout;
    char zero[64];

    (void)snprintf(zero, sizeof(zero), "parallel.zero_stage=%d", stage);
    layout = base_with(base, zero);
    layout =
        base_with(&layout, tied ? "model.tied_embeddings=true" : "model.tied_embeddings=false");
    layout.hooks = &hooks;
    base_train(&layout, run);
    assert_int_equal(seen.unplanned, 0);
    if (stage > 0) {
        assert_true(seen.sliced > 0);
        assert_int_equal(seen.whole, 0);
    } else {
        assert_true(seen.whole > 0);
        assert_int_equal(seen.sliced > 0, tied);
    }
    if (tied && layout.pp > 1) {
        base_assert_copy(run);
    }
}

/* Every stage has the bits of stage 0: losses, norms, first gradients and final weights. */
static void check_layout(const struct base_run *layout)
{
    static struct rig_result whole;
    static struct rig_result run;

    for (int tied = 0; tied < 2; tied++) {
        train(layout, 0, tied == 1, &whole);
        for (int step = 0; step < layout->steps; step++) {
            assert_int_equal(whole.skipped[step], 0);
        }
        for (int stage = 1; stage <= 3; stage++) {
            train(layout, stage, tied == 1, &run);
            base_assert_same(layout, &run, &whole);
            rig_release(&run);
        }
        rig_release(&whole);
    }
}

/* 36 columns and 257 tokens: no slice is as large as the next, and of four some are empty. */
#define ODD "model.hidden_size=36", "model.vocab_size=257"

static void test_two_replicas_have_the_bits_of_stage_zero(void **state)
{
    static const struct base_run layouts[] = {
        {.dp = 2, .steps = 3},
        {.dp = 2, .steps = 3, .more = {ODD}},
        {.pp = 2, .dp = 2, .steps = 3, .more = {ODD}},
        {.tp = 2, .dp = 2, .steps = 3, .more = {ODD}},
        {.pp = 2, .tp = 2, .dp = 2, .steps = 2, .more = {ODD}},
        {.pp = 2,
         .dp = 2,
         .virtual_stages = 2,
         .steps = 2,
         .more = {"parallel.embedding_sync=data_plane"}}};

    (void)state;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        check_layout(&layouts[i]);
    }
}

static void test_more_replicas_have_the_bits_of_stage_zero(void **state)
{
    static const struct base_run layouts[] = {{.dp = 4, .steps = 3, .more = {ODD}},
                                              {.dp = 3, .batch = 6, .steps = 2, .more = {ODD}},
                                              {.pp = 2, .dp = 4, .steps = 2, .more = {ODD}},
                                              {.tp = 2, .dp = 4, .steps = 2, .more = {ODD}}};

    (void)state;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        check_layout(&layouts[i]);
    }
}

/* Main params lie in slices, and weights of two bytes are gathered beside norms of four. */
static void test_sixteen_bit_weights_have_the_bits_of_stage_zero(void **state)
{
    static const struct base_run layouts[] = {
        {.dp = 2, .steps = 3, .more = {ODD, "precision.dtype=bf16"}},
        {.pp = 2, .dp = 2, .steps = 3, .more = {ODD, "precision.dtype=bf16"}},
        {.dp = 4, .steps = 3, .more = {ODD, "precision.dtype=fp16"}},
        {.pp = 2, .tp = 2, .dp = 2, .steps = 2, .more = {ODD, "precision.dtype=fp16"}}};

    (void)state;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        check_layout(&layouts[i]);
    }
}

/* Steps that are clipped, warm-up, and a held-out set after every step. */
static void test_evaluation_and_clipping_change_nothing(void **state)
{
    static struct rig_result whole;
    static struct rig_result run;
    static const struct base_run layout = {
        .pp = 2,
        .dp = 2,
        .steps = 4,
        .more = {"train.eval_every=1", "train.eval_steps=1", "optimizer.grad_clip=0.1"}};

    (void)state;
    train(&layout, 0, true, &whole);
    assert_true(whole.norm[0] > 0.1);
    train(&layout, 1, true, &run);
    base_assert_same(&layout, &run, &whole);
    assert_memory_equal(run.valid_loss, whole.valid_loss, sizeof(run.valid_loss));
    rig_release(&run);
    rig_release(&whole);
}

static void test_one_process_has_nothing_to_share_with(void **state)
{
    static struct rig_result plain;
    static struct rig_result run;
    static const struct base_run base = {.pp = 2, .steps = 2};
    static const struct base_run zero = {.pp = 2, .steps = 2, .more = {"parallel.zero_stage=1"}};

    (void)state;
    base_train(&base, &plain);
    base_train(&zero, &run);
    base_assert_same(&zero, &run, &plain);
    rig_release(&run);
    rig_release(&plain);
}

/* ---- Memory. ---- */

/* Of the base model: 4 layers of 12 C² + 13 C, of which four norms of C; tables of 256 and 32 rows,
 * the last norm; C 64. */
#define C      ((size_t)64)
#define LAYER  (12 * C * C + 13 * C)
#define WTE    (256 * C)
#define WPE    (32 * C)
#define LAST   (2 * C)
#define NORMS  (16 * C + LAST)
#define PARAMS (4 * LAYER + WTE + WPE + LAST)

/* The table of a rank in a job of one stage and `dp` replicas. */
static void measure(int64_t dp, int64_t index, int64_t stage, enum dtype type,
                    struct params *params)
{
    const struct config config = {
        .model = {.num_layers = 4,
                  .hidden_size = 64,
                  .num_heads = 4,
                  .ffn_hidden_size = 256,
                  .seq_len = 32,
                  .max_positions = 32,
                  .vocab_size = 256,
                  .tied_embeddings = true},
        .parallel = {.pp = 1,
                     .tp = 1,
                     .dp = dp,
                     .virtual_stages = 1,
                     .sequence_slices = 1,
                     .layers_per_stage = {4},
                     .zero_stage = stage},
        .train = {.micro_batch_size = 1, .num_microbatches = 2},
        .precision = {.dtype = type},
    };
    const struct replicas replicas = replicas_of(&config, (int32_t)index);
    struct head_memory head = {.copy = NULL};
    struct model_shape shape;
    struct chunk_range range;

    model_shape_of(&config, 0, &shape);
    chunk_range_of(&config, 0, &range);
    params_init(params, type, 2);
    assert_int_equal(parameters_add(params, &shape, &range), STATUS_OK);
    replicas_slice(&replicas, &shape, params, &head);
    params_measure(params);
}

static void expect_bytes(int64_t dp, int64_t stage, enum dtype type, size_t main, size_t moments)
{
    for (int64_t index = 0; index < dp; index++) {
        struct params params;

        measure(dp, index, stage, type, &params);
        assert_int_equal(params.main.planned_bytes, main);
        assert_int_equal(params.moments.planned_bytes, moments);
        assert_int_equal(params.gradients.planned_bytes, PARAMS * 4);
        assert_int_equal(params.weights.planned_bytes,
                         type == DTYPE_FP32 ? PARAMS * 4 : (PARAMS - NORMS) * 2 + NORMS * 4);
        params_release(&params);
    }
}

/* A tensor begins at a multiple of 128 bytes, 32 floats: of two replicas every slice is one. A tied
 * embedding is in slices at stage 0 too. */
static void test_main_params_and_moments_shrink_by_the_replicas(void **state)
{
    (void)state;
    expect_bytes(1, 0, DTYPE_FP32, 0, PARAMS * 8);
    expect_bytes(1, 1, DTYPE_BF16, (PARAMS - NORMS) * 4, PARAMS * 8);
    expect_bytes(2, 0, DTYPE_FP32, 0, (PARAMS - WTE / 2) * 8);
    expect_bytes(2, 1, DTYPE_FP32, 0, PARAMS / 2 * 8);
    expect_bytes(2, 0, DTYPE_FP16, (PARAMS - NORMS - WTE / 2) * 4, (PARAMS - WTE / 2) * 8);
    expect_bytes(2, 1, DTYPE_BF16, (PARAMS - NORMS) / 2 * 4, PARAMS / 2 * 8);
    expect_bytes(2, 2, DTYPE_FP16, (PARAMS - NORMS) / 2 * 4, PARAMS / 2 * 8);
}

/* Of four replicas a slice of a norm, or of a bias of C, has 16 floats, and one of the 3 C of Q, K
 * and V 48: of these room for 32 and 64 is planned. */
static void test_slices_that_do_not_fill_their_room_are_planned_with_it(void **state)
{
    const size_t room =
        448; /* floats, of 4 layers: four norms, two biases and that of 3 C, each 16 */
    const size_t last = 32;

    (void)state;
    expect_bytes(4, 1, DTYPE_FP32, 0, (PARAMS / 4 + room + last) * 8);
    /* Norms have no main params of their own: of 4 layers two biases and that of 3 C. */
    expect_bytes(4, 1, DTYPE_BF16, ((PARAMS - NORMS) / 4 + 192) * 4,
                 (PARAMS / 4 + room + last) * 8);
}

static void note_moments(void *context, const struct engine *engine)
{
    size_t *bytes = context;

    bytes[engine->grid.dp] = engine->memory.bytes[MEMORY_MOMENTS];
}

static void test_the_table_of_a_running_rank_says_so(void **state)
{
    static struct rig_result run;
    size_t bytes[2] = {0, 0};
    const struct rig_hooks hooks = {.context = bytes, .on_step = note_moments};
    struct base_run layout = {.dp = 2, .steps = 1, .hooks = &hooks};

    (void)state;
    base_train(&layout, &run);
    rig_release(&run);
    assert_int_equal(bytes[0], (PARAMS - WTE / 2) * 8);
    assert_int_equal(bytes[1], (PARAMS - WTE / 2) * 8);
    layout.more[0] = "parallel.zero_stage=1";
    base_train(&layout, &run);
    rig_release(&run);
    assert_int_equal(bytes[0], PARAMS / 2 * 8);
    assert_int_equal(bytes[1], PARAMS / 2 * 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_replicas_have_the_bits_of_stage_zero),
        cmocka_unit_test(test_more_replicas_have_the_bits_of_stage_zero),
        cmocka_unit_test(test_sixteen_bit_weights_have_the_bits_of_stage_zero),
        cmocka_unit_test(test_evaluation_and_clipping_change_nothing),
        cmocka_unit_test(test_one_process_has_nothing_to_share_with),
        cmocka_unit_test(test_main_params_and_moments_shrink_by_the_replicas),
        cmocka_unit_test(test_slices_that_do_not_fill_their_room_are_planned_with_it),
        cmocka_unit_test(test_the_table_of_a_running_rank_says_so),
    };

    return cmocka_run_group_tests_name("zero", tests, base_make, base_remove);
}

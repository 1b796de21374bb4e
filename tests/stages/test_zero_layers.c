/*
 * ZeRO 3: replicas that keep slices of the weights of layers, and gather them layer by layer, train
 * with the bits of replicas that keep all, in everything that asks for weights in another order or at
 * another time; they move what a hand count says, and hold what one says.
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

/* What was seen of the ranks after the last step. */
struct seen {
    int64_t scattered; /* parameters, of all ranks and steps */
    int64_t missing;   /* of matrices and biases of layers, those that are whole all the same */
    int64_t unplanned; /* bytes moved and not planned, or the other way round */
    int64_t unused;    /* bytes held and not planned, or the other way round */
    uint64_t gathered; /* bytes of weights, of the rank that was last */
    struct memory_table memory; /* likewise */
};

static int64_t distance(uint64_t a, uint64_t b)
{
    return (int64_t)(a > b ? a - b : b - a);
}

static void look(void *context, const struct engine *engine)
{
    struct seen *seen = context;
    struct traffic planned = {{0}};
    struct traffic counted;
    uint64_t expected = 0;

    (void)traffic_plan(engine->config, engine->plan, &engine->grid, &planned);
    engine_read_traffic(engine, &counted);
    seen->gathered = counted.bytes[TRAFFIC_WEIGHT_GATHERS];
    expected = planned.bytes[TRAFFIC_WEIGHT_GATHERS] * (uint64_t)engine->steps_run;
    seen->unplanned += distance(expected, seen->gathered);
    seen->memory = engine->memory;
    seen->unused += distance(engine->memory.total_bytes, engine_used_bytes(engine));
    for (int32_t i = 0; i < engine->params.count; i++) {
        const struct param *param = &engine->params.table[i];
        bool of_layer = strncmp(param->name, "h.", 2) == 0 && strstr(param->name, ".ln_") == NULL;

        seen->scattered += param->scattered ? 1 : 0;
        seen->missing += param->scattered != of_layer ? 1 : 0;
    }
}

static void train(const struct base_run *base, int stage, bool tied, struct rig_result *run,
                  struct seen *seen)
{
    const struct rig_hooks hooks = {.context = seen, .on_step = look};
    struct base_run layout;
    char zero[64];

    (void)snprintf(zero, sizeof(zero), "parallel.zero_stage=%d", stage);
    layout = base_with(base, zero);
    layout =
        base_with(&layout, tied ? "model.tied_embeddings=true" : "model.tied_embeddings=false");
    layout.hooks = &hooks;
    *seen = (struct seen){0};
    base_train(&layout, run);
    assert_int_equal(seen->unplanned, 0);
    assert_int_equal(seen->unused, 0);
    if (stage == 3) {
        assert_true(seen->scattered > 0);
        assert_int_equal(seen->missing, 0);
    } else {
        assert_int_equal(seen->scattered, 0);
    }
}

static void check_layout(const struct base_run *layout)
{
    static struct rig_result whole;
    static struct rig_result run;
    struct seen seen;

    for (int tied = 0; tied < 2; tied++) {
        train(layout, 0, tied == 1, &whole, &seen);
        train(layout, 3, tied == 1, &run, &seen);
        base_assert_same(layout, &run, &whole);
        assert_memory_equal(run.valid_loss, whole.valid_loss, sizeof(run.valid_loss));
        rig_release(&run);
        rig_release(&whole);
    }
}

static void check_layouts(const struct base_run *layouts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        check_layout(&layouts[i]);
    }
}

/* 36 columns and 257 tokens: no slice is as large as the next, and of four some are empty. */
#define ODD       "model.hidden_size=36", "model.vocab_size=257"
#define EVALUATED "train.eval_every=1", "train.eval_steps=2"
#define FULL      "train.recompute=full"

/* An I that makes again what F did not keep asks for the layers in both orders. */
static void test_recompute_has_the_bits_of_stage_zero(void **state)
{
    static const struct base_run layouts[] = {
        {.dp = 2, .steps = 3, .more = {FULL, EVALUATED}},
        {.pp = 2, .dp = 2, .steps = 3, .more = {FULL, ODD}},
        {.dp = 2, .steps = 2, .more = {"train.recompute=selective", ODD}},
        {.tp = 2, .dp = 2, .steps = 2, .more = {FULL, ODD}},
        {.pp = 4, .dp = 2, .steps = 2, .more = {"train.recompute=[full, none, selective, full]"}}};

    (void)state;
    check_layouts(layouts, COUNT(layouts));
}

static void test_schedules_have_the_bits_of_stage_zero(void **state)
{
    static const struct base_run layouts[] = {
        {.pp = 2, .dp = 2, .steps = 2, .more = {"parallel.early_send=false", EVALUATED}},
        {.pp = 2, .dp = 2, .schedule = "gpipe", .steps = 2, .more = {ODD}},
        {.pp = 2, .dp = 2, .virtual_stages = 2, .steps = 2, .more = {FULL, EVALUATED}},
        /* A rank without layers, before and behind one that has them all. */
        {.pp = 2, .dp = 2, .steps = 2, .more = {"parallel.layers_per_stage=[4, 0]", EVALUATED}},
        {.pp = 2, .dp = 2, .steps = 2, .more = {"parallel.layers_per_stage=[0, 4]", EVALUATED}},
        {.pp = 2, .tp = 2, .dp = 2, .steps = 2, .more = {ODD, EVALUATED}},
        {.tp = 2, .dp = 2, .steps = 2, .more = {"parallel.sequence_parallel=true", FULL}}};

    (void)state;
    check_layouts(layouts, COUNT(layouts));
}

static void test_formats_and_masks_have_the_bits_of_stage_zero(void **state)
{
    static const struct base_run layouts[] = {
        {.dp = 2, .steps = 3, .more = {"precision.dtype=bf16", ODD}},
        {.pp = 2, .dp = 2, .steps = 3, .more = {"precision.dtype=fp16", "model.dropout=0.1"}},
        {.dp = 2, .steps = 2, .more = {"model.dropout=0.2", FULL, EVALUATED}},
        {.tp = 2, .dp = 2, .steps = 2, .more = {"precision.dtype=bf16", FULL, ODD}},
        {.dp = 4, .steps = 2, .more = {"precision.dtype=bf16", "optimizer.name=sgd", ODD}}};

    (void)state;
    check_layouts(layouts, COUNT(layouts));
}

/* ---- What is moved and held, of the base model on one stage. ---- */

/* 4 layers of 12 C² + 13 C, of which four norms of C; tables of 256 and 32 rows; the last norm. */
#define C     ((size_t)64)
#define LAYER (12 * C * C + 9 * C)
#define WTE   (256 * C)
#define WPE   (32 * C)
#define NORMS (16 * C + 2 * C)
#define ROOM  ((size_t)32 + 32 + 32) /* of a layer's three such biases, see below */

/* Two replicas of 4 micro-batches each. After the update what is whole is gathered; F and I gather 4
 * layers each; with full recompute I gathers 4, and the first 2 once more. Evaluations do not count. */
static void test_layers_are_gathered_as_often_as_counted_by_hand(void **state)
{
    static struct rig_result run;
    struct base_run layout = {.dp = 2, .steps = 1};
    struct seen seen;

    (void)state;
    train(&layout, 1, true, &run, &seen);
    assert_int_equal(seen.gathered, (4 * LAYER + WTE + WPE + NORMS) * 4);
    rig_release(&run);
    train(&layout, 3, true, &run, &seen);
    assert_int_equal(seen.gathered, (WTE + WPE + NORMS) * 4 + 4 * LAYER * (4 + 4) * 4);
    rig_release(&run);
    layout.more[0] = FULL;
    train(&layout, 3, true, &run, &seen);
    assert_int_equal(seen.gathered, (WTE + WPE + NORMS) * 4 + 4 * LAYER * (4 + 6) * 4);
    rig_release(&run);
    layout = (struct base_run){.dp = 2, .steps = 1, .more = {"precision.dtype=bf16", EVALUATED}};
    train(&layout, 3, true, &run, &seen);
    assert_int_equal(seen.gathered, (WTE + WPE) * 2 + NORMS * 4 + 32 * LAYER * 2);
    rig_release(&run);
}

/* Slices of two replicas fill their room in fp32; in 16 bits a bias of 64 has 32 elements in room for
 * 64, and one of 192 has 96 in room for 128. A place for a layer has room for all of it. */
static void test_weights_shrink_by_the_replicas_and_two_layers_have_room(void **state)
{
    static struct rig_result run;
    struct base_run layout = {.dp = 2, .steps = 1};
    struct seen seen;

    (void)state;
    train(&layout, 1, true, &run, &seen);
    assert_int_equal(seen.memory.bytes[MEMORY_PARAMS], (4 * LAYER + WTE + WPE + NORMS) * 4);
    assert_int_equal(seen.memory.bytes[MEMORY_GATHERED], 0);
    rig_release(&run);
    train(&layout, 3, true, &run, &seen);
    assert_int_equal(seen.memory.bytes[MEMORY_PARAMS], (2 * LAYER + WTE + WPE + NORMS) * 4);
    assert_int_equal(seen.memory.bytes[MEMORY_GATHERED], 2 * LAYER * 4);
    assert_int_equal(seen.memory.bytes[MEMORY_GRADIENTS], (4 * LAYER + WTE + WPE + NORMS) * 4);
    rig_release(&run);
    layout.more[0] = "precision.dtype=fp16";
    train(&layout, 3, true, &run, &seen);
    assert_int_equal(seen.memory.bytes[MEMORY_PARAMS],
                     (2 * LAYER + 4 * ROOM + WTE + WPE) * 2 + NORMS * 4);
    assert_int_equal(seen.memory.bytes[MEMORY_GATHERED], 2 * LAYER * 2);
    assert_int_equal(seen.memory.bytes[MEMORY_MAIN_PARAMS], (4 * LAYER + WTE + WPE) / 2 * 4);
    assert_int_equal(seen.memory.bytes[MEMORY_MOMENTS], (4 * LAYER + WTE + WPE + NORMS) / 2 * 8);
    rig_release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recompute_has_the_bits_of_stage_zero),
        cmocka_unit_test(test_schedules_have_the_bits_of_stage_zero),
        cmocka_unit_test(test_formats_and_masks_have_the_bits_of_stage_zero),
        cmocka_unit_test(test_layers_are_gathered_as_often_as_counted_by_hand),
        cmocka_unit_test(test_weights_shrink_by_the_replicas_and_two_layers_have_room),
    };

    return cmocka_run_group_tests_name("zero_layers", tests, base_make, base_remove);
}

/* A training whose backward makes F's results again has the bits of one that keeps them, in every
 * layout, and moves what was planned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "stages/engine.h"
#include "tests/stages/base_run.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

#define EVALUATED "train.eval_every=2", "train.eval_steps=1"

static const char *const kinds[] = {"train.recompute=selective", "train.recompute=full"};

/* Tensor-parallel sums, which full recompute repeats, are what the plan says they are; so are
 * messages. */
static void count_sums(void *context, const struct engine *engine)
{
    static const enum traffic_kind checked[] = {TRAFFIC_TENSOR_SUMS, TRAFFIC_ACTIVATIONS,
                                                TRAFFIC_GRADIENTS};
    int64_t *counted = context;
    struct traffic planned;

    assert_int_equal(traffic_plan(engine->config, engine->plan, &engine->grid, &planned),
                     STATUS_OK);
    for (size_t i = 0; i < COUNT(checked); i++) {
        assert_int_equal(engine->moved.bytes[checked[i]],
                         planned.bytes[checked[i]] * (uint64_t)engine->steps_run);
    }
    *counted += (int64_t)planned.bytes[TRAFFIC_TENSOR_SUMS];
}

/* One stage of the same shards that keeps everything. */
static void train_reference(const struct base_run *layout, struct rig_result *run)
{
    struct base_run reference = {.tp = layout->tp, .steps = layout->steps};

    memcpy(reference.more, layout->more, sizeof(reference.more));
    base_train(&reference, run);
}

static void check(const struct base_run *layout, const char *kind, const struct rig_result *want)
{
    static struct rig_result run;
    struct base_run again = *layout;
    int64_t counted = 0;
    const struct rig_hooks hooks = {.context = &counted, .on_step = count_sums};
    int free_place = 0;

    while (again.more[free_place] != NULL) {
        free_place++;
    }
    assert_true(free_place < BASE_MORE);
    again.more[free_place] = kind;
    again.hooks = &hooks;
    base_train(&again, &run);
    base_assert_same(&again, &run, want);
    assert_memory_equal(run.valid_loss, want->valid_loss, sizeof(run.valid_loss));
    assert_true(layout->tp > 1 ? counted > 0 : counted == 0);
    rig_release(&run);
}

static void check_all(const struct base_run *layouts, size_t count)
{
    static struct rig_result want;

    for (size_t i = 0; i < count; i++) {
        train_reference(&layouts[i], &want);
        for (size_t k = 0; k < COUNT(kinds); k++) {
            check(&layouts[i], kinds[k], &want);
        }
        rig_release(&want);
    }
}

static void every_depth_and_schedule_has_the_same_bits(void **state)
{
    static const char early[] = "parallel.early_send=true";
    static const char late[] = "parallel.early_send=false";
    static const struct base_run layouts[] = {
        {.pp = 1, .steps = 4, .more = {EVALUATED}},
        {.pp = 1, .steps = 4, .schedule = "gpipe", .more = {EVALUATED, early}},
        {.pp = 2, .steps = 4, .more = {EVALUATED, early}},
        {.pp = 2, .steps = 4, .schedule = "gpipe", .more = {EVALUATED, late}},
        {.pp = 3, .steps = 4, .more = {EVALUATED, late}},
        {.pp = 4, .steps = 4, .more = {EVALUATED, early}},
        {.pp = 4, .steps = 4, .schedule = "gpipe", .more = {EVALUATED, early}},
        {.pp = 2, .virtual_stages = 2, .steps = 4, .more = {EVALUATED, early}},
        {.pp = 2, .virtual_stages = 2, .steps = 4, .more = {EVALUATED, late}},
    };

    (void)state;
    check_all(layouts, COUNT(layouts));
}

static void shards_repeat_their_sums_alike(void **state)
{
    static const struct base_run layouts[] = {
        {.tp = 2, .steps = 3, .more = {EVALUATED}},
        {.pp = 2, .tp = 2, .steps = 3, .more = {EVALUATED}},
        {.pp = 2, .tp = 2, .virtual_stages = 2, .steps = 3, .more = {EVALUATED}},
    };

    (void)state;
    check_all(layouts, COUNT(layouts));
}

static void training_in_16_bits_has_the_same_bits(void **state)
{
    static const char bf16[] = "precision.dtype=bf16";
    static const char fp16[] = "precision.dtype=fp16";
    static const struct base_run layouts[] = {
        {.pp = 4, .steps = 3, .more = {EVALUATED, bf16}},
        {.pp = 2, .tp = 2, .virtual_stages = 2, .steps = 3, .more = {EVALUATED, bf16}},
        {.pp = 2, .tp = 2, .steps = 3, .more = {EVALUATED, fp16, "model.dropout=0.1"}},
    };

    (void)state;
    check_all(layouts, COUNT(layouts));
}

static void each_virtual_stage_may_have_a_kind_of_its_own(void **state)
{
    static struct rig_result want;
    static const struct base_run layout = {
        .pp = 2, .tp = 2, .virtual_stages = 2, .steps = 3, .more = {EVALUATED}};

    (void)state;
    train_reference(&layout, &want);
    check(&layout, "train.recompute=[full, none, selective, full]", &want);
    rig_release(&want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_depth_and_schedule_has_the_same_bits),
        cmocka_unit_test(shards_repeat_their_sums_alike),
        cmocka_unit_test(training_in_16_bits_has_the_same_bits),
        cmocka_unit_test(each_virtual_stage_may_have_a_kind_of_its_own),
    };

    return cmocka_run_group_tests_name("layout_recompute", tests, base_make, base_remove);
}

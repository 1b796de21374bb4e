/* Dropout in every layout: masks belong to the sample and the element of the whole model, not to who
 * makes them, when, or how often. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/engine.h"
#include "tests/stages/base_run.h"
#include "tests/stages/random_text.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static const char dropout[] = "model.dropout=0.1";

/* H05. */
static void recompute_draws_the_masks_of_the_forward(void **state)
{
    static struct rig_result want;
    static struct rig_result plain;
    static struct rig_result run;
    static const char *const kinds[] = {"train.recompute=none", "train.recompute=selective",
                                        "train.recompute=full"};
    static const struct base_run alone = {.more = {dropout}};
    static const struct base_run without = {.pp = 1};
    static const struct base_run layouts[] = {
        {.pp = 1}, {.pp = 4}, {.pp = 2, .virtual_stages = 2}, {.pp = 3, .schedule = "gpipe"}};

    (void)state;
    base_train(&alone, &want);
    base_train(&without, &plain);
    assert_true(fabs(want.loss[0] - plain.loss[0]) > 1e-4);
    for (size_t i = 0; i < COUNT(layouts) * COUNT(kinds); i++) {
        struct base_run layout = layouts[i / COUNT(kinds)];

        layout.more[0] = dropout;
        layout.more[1] = kinds[i % COUNT(kinds)];
        base_train(&layout, &run);
        base_assert_same(&layout, &run, &want);
        rig_release(&run);
    }
    rig_release(&want);
    rig_release(&plain);
}

/* Activations that all shards of a stage have, behind each of the masks on them. */
static void print_common(void *context, const struct engine *engine)
{
    size_t bytes = engine->shape.B * engine->shape.T * engine->shape.C * sizeof(float);
    const struct chunk *chunk = &engine->chunks[0].chunk;
    const struct chunk_slot *slot = &chunk->slots[0];
    uint64_t print = BASE_PRINT_START;

    if (slot->embedded != NULL) {
        print = base_print(print, slot->embedded, bytes);
    }
    for (int32_t i = 0; i < chunk->range.layers; i++) {
        print = base_print(print, slot->layers[i].mid, bytes);
        if (slot->outputs[i] != NULL) {
            print = base_print(print, slot->outputs[i], bytes);
        }
    }
    for (int32_t i = 0; i < engine->params.count; i++) {
        const struct param *param = &engine->params.table[i];

        if (!param->sharded) {
            print = base_print(print, param->weight, param->elems * sizeof(float));
        }
    }
    base_put_print(context, engine->attempts - 1, engine->grid.pp, print);
}

/* H06. */
static void shards_drop_the_same_of_what_they_have_in_common(void **state)
{
    static struct rig_result run;
    static struct base_prints prints;
    static const struct base_run layouts[] = {
        {.tp = 2, .steps = 20, .more = {dropout}},
        {.pp = 2, .tp = 2, .steps = 20, .more = {dropout}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        const struct rig_hooks hooks = {.context = &prints, .on_step = print_common};
        struct base_run layout = layouts[i];

        memset(&prints, 0, sizeof(prints));
        layout.hooks = &hooks;
        base_train(&layout, &run);
        assert_int_equal(prints.different, 0);
        for (int64_t step = 1; step < 20; step++) {
            assert_int_equal(prints.count[step][0], 2);
            assert_true(prints.print[step][0] != prints.print[step - 1][0]);
        }
        rig_release(&run);
    }
}

/* Heads of another shard, rows of another replica and other micro-batches are close to one process
 * with the whole batch, which masks of their own would not be. */
static void shards_replicas_and_micro_batches_have_the_masks_of_one_process(void **state)
{
    static const struct base_run layouts[] = {
        {.tp = 2, .more = {dropout}},
        {.tp = 4, .micro_batch = 2, .more = {dropout}},
        {.dp = 2, .micro_batch = 2, .more = {dropout}},
        {.pp = 2, .tp = 2, .dp = 2, .more = {dropout, "train.recompute=full"}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        base_check(&layouts[i]);
    }
}

/* One epoch is one step of the same samples in the same order, and nothing is learned. */
static void every_epoch_has_masks_of_its_own(void **state)
{
    static struct rig_result run;
    static struct rig_result plain;
    char path[64] = "/tmp/weir-epoch-XXXXXX";
    char data[96];
    int descriptor = mkstemp(path);
    struct base_run base = {
        .pp = 2,
        .steps = 4,
        .more = {data, "data.split=[1, 0, 0]", "data.shuffle=false", "optimizer.lr=0"}};

    (void)state;
    assert_true(descriptor >= 0 && close(descriptor) == 0);
    assert_int_equal(random_text_write(path, 11, BASE_BATCH * BASE_POSITIONS + 1), 0);
    (void)snprintf(data, sizeof(data), "data.train=%s", path);
    base_train(&base, &plain);
    base.more[4] = dropout;
    base_train(&base, &run);
    for (int step = 1; step < 4; step++) {
        assert_true(rig_bits(plain.loss[step]) == rig_bits(plain.loss[0]));
        assert_true(fabs(run.loss[step] - run.loss[step - 1]) > 1e-5);
    }
    rig_release(&run);
    rig_release(&plain);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recompute_draws_the_masks_of_the_forward),
        cmocka_unit_test(shards_drop_the_same_of_what_they_have_in_common),
        cmocka_unit_test(shards_replicas_and_micro_batches_have_the_masks_of_one_process),
        cmocka_unit_test(every_epoch_has_masks_of_its_own),
    };

    return cmocka_run_group_tests_name("layout_dropout", tests, base_make, base_remove);
}

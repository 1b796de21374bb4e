/*
 * The tied embedding over stages and replicas (H03): its owners and the head's copies have the same
 * bits after every step, whichever way the syncs go, with ZeRO and without, through skipped steps and
 * evaluations.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "stages/engine.h"
#include "tests/stages/base_run.h"

#define LONG_STEPS 50
#define ZERO       "parallel.zero_stage=1"

static const char *const syncs[] = {"parallel.embedding_sync=zmq",
                                    "parallel.embedding_sync=data_plane"};

/* Every embedding and every copy of it, by shard. */
static void print_embeddings(void *context, const struct engine *engine)
{
    struct base_prints *prints = context;
    const struct param *wte = params_find(&engine->params, "wte.weight");
    int64_t step = engine->attempts - 1;

    if (wte != NULL) {
        base_put_print(prints, step, engine->grid.tp,
                       base_print(BASE_PRINT_START, wte->weight, wte->elems * sizeof(float)));
    }
    if (engine->head.copy != NULL) {
        base_put_print(
            prints, step, engine->grid.tp,
            base_print(BASE_PRINT_START, engine->head.copy, engine->head.elems * sizeof(float)));
    }
}

/* `copies` of each shard at each step, all the same; steps in which nothing was learned leave them
 * as they were, and no other does. */
static void assert_one_embedding(const struct base_prints *prints, const struct rig_result *run,
                                 int shards, int copies)
{
    assert_int_equal(prints->different, 0);
    for (int64_t step = 0; step < run->steps; step++) {
        for (int shard = 0; shard < shards; shard++) {
            assert_int_equal(prints->count[step][shard], copies);
            if (step > 0) {
                bool kept = prints->print[step][shard] == prints->print[step - 1][shard];

                assert_int_equal(kept, run->skipped[step]);
            }
        }
    }
}

static void train_watched(struct base_run base, struct rig_result *run)
{
    static struct base_prints prints;
    const struct rig_hooks hooks = {.context = &prints, .on_step = print_embeddings};
    int shards = base.tp > 0 ? base.tp : 1;

    memset(&prints, 0, sizeof(prints));
    base.hooks = &hooks;
    base_train(&base, run);
    assert_one_embedding(&prints, run, shards, 2 * base.dp);
    base_assert_copy(run);
}

static void test_fifty_steps_keep_every_copy_the_same_and_close_to_one_process(void **state)
{
    static struct rig_result one;
    static struct rig_result replicas;
    static struct rig_result run;
    const struct base_run base = {.dp = 2, .steps = LONG_STEPS};
    const struct base_run reference = base_reference(&base);

    (void)state;
    base_train(&reference, &one);
    base_train(&base, &replicas);
    base_assert_close(&base, &replicas, &one);
    for (int i = 0; i < 8; i++) {
        const struct base_run layout = {.pp = 2,
                                        .dp = 2,
                                        .virtual_stages = 1 + i / 2 % 2,
                                        .steps = LONG_STEPS,
                                        .more = {syncs[i % 2], i < 4 ? NULL : ZERO}};

        train_watched(layout, &run);
        base_assert_close(&layout, &run, &one);
        base_assert_same(&layout, &run, &replicas);
        rig_release(&run);
    }
    rig_release(&one);
    rig_release(&replicas);
}

static void test_shards_of_the_vocabulary_stay_the_same_too(void **state)
{
    static struct rig_result shards;
    static struct rig_result run;
    const struct base_run one_stage = {.tp = 2, .dp = 2};

    (void)state;
    base_train(&one_stage, &shards);
    for (int i = 0; i < 4; i++) {
        const struct base_run layout = {
            .pp = 2, .tp = 2, .dp = 2, .more = {syncs[i % 2], i < 2 ? NULL : ZERO}};

        train_watched(layout, &run);
        base_assert_same(&layout, &run, &shards);
        rig_release(&run);
    }
    rig_release(&shards);
}

/* Four replicas of three stages: slices that are not halves, and a stage without either end. */
static void test_more_replicas_and_stages_have_one_embedding(void **state)
{
    static struct rig_result run;
    static struct rig_result replicas;
    const struct base_run one_stage = {.dp = 4, .steps = 5};

    (void)state;
    base_train(&one_stage, &replicas);
    for (int i = 0; i < 4; i++) {
        const struct base_run layout = {
            .pp = 3, .dp = 4, .steps = 5, .more = {syncs[i % 2], i < 2 ? NULL : ZERO}};

        train_watched(layout, &run);
        base_assert_same(&layout, &run, &replicas);
        rig_release(&run);
    }
    rig_release(&replicas);
}

static void test_evaluation_in_between_waits_for_the_copy_and_changes_nothing(void **state)
{
    static struct rig_result plain;
    static struct rig_result run;
    static const struct base_run one_stage = {.dp = 2,
                                              .more = {"train.eval_every=1", "train.eval_steps=2"}};

    (void)state;
    base_train(&one_stage, &plain);
    assert_true(plain.valid_loss[0] > 1.0 && plain.valid_loss[0] < 7.0);
    assert_true(plain.valid_loss[9] < plain.valid_loss[0]);
    for (int i = 0; i < 4; i++) {
        struct base_run layout = one_stage;

        layout.pp = 2;
        layout.virtual_stages = 1 + i / 2;
        layout.more[2] = syncs[i % 2];
        layout.more[3] = i % 3 == 0 ? ZERO : NULL;
        /* Once as it runs unwatched: nobody but the next forward waits for the copy. */
        base_train(&layout, &run);
        base_assert_same(&layout, &run, &plain);
        assert_memory_equal(run.valid_loss, plain.valid_loss, sizeof(run.valid_loss));
        rig_release(&run);
        train_watched(layout, &run);
        base_assert_same(&layout, &run, &plain);
        assert_memory_equal(run.valid_loss, plain.valid_loss, sizeof(run.valid_loss));
        rig_release(&run);
    }
    rig_release(&plain);
}

#ifdef WEIR_FAULTS
static void train_poisoned(const char *fault, const struct base_run *base, bool watched,
                           struct rig_result *run)
{
    assert_int_equal(setenv("WEIR_FAULT", fault, 1), 0);
    if (watched) {
        train_watched(*base, run);
    } else {
        base_train(base, run);
    }
    assert_int_equal(unsetenv("WEIR_FAULT"), 0);
    for (int64_t step = 0; step < run->steps; step++) {
        assert_int_equal(run->skipped[step], step == 2);
    }
}

/* The weights of a run whose third step is skipped, wherever the bad gradient was. */
static void assert_same_weights(const struct rig_result *run, const struct rig_result *reference)
{
    assert_int_equal(run->tensors, reference->tensors);
    for (int32_t i = 0; i < reference->tensors; i++) {
        const struct rig_tensor *expected = &reference->weights[i];
        const struct rig_tensor *got = rig_find(run->weights, run->tensors, expected->name);

        assert_non_null(got);
        assert_int_equal(got->elems, expected->elems);
        assert_memory_equal(got->data, expected->data, got->elems * sizeof(float));
    }
}

static void test_a_skipped_step_leaves_every_copy_as_it_was(void **state)
{
    static struct rig_result skipped;
    static struct rig_result run;
    /* Owner and head, of either replica. */
    static const char *const faults[] = {"poison@0:3", "poison@1:3:2", "poison@2:3",
                                         "poison@3:3:2"};
    const struct base_run one_stage = {.dp = 2, .steps = 5};

    (void)state;
    train_poisoned("poison@1:3", &one_stage, false, &skipped);
    for (int i = 0; i < 16; i++) {
        const struct base_run layout = {
            .pp = 2,
            .dp = 2,
            .steps = 5,
            .more = {syncs[i / 4 % 2], "train.eval_every=2", i < 8 ? NULL : ZERO}};

        train_poisoned(faults[i % 4], &layout, true, &run);
        assert_same_weights(&run, &skipped);
        rig_release(&run);
    }
    rig_release(&skipped);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fifty_steps_keep_every_copy_the_same_and_close_to_one_process),
        cmocka_unit_test(test_shards_of_the_vocabulary_stay_the_same_too),
        cmocka_unit_test(test_more_replicas_and_stages_have_one_embedding),
        cmocka_unit_test(test_evaluation_in_between_waits_for_the_copy_and_changes_nothing),
#ifdef WEIR_FAULTS
        cmocka_unit_test(test_a_skipped_step_leaves_every_copy_as_it_was),
#endif
    };

    return cmocka_run_group_tests_name("layout_embedding", tests, base_make, base_remove);
}

/* Sequences that go through the pipeline in slices: the same bits at every depth, close to whole sequences, and
 * what was planned. */
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
#include "tests/stages/checkpoint_folder.h"
#include "tests/stages/oracle.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

#define EVALUATED "train.eval_every=2", "train.eval_steps=1"

static const char *const cuts[] = {"parallel.sequence_slices=2", "parallel.sequence_slices=3"};

/* What is held and moved is what was planned: bytes of arenas and segments, and of all traffic but sums of heads
 * that are gathered. */
static void check_plan(void *context, const struct engine *engine)
{
    static const enum traffic_kind checked[] = {TRAFFIC_ACTIVATIONS, TRAFFIC_GRADIENTS,
                                                TRAFFIC_TENSOR_SUMS, TRAFFIC_HEAD_ROWS};
    struct traffic planned;
    size_t keys = 0;

    assert_int_equal(traffic_plan(engine->config, engine->plan, &engine->grid, &planned),
                     STATUS_OK);
    for (size_t i = 0; i < COUNT(checked); i++) {
        assert_int_equal(engine->moved.bytes[checked[i]],
                         planned.bytes[checked[i]] * (uint64_t)engine->steps_run);
    }
    assert_int_equal(engine->memory.total_bytes, engine_used_bytes(engine));
    for (int32_t i = 0; i < engine->chunk_count; i++) {
        keys += engine->chunks[i].chunk.sequence_keys.used_bytes;
    }
    assert_int_equal(engine->memory.bytes[MEMORY_KEYS], keys);
    assert_true(keys > 0);
    *(int64_t *)context += 1;
}

/* With the bits of the same slices on one stage. */
static void check(const struct base_run *layout, const struct rig_result *want)
{
    static struct rig_result run;
    int64_t looks = 0;
    const struct rig_hooks hooks = {.context = &looks, .on_step = check_plan};
    struct base_run watched = *layout;

    watched.schedule = "seq1f1b";
    watched.hooks = &hooks;
    base_train(&watched, &run);
    assert_true(looks > 0);
    base_assert_same(&watched, &run, want);
    assert_memory_equal(run.valid_loss, want->valid_loss, sizeof(run.valid_loss));
    rig_release(&run);
}

static void train_one_stage(const struct base_run *layout, struct rig_result *run)
{
    struct base_run one = *layout;

    one.pp = 1;
    one.schedule = "seq1f1b";
    base_train(&one, run);
}

static void check_depths(const struct base_run *base, int deepest)
{
    static struct rig_result want;

    for (size_t k = 0; k < COUNT(cuts); k++) {
        struct base_run layout = base_with(base, cuts[k]);

        train_one_stage(&layout, &want);
        for (layout.pp = 1; layout.pp <= deepest; layout.pp++) {
            check(&layout, &want);
        }
        rig_release(&want);
    }
}

static void every_depth_has_the_bits_of_one_stage(void **state)
{
    static const struct base_run early = {.steps = 4,
                                          .more = {EVALUATED, "parallel.early_send=true"}};
    static const struct base_run late = {
        .steps = 3, .more = {EVALUATED, "parallel.early_send=false", "parallel.lane_depth=1"}};

    (void)state;
    check_depths(&early, 4);
    check_depths(&late, 4);
}

/* One micro-batch of 8 sequences; two of 4; seven of one, which is no multiple of anything. */
static void any_number_of_micro_batches_will_do(void **state)
{
    static const struct base_run base[] = {
        {.steps = 3, .micro_batch = 8, .more = {EVALUATED}},
        {.steps = 3, .micro_batch = 4, .more = {EVALUATED}},
        {.steps = 3, .batch = 7, .more = {EVALUATED}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(base); i++) {
        check_depths(&base[i], 4);
    }
}

/* Of 97 positions in layers of 8 numbers, n before a cut cost n² + 97n, all 18818: two slices have 60 and 37. */
static void everything_that_a_model_has_goes_in_slices(void **state)
{
    static const struct base_run base[] = {
        {.steps = 3, .micro_batch = 2, .more = {EVALUATED, "model.dropout=0.1"}},
        {.steps = 3,
         .micro_batch = 2,
         .more = {EVALUATED, "model.hidden_size=8", "model.num_heads=2", "model.seq_len=97"}},
        {.steps = 3, .more = {EVALUATED, "model.tied_embeddings=false"}},
        {.steps = 3, .more = {EVALUATED, "precision.dtype=bf16", "train.recompute=selective"}},
        {.steps = 3, .more = {EVALUATED, "precision.dtype=fp16", "model.dropout=0.1"}},
        {.steps = 3, .dp = 2, .micro_batch = 2, .more = {EVALUATED, "parallel.zero_stage=3"}},
        {.steps = 3, .dp = 2, .micro_batch = 4, .more = {EVALUATED, "parallel.zero_stage=2"}},
        {.steps = 3, .tp = 2, .micro_batch = 2, .more = {EVALUATED, "optimizer.grad_clip=0.1"}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(base); i++) {
        check_depths(&base[i], 2);
    }
}

static void recompute_has_the_bits_of_none(void **state)
{
    static const char *const kinds[] = {"train.recompute=selective", "train.recompute=full"};
    static struct rig_result want;
    static const struct base_run layout = {
        .pp = 2,
        .steps = 3,
        .more = {EVALUATED, "model.dropout=0.1", "parallel.sequence_slices=3"}};

    (void)state;
    train_one_stage(&layout, &want);
    for (size_t i = 0; i < COUNT(kinds); i++) {
        struct base_run again = base_with(&layout, kinds[i]);

        check(&again, &want);
    }
    rig_release(&want);
}

/* Masks of dropout are those of whole sequences, so that runs are close with it too. */
static void slices_are_close_to_whole_sequences(void **state)
{
    static struct rig_result run;
    static struct rig_result whole;
    static const struct base_run layouts[] = {
        {.pp = 2},
        {.pp = 3, .micro_batch = 2, .more = {"model.dropout=0.1"}},
        {.pp = 2, .tp = 2, .micro_batch = 2, .more = {"model.dropout=0.1"}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(layouts) * COUNT(cuts); i++) {
        const struct base_run *layout = &layouts[i / COUNT(cuts)];
        struct base_run one = base_reference(layout);
        struct base_run cut = base_with(layout, cuts[i % COUNT(cuts)]);

        cut.schedule = "seq1f1b";
        base_train(&one, &whole);
        base_train(&cut, &run);
        base_assert_close(&cut, &run, &whole);
        rig_release(&run);
        rig_release(&whole);
    }
}

static void slices_follow_the_oracle(void **state)
{
    static const struct oracle *const oracles[] = {&oracle_plain, &oracle_masked};
    static struct rig_result run;

    (void)state;
    for (size_t i = 0; i < 12; i++) {
        char stages[48];
        char slices[48];
        char what[160];
        const char *overrides[] = {stages, slices, "parallel.schedule=seq1f1b",
                                   i % 2 == 0 ? "train.micro_batch_size=1"
                                              : "train.micro_batch_size=4"};

        (void)snprintf(stages, sizeof(stages), "parallel.pp=%d", 1 + (int)(i % 3));
        (void)snprintf(slices, sizeof(slices), "parallel.sequence_slices=%d", 2 + (int)(i / 3 % 2));
        (void)snprintf(what, sizeof(what), "%s, %s, %s", stages, slices, overrides[3]);
        rig_run(oracles[i / 6]->yaml, overrides, COUNT(overrides), &run);
        if (run.status < 0) {
            fail_msg("%s: %s", what, run.message);
        }
        oracle_check(oracles[i / 6], &run, what);
        rig_release(&run);
    }
}

static void one_slice_is_1f1b(void **state)
{
    static struct rig_result run;
    static struct rig_result plain;
    static const struct base_run layout = {.pp = 3, .steps = 3};
    struct base_run one = layout;

    (void)state;
    one.schedule = "seq1f1b";
    base_train(&layout, &plain);
    base_train(&one, &run);
    base_assert_same(&one, &run, &plain);
    rig_release(&run);
    rig_release(&plain);
}

static void a_run_goes_on_from_a_checkpoint(void **state)
{
    static struct rig_result unbroken;
    static struct rig_result run;
    static char folder[96];
    static const struct base_run layout = {
        .pp = 2,
        .schedule = "seq1f1b",
        .steps = 6,
        .more = {"parallel.sequence_slices=3", "model.dropout=0.1", "optimizer.decay_steps=6"}};
    struct base_run part = base_with(&layout, folder);
    char text[256];

    (void)state;
    assert_int_equal(checkpoint_folder_make(NULL), 0);
    (void)snprintf(folder, sizeof(folder), "checkpoint.dir=%s/c", checkpoint_folder());
    base_train(&layout, &unbroken);
    part = base_with(&part, "checkpoint.every=2");
    part.steps = 4;
    base_train(&part, &run);
    rig_release(&run);
    part = base_with(&part, "checkpoint.resume=must");
    part.steps = 6;
    base_train(&part, &run);
    assert_int_equal(run.first, 4);
    if (!rig_same_end(&run, &unbroken, text, sizeof(text))) {
        fail_msg("resumed: %s", text);
    }
    rig_release(&run);
    rig_release(&unbroken);
    assert_int_equal(checkpoint_folder_remove(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_depth_has_the_bits_of_one_stage),
        cmocka_unit_test(any_number_of_micro_batches_will_do),
        cmocka_unit_test(everything_that_a_model_has_goes_in_slices),
        cmocka_unit_test(recompute_has_the_bits_of_none),
        cmocka_unit_test(slices_are_close_to_whole_sequences),
        cmocka_unit_test(slices_follow_the_oracle),
        cmocka_unit_test(one_slice_is_1f1b),
        cmocka_unit_test(a_run_goes_on_from_a_checkpoint),
    };

    return cmocka_run_group_tests_name("layout_slices", tests, base_make, base_remove);
}

/*
 * One training whatever the layout: losses, norms and weights of every pipeline depth, schedule,
 * early send and micro-batch count are the bits of one process.
 */
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

#include "tests/stages/engine_rig.h"
#include "tests/stages/random_text.h"

#define TEXT_BYTES 4000

/* A text of the test's own, the same in every run. */
static char text_path[64];

static const char base_yaml[] =
    "model: {num_layers: 4, hidden_size: 24, num_heads: 3, seq_len: 12, vocab_size: 256}\n"
    "train: {steps: 3, micro_batch_size: 2, num_microbatches: 4, run_dir: unused, eval_steps: 2}\n"
    "optimizer: {lr: 0.01, warmup_steps: 1, decay_steps: 10, grad_clip: 0.5}\n";

static int make_text(void **state)
{
    int descriptor = 0;

    (void)state;
    (void)snprintf(text_path, sizeof(text_path), "/tmp/weir-text-XXXXXX");
    descriptor = mkstemp(text_path);
    if (descriptor < 0 || close(descriptor) != 0) {
        return -1;
    }
    return random_text_write(text_path, 12345, TEXT_BYTES);
}

static int remove_text(void **state)
{
    (void)state;
    return unlink(text_path);
}

struct layout {
    int pp;
    const char *schedule;
    int microbatches;
    int early_send;
    int eval_every;
    const char *more; /* one more override, or NULL */
};

static void run_layout(const struct layout *layout, struct rig_result *run)
{
    char text[6][96];
    const char *overrides[7];
    int count = 6;

    (void)snprintf(text[0], sizeof(text[0]), "parallel.pp=%d", layout->pp);
    (void)snprintf(text[1], sizeof(text[1]), "parallel.schedule=%s", layout->schedule);
    (void)snprintf(text[2], sizeof(text[2]), "train.num_microbatches=%d", layout->microbatches);
    (void)snprintf(text[3], sizeof(text[3]), "parallel.early_send=%s",
                   layout->early_send != 0 ? "true" : "false");
    (void)snprintf(text[4], sizeof(text[4]), "data.train=%s", text_path);
    (void)snprintf(text[5], sizeof(text[5]), "train.eval_every=%d", layout->eval_every);
    for (int i = 0; i < count; i++) {
        overrides[i] = text[i];
    }
    if (layout->more != NULL) {
        overrides[count++] = layout->more;
    }
    rig_run(base_yaml, overrides, count, run);
    if (run->status < 0) {
        fail_msg("pp %d %s m %d early %d: %s", layout->pp, layout->schedule, layout->microbatches,
                 layout->early_send, run->message);
    }
    assert_int_equal(run->ranks_disagree, 0);
    assert_int_equal(run->copies_disagree, 0);
    assert_int_equal(run->holes, 0);
}

/* Bits, not distances. */
static void assert_same(const struct layout *layout, const struct rig_result *a,
                        const struct rig_result *b)
{
    char text[256];

    if (!rig_same(a, b, text, sizeof(text))) {
        fail_msg("pp %d %s m %d early %d: %s", layout->pp, layout->schedule, layout->microbatches,
                 layout->early_send, text);
    }
}

static void check_layout(const struct layout *layout, const struct rig_result *alone)
{
    static struct rig_result run;

    run_layout(layout, &run);
    assert_same(layout, alone, &run);
    if (layout->pp > 1) {
        /* The head's copy is the owner's embedding, bit for bit. */
        const struct rig_tensor *wte = rig_find(run.models, run.model_count, "wte.weight");

        assert_non_null(wte);
        assert_int_equal(run.copies[0].elems, wte->elems);
        assert_memory_equal(run.copies[0].data, wte->data, wte->elems * sizeof(float));
    }
    rig_release(&run);
}

static void check_depth(int pp)
{
    static const char *const schedules[] = {"gpipe", "1f1b"};
    static struct rig_result alone;

    for (int m = 1; m <= 9; m++) {
        const struct layout one = {.pp = 1, .schedule = "gpipe", .microbatches = m};

        run_layout(&one, &alone);
        for (int s = 0; s < 2; s++) {
            for (int early = 0; early <= 1; early++) {
                const struct layout layout = {
                    .pp = pp, .schedule = schedules[s], .microbatches = m, .early_send = early};

                check_layout(&layout, &alone);
            }
        }
        rig_release(&alone);
    }
}

static void test_one_stage_has_the_same_bits_in_every_schedule(void **state)
{
    (void)state;
    check_depth(1);
}

static void test_two_stages_have_the_bits_of_one_process(void **state)
{
    (void)state;
    check_depth(2);
}

static void test_three_stages_have_the_bits_of_one_process(void **state)
{
    (void)state;
    check_depth(3);
}

static void test_four_stages_have_the_bits_of_one_process(void **state)
{
    (void)state;
    check_depth(4);
}

static void test_evaluation_in_between_changes_nothing_and_gives_the_same_loss(void **state)
{
    static struct rig_result without;
    static struct rig_result with;
    static struct rig_result deep;
    const struct layout plain = {.pp = 1, .schedule = "1f1b", .microbatches = 3};
    const struct layout evaluated = {
        .pp = 1, .schedule = "1f1b", .microbatches = 3, .eval_every = 1};
    const struct layout pipelined = {
        .pp = 4, .schedule = "1f1b", .microbatches = 3, .early_send = 1, .eval_every = 1};

    (void)state;
    run_layout(&plain, &without);
    run_layout(&evaluated, &with);
    run_layout(&pipelined, &deep);
    assert_same(&evaluated, &without, &with);
    assert_same(&pipelined, &without, &deep);
    assert_memory_equal(with.valid_loss, deep.valid_loss, sizeof(with.valid_loss));
    assert_true(with.valid_loss[0] > 1.0 && with.valid_loss[0] < 7.0);
    assert_true(with.valid_loss[2] != with.valid_loss[0]);
    rig_release(&without);
    rig_release(&with);
    rig_release(&deep);
}

static void test_given_and_empty_stages_have_the_bits_of_one_process(void **state)
{
    static struct rig_result alone;
    static const char *const splits[] = {
        "parallel.layers_per_stage=[1, 3]", "parallel.layers_per_stage=[0, 4]",
        "parallel.layers_per_stage=[4, 0]", "parallel.layers_per_stage=[0, 4, 0]",
        "parallel.layers_per_stage=[2, 0, 2]"};
    const struct layout one = {.pp = 1, .schedule = "gpipe", .microbatches = 4};

    (void)state;
    run_layout(&one, &alone);
    for (size_t i = 0; i < sizeof(splits) / sizeof(splits[0]); i++) {
        const struct layout layout = {.pp = i < 3 ? 2 : 3,
                                      .schedule = "1f1b",
                                      .microbatches = 4,
                                      .early_send = 1,
                                      .more = splits[i]};

        check_layout(&layout, &alone);
    }
    rig_release(&alone);
}

static void test_starting_weights_do_not_depend_on_the_layout(void **state)
{
    static struct rig_result alone;
    static struct rig_result deep;
    const struct layout one = {
        .pp = 1, .schedule = "1f1b", .microbatches = 2, .more = "train.steps=0"};
    const struct layout four = {
        .pp = 4, .schedule = "1f1b", .microbatches = 2, .more = "train.steps=0"};

    (void)state;
    run_layout(&one, &alone);
    run_layout(&four, &deep);
    assert_int_equal(alone.tensors, 4 * 12 + 4);
    assert_same(&four, &alone, &deep);
    rig_release(&alone);
    rig_release(&deep);
}

/* H02: the same sequences in fewer or more micro-batches give the same gradient, not a multiple. */
static void test_gradients_do_not_grow_with_the_number_of_microbatches(void **state)
{
    static struct rig_result few;
    static struct rig_result many;
    const struct layout four = {.pp = 2,
                                .schedule = "1f1b",
                                .microbatches = 4,
                                .early_send = 1,
                                .more = "train.micro_batch_size=4"};
    const struct layout sixteen = {.pp = 2,
                                   .schedule = "1f1b",
                                   .microbatches = 16,
                                   .early_send = 1,
                                   .more = "train.micro_batch_size=1"};

    (void)state;
    run_layout(&four, &few);
    run_layout(&sixteen, &many);
    assert_true(fabs(few.loss[0] - many.loss[0]) <= 2e-6 * few.loss[0]);
    assert_true(fabs(few.norm[0] - many.norm[0]) <= 1e-6 * few.norm[0]);
    assert_true(fabs(few.loss[2] - many.loss[2]) <= 2e-6 * few.loss[2]);
    rig_release(&few);
    rig_release(&many);
}

static void test_a_repeated_run_has_the_same_bits(void **state)
{
    static struct rig_result first;
    static struct rig_result second;
    const struct layout layout = {
        .pp = 2, .schedule = "1f1b", .microbatches = 5, .more = "train.threads=2"};

    (void)state;
    run_layout(&layout, &first);
    run_layout(&layout, &second);
    assert_same(&layout, &first, &second);
    rig_release(&first);
    rig_release(&second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_stage_has_the_same_bits_in_every_schedule),
        cmocka_unit_test(test_two_stages_have_the_bits_of_one_process),
        cmocka_unit_test(test_three_stages_have_the_bits_of_one_process),
        cmocka_unit_test(test_four_stages_have_the_bits_of_one_process),
        cmocka_unit_test(test_evaluation_in_between_changes_nothing_and_gives_the_same_loss),
        cmocka_unit_test(test_given_and_empty_stages_have_the_bits_of_one_process),
        cmocka_unit_test(test_starting_weights_do_not_depend_on_the_layout),
        cmocka_unit_test(test_gradients_do_not_grow_with_the_number_of_microbatches),
        cmocka_unit_test(test_a_repeated_run_has_the_same_bits),
    };

    return cmocka_run_group_tests_name("layouts", tests, make_text, remove_text);
}

/* Keys against each other: what follows, and what contradicts itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "config_rig.h"

/* A legal file with other batch keys. */
static const char *with_batch(const char *keys)
{
    static char text[1024];

    (void)snprintf(text, sizeof(text),
                   "model: {num_layers: 6, hidden_size: 64, num_heads: 4, seq_len: 32}\n"
                   "train: {steps: 10%s%s}\n"
                   "optimizer: {lr: 3e-4}\n"
                   "data: {train: text.txt}\n",
                   keys[0] != '\0' ? ", " : "", keys);
    return text;
}

static void assert_batch(const char *keys, int64_t micro, int64_t number, int64_t global)
{
    struct config *config = NULL;

    assert_int_equal(config_rig_load(with_batch(keys), NULL, NULL, &config), STATUS_OK);
    assert_int_equal(config->train.micro_batch_size, micro);
    assert_int_equal(config->train.num_microbatches, number);
    assert_int_equal(config->train.global_batch_size, global);
    config_destroy(&config);
}

static void any_two_batch_keys_give_the_third(void **state)
{
    (void)state;
    assert_batch("micro_batch_size: 3, num_microbatches: 5", 3, 5, 15);
    assert_batch("micro_batch_size: 3, global_batch_size: 15", 3, 5, 15);
    assert_batch("num_microbatches: 5, global_batch_size: 15", 3, 5, 15);
    assert_batch("micro_batch_size: 3, num_microbatches: 5, global_batch_size: 15", 3, 5, 15);
    assert_batch("micro_batch_size: auto, num_microbatches: 5, global_batch_size: 15", 3, 5, 15);
    assert_batch("micro_batch_size: 1048576, num_microbatches: 1048576", 1048576, 1048576,
                 (int64_t)1 << 40);
}

static void fewer_than_two_batch_keys_are_refused(void **state)
{
    (void)state;
    config_rig_refuses(with_batch(""), NULL, "expected two of micro_batch_size, num_microbatches");
    config_rig_refuses(with_batch("global_batch_size: 8"), NULL, "found one");
    config_rig_refuses(with_batch("micro_batch_size: 8, num_microbatches: auto"), NULL,
                       "found one");
}

static void a_batch_that_does_not_divide_is_refused_with_the_nearest_legal_ones(void **state)
{
    (void)state;
    config_rig_refuses(with_batch("micro_batch_size: 4, global_batch_size: 10"), NULL,
                       "train.global_batch_size: 10 is no multiple of train.micro_batch_size 4 x "
                       "parallel.dp 1 = 4; nearest legal: global_batch_size 8 or 12");
    config_rig_refuses(with_batch("num_microbatches: 4, global_batch_size: 10"), NULL,
                       "train.num_microbatches 4 x parallel.dp 1 = 4; nearest legal: "
                       "global_batch_size 8 or 12");
    config_rig_refuses(with_batch("num_microbatches: 16, global_batch_size: 10"), NULL,
                       "10 is less than train.num_microbatches 16 x parallel.dp 1 = 16; nearest "
                       "legal: global_batch_size 16");
}

static void three_batch_keys_that_disagree_are_refused_with_all_numbers(void **state)
{
    (void)state;
    config_rig_refuses(with_batch("micro_batch_size: 4, num_microbatches: 3, "
                                  "global_batch_size: 10"),
                       NULL,
                       "train.micro_batch_size 4 x train.num_microbatches 3 x parallel.dp 1 is "
                       "12, train.global_batch_size is 10; nearest legal: global_batch_size 12");
    config_rig_refuses(with_batch("micro_batch_size: 4, num_microbatches: 3, "
                                  "global_batch_size: 14"),
                       NULL, "12, train.global_batch_size is 14");
}

static void assert_refused(const char *override, const char *words)
{
    config_rig_refuses(config_rig_legal(), override, words);
}

static void heads_that_do_not_divide_are_refused_with_those_that_do(void **state)
{
    (void)state;
    config_rig_refuses(config_rig_legal(), "--model.hidden_size=65",
                       ":1: model.num_heads: 4 does not divide model.hidden_size 65; legal for "
                       "this hidden_size: 1, 5, 13, 65");
    /* More divisors than fit into a line are cut, not overrun. */
    assert_refused("--model.hidden_size=720721", "legal for this hidden_size: 1");
}

/* H18 */
static void a_sequence_longer_than_the_table_names_both_and_the_way_out(void **state)
{
    (void)state;
    assert_refused("--model.max_positions=16",
                   "model.seq_len: 32 is more than model.max_positions 16, the rows of the "
                   "position table; lower model.seq_len to 16 or raise model.max_positions to 32");
}

/* H16 */
static void layer_lists_have_to_fit_stages_and_layers(void **state)
{
    (void)state;
    assert_refused("--parallel.layers_per_stage=3,3",
                   "expected 4 counts (parallel.pp 4 x virtual_stages 1) or auto, found 2");
    assert_refused("--parallel.layers_per_stage=3,3,0,1", "the sum is 7, model.num_layers is 6");
}

static void the_learning_rate_has_to_make_sense(void **state)
{
    struct config *config = NULL;

    (void)state;
    assert_refused("--optimizer.min_lr=0.1", "optimizer.min_lr: 0.1 is more than optimizer.lr");
    assert_refused("--optimizer.warmup_steps=100",
                   "less than optimizer.decay_steps 100, found 100");
    assert_refused("--optimizer.warmup_steps=101",
                   "less than optimizer.decay_steps 100, found 101");
    assert_int_equal(
        config_rig_load(config_rig_legal(), "--optimizer.warmup_steps=99", NULL, &config),
        STATUS_OK);
    assert_int_equal(config->optimizer.decay_steps, 100);
    assert_int_equal(config->optimizer.wsd_decay_steps, 10);
    config_destroy(&config);
    assert_int_equal(
        config_rig_load(config_rig_legal(), "--optimizer.decay_steps=5", NULL, &config), STATUS_OK);
    assert_int_equal(config->optimizer.wsd_decay_steps, 1);
    config_destroy(&config);
    assert_int_equal(config_rig_load(config_rig_legal(), "--optimizer.lr_schedule=wsd",
                                     "--optimizer.warmup_steps=95", &config),
                     STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "at most 5"));
}

static void evaluation_needs_something_to_evaluate_on(void **state)
{
    struct config *config = NULL;

    (void)state;
    assert_int_equal(
        config_rig_load(config_rig_legal(), "--train.eval_every=5", "--data.split=1,0,0", &config),
        STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "give data.valid, or data.split"));
    assert_int_equal(config_rig_load(config_rig_legal(), "--train.eval_every=5", NULL, &config),
                     STATUS_OK);
    config_destroy(&config);
}

static void shares_have_to_be_a_whole(void **state)
{
    (void)state;
    assert_refused("--data.split=0.5,0.25,0.5", "0.5 + 0.25 + 0.5 = 1.25");
    assert_refused("--data.split=0,0.5,0.5", "the first share, for training, is 0");
}

static void times_and_steps_have_to_be_in_order(void **state)
{
    struct config *config = NULL;

    (void)state;
    assert_refused("--control.heartbeat_s=10", "not below control.dead_after_s 10");
    assert_int_equal(
        config_rig_load(config_rig_legal(), "--trace.first_step=5", "--trace.last_step=4", &config),
        STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "5 is after trace.last_step 4"));
}

static void virtual_stages_are_refused_with_the_schedules_that_have_them(void **state)
{
    (void)state;
    assert_refused("--parallel.virtual_stages=2", "schedule 1f1b");
    assert_refused("--parallel.virtual_stages=2", "interleaved_1f1b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_two_batch_keys_give_the_third),
        cmocka_unit_test(fewer_than_two_batch_keys_are_refused),
        cmocka_unit_test(a_batch_that_does_not_divide_is_refused_with_the_nearest_legal_ones),
        cmocka_unit_test(three_batch_keys_that_disagree_are_refused_with_all_numbers),
        cmocka_unit_test(heads_that_do_not_divide_are_refused_with_those_that_do),
        cmocka_unit_test(a_sequence_longer_than_the_table_names_both_and_the_way_out),
        cmocka_unit_test(layer_lists_have_to_fit_stages_and_layers),
        cmocka_unit_test(the_learning_rate_has_to_make_sense),
        cmocka_unit_test(evaluation_needs_something_to_evaluate_on),
        cmocka_unit_test(shares_have_to_be_a_whole),
        cmocka_unit_test(times_and_steps_have_to_be_in_order),
        cmocka_unit_test(virtual_stages_are_refused_with_the_schedules_that_have_them),
    };

    return cmocka_run_group_tests_name("config_check", tests, config_rig_open, config_rig_close);
}

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

static void assert_legal(const char *first, const char *second, struct config **config)
{
    if (config_rig_load(config_rig_legal(), first, second, config) != STATUS_OK) {
        fail_msg("%s %s: %s", first, second != NULL ? second : "", status_last()->message);
    }
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

static void weight_decay_ends_where_and_when_it_is_said(void **state)
{
    struct config *config = NULL;

    (void)state;
    assert_legal("--optimizer.weight_decay=0.3", "--optimizer.decay_steps=50", &config);
    assert_true(config->optimizer.end_weight_decay == 0.3);
    assert_int_equal(config->optimizer.weight_decay_steps, 50);
    config_destroy(&config);
    assert_legal("--optimizer.weight_decay_schedule=cosine", "--optimizer.end_weight_decay=0",
                 &config);
    assert_true(config->optimizer.end_weight_decay == 0.0);
    assert_int_equal(config->optimizer.weight_decay_steps, 100);
    assert_int_equal(config->optimizer.weight_decay_schedule, WD_COSINE);
    config_destroy(&config);
    assert_refused("--optimizer.weight_decay=-0.1", "weight_decay: expected a number from 0");
    assert_refused("--optimizer.end_weight_decay=-1", "end_weight_decay: expected a number from 0");
    assert_refused("--optimizer.grad_clip=-0.5", "optimizer.grad_clip: expected a number from 0; "
                                                 "found -0.5");
}

/* auto is dynamic in fp16 alone; a number is a constant in any format. */
static void the_loss_scale_follows_the_number_format(void **state)
{
    struct config *config = NULL;

    (void)state;
    assert_legal("--precision.dtype=bf16", NULL, &config);
    assert_int_equal(config->precision.dtype, DTYPE_BF16);
    assert_true(config->precision.loss_scale == 1.0 && !config->precision.dynamic_scale);
    config_destroy(&config);
    assert_legal("--precision.dtype=fp16", NULL, &config);
    assert_int_equal(config->precision.dtype, DTYPE_FP16);
    assert_true(config->precision.dynamic_scale);
    config_destroy(&config);
    assert_legal("--precision.dtype=fp16", "--precision.loss_scale=128", &config);
    assert_true(config->precision.loss_scale == 128.0 && !config->precision.dynamic_scale);
    config_destroy(&config);
    assert_legal("--precision.loss_scale=4096", NULL, &config);
    assert_true(config->precision.loss_scale == 4096.0 && !config->precision.dynamic_scale);
    config_destroy(&config);
    assert_int_equal(config_rig_load(config_rig_legal(), "--precision.dtype=fp16",
                                     "--precision.loss_scale=0", &config),
                     STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "precision.loss_scale: expected a number from"));
    assert_legal("--precision.tf32=true", NULL, &config);
    assert_true(config->precision.tf32);
    config_destroy(&config);
    assert_int_equal(config_rig_load(config_rig_legal(), "--precision.dtype=bf16",
                                     "--precision.tf32=true", &config),
                     STATUS_ERR_REFUSED);
    assert_non_null(
        strstr(status_last()->message,
               "precision.tf32: true: of products of fp32, which precision.dtype bf16"));
    assert_refused("--precision.min_scale=65537",
                   "--precision.min_scale=65537: precision.min_scale: 65537 is more than "
                   "precision.initial_scale 65536");
    assert_refused("--precision.initial_scale=0.5",
                   "--precision.initial_scale=0.5: precision.min_scale: 1 is more than "
                   "precision.initial_scale 0.5");
    /* Beyond 2^63 neither the scale nor its inverse would leave room for the numbers beside it. */
    assert_refused("--precision.initial_scale=1e37", "precision.initial_scale: expected a number");
    assert_refused("--precision.loss_scale=1e-30", "precision.loss_scale: expected a number");
    assert_legal("--precision.min_scale=65536", NULL, &config);
    config_destroy(&config);
}

static void checkpoints_go_into_the_run_directory_unless_told(void **state)
{
    char override[600] = "--train.run_dir=";
    struct config *config = NULL;

    (void)state;
    assert_legal("--train.run_dir=here", NULL, &config);
    assert_string_equal(config->checkpoint.dir, "here/checkpoints");
    config_destroy(&config);
    assert_legal("--train.run_dir=here", "--checkpoint.dir=/there", &config);
    assert_string_equal(config->checkpoint.dir, "/there");
    config_destroy(&config);
    assert_legal("--checkpoint.every=5", "--checkpoint.resume=must", &config);
    assert_int_equal(config->checkpoint.every, 5);
    assert_int_equal(config->checkpoint.resume, RESUME_MUST);
    config_destroy(&config);
    assert_refused("--checkpoint.keep=0", "checkpoint.keep: expected an integer from 1");
    memset(override + strlen(override), 'x', 505);
    assert_refused(override, "too long for its checkpoints/; give checkpoint.dir");
}

static void dropout_is_a_share_below_one(void **state)
{
    struct config *config = NULL;

    (void)state;
    assert_legal("--model.dropout=0.25", NULL, &config);
    assert_true(config->model.dropout == 0.25);
    config_destroy(&config);
    assert_refused("--model.dropout=1", "model.dropout: expected a number from 0, below 1");
    assert_refused("--model.dropout=-0.1", "found -0.1");
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

static void layers_are_split_over_virtual_stages_in_model_order(void **state)
{
    static const int64_t even[] = {1, 1, 1, 1, 1, 1, 0, 0};
    static const int64_t given[] = {0, 1, 0, 2, 0, 1, 2, 0};
    struct config *config = NULL;

    (void)state;
    assert_legal("--parallel.schedule=interleaved_1f1b", "--parallel.virtual_stages=2", &config);
    assert_int_equal(config->parallel.virtual_stages, 2);
    assert_memory_equal(config->parallel.layers_per_stage, even, sizeof(even));
    config_destroy(&config);
    assert_legal("--parallel.schedule=interleaved_1f1b", NULL, &config);
    assert_int_equal(config->parallel.virtual_stages, 1);
    config_destroy(&config);
    assert_int_equal(
        config_rig_load("model: {num_layers: 6, hidden_size: 64, num_heads: 4, seq_len: 32}\n"
                        "parallel: {pp: 4, schedule: interleaved_1f1b, virtual_stages: 2,\n"
                        "  layers_per_stage: [0, 1, 0, 2, 0, 1, 2, 0]}\n"
                        "train: {steps: 1, micro_batch_size: 1, num_microbatches: 1}\n"
                        "optimizer: {lr: 3e-4}\n"
                        "data: {train: text.txt}\n",
                        NULL, NULL, &config),
        STATUS_OK);
    assert_memory_equal(config->parallel.layers_per_stage, given, sizeof(given));
    config_destroy(&config);
    assert_int_equal(config_rig_load(config_rig_legal(), "--parallel.schedule=interleaved_1f1b",
                                     "--parallel.virtual_stages=257", &config),
                     STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "257 x parallel.pp 4 is 1028 chunks"));
    assert_non_null(strstr(status_last()->message, "virtual_stages 256 with this pp"));
}

/* 4 heads and an inner width of 256, or 6 heads and 90: what divides both. */
static void shards_divide_heads_and_inner_width_or_are_refused_with_those_that_do(void **state)
{
    static const char other[] =
        "model: {num_layers: 2, hidden_size: 30, num_heads: 6, ffn_hidden_size: 90, seq_len: 8,\n"
        "  vocab_size: 5}\n"
        "train: {steps: 1, micro_batch_size: 1, num_microbatches: 1}\n"
        "optimizer: {lr: 3e-4}\n"
        "data: {train: tokens.safetensors}\n";
    struct config *config = NULL;

    (void)state;
    assert_legal("--parallel.tp=4", "--parallel.dp=3", &config);
    assert_int_equal(config->parallel.tp, 4);
    assert_int_equal(config->parallel.dp, 3);
    assert_int_equal(config->train.global_batch_size, 24);
    config_destroy(&config);
    /* A vocabulary of 257 is no multiple of anything. */
    assert_legal("--parallel.tp=4", "--model.vocab_size=257", &config);
    config_destroy(&config);
    assert_refused("--parallel.tp=3",
                   "--parallel.tp=3: parallel.tp: expected a divisor of model.num_heads 4 and of "
                   "model.ffn_hidden_size 256, found 3; legal for this model: 1, 2, 4");
    assert_refused("--parallel.tp=8", "found 8; legal for this model: 1, 2, 4");
    assert_int_equal(config_rig_load(config_rig_legal(), "--parallel.tp=4",
                                     "--model.ffn_hidden_size=130", &config),
                     STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "ffn_hidden_size 130, found 4"));
    assert_non_null(strstr(status_last()->message, "legal for this model: 1, 2"));
    assert_int_equal(config_rig_load(other, "--parallel.tp=3", NULL, &config), STATUS_OK);
    config_destroy(&config);
    config_rig_refuses(other, "--parallel.tp=6", "parallel.tp: 6 is more than model.vocab_size 5");
    config_rig_refuses(other, "--parallel.tp=6", "legal for this model: 1, 2, 3");
}

static void token_types_need_a_format_that_has_them(void **state)
{
    static const char pairs[] =
        "model: {num_layers: 2, hidden_size: 32, num_heads: 4, seq_len: 8, vocab_size: 61}\n"
        "train: {steps: 1, micro_batch_size: 1, num_microbatches: 1}\n"
        "optimizer: {lr: 3e-4}\n"
        "data: {train: pairs.safetensors}\n";
    struct config *config = NULL;

    (void)state;
    assert_int_equal(config_rig_load(pairs, NULL, NULL, &config), STATUS_OK);
    assert_int_equal(config->model.num_tokentypes, 0);
    config_destroy(&config);
    assert_int_equal(config_rig_load(pairs, "--model.num_tokentypes=2", NULL, &config), STATUS_OK);
    assert_int_equal(config->model.num_tokentypes, 2);
    config_destroy(&config);
    assert_refused(
        "--model.num_tokentypes=2",
        "--model.num_tokentypes=2: model.num_tokentypes: expected 0 for data.format text");
    assert_refused("--model.num_tokentypes=-1", "an integer from 0 to");
}

static void the_number_of_ranks_has_a_bound(void **state)
{
    struct config *config = NULL;

    (void)state;
    assert_legal("--parallel.tp=4", "--parallel.dp=64", &config);
    config_destroy(&config);
    assert_int_equal(
        config_rig_load(config_rig_legal(), "--parallel.pp=17", "--parallel.dp=64", &config),
        STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "parallel: pp 17 x tp 1 x dp 64 is 1088 ranks; "
                                                   "at most 1024"));
    assert_refused("--parallel.dp=65", "parallel.dp: expected an integer from 1 to 64");
    assert_refused("--parallel.tp=65", "parallel.tp: expected an integer from 1 to 64");
}

static void the_batch_counts_the_replicas(void **state)
{
    (void)state;
    config_rig_refuses(with_batch("micro_batch_size: 4, global_batch_size: 40"), "--parallel.dp=3",
                       "40 is no multiple of train.micro_batch_size 4 x parallel.dp 3 = 12; "
                       "nearest legal: global_batch_size 36 or 48");
    config_rig_refuses(with_batch("micro_batch_size: 1048576, num_microbatches: 1048576"),
                       "--parallel.dp=2",
                       "train.global_batch_size: follows from the other batch keys as "
                       "2199023255552; at most 1099511627776");
    config_rig_refuses(with_batch("micro_batch_size: 1, global_batch_size: 1048577"), NULL,
                       "train.num_microbatches: follows from the other batch keys as 1048577; at "
                       "most 1048576");
}

static void slices_go_with_a_schedule_that_has_them_and_whole_rows(void **state)
{
    static const char seq[] = "--parallel.schedule=seq1f1b";
    struct config *config = NULL;

    (void)state;
    assert_refused("--parallel.sequence_slices=2",
                   "parallel.sequence_slices: 2 slices go with parallel.schedule seq1f1b");
    assert_refused("--parallel.sequence_slices=65", "parallel.sequence_slices");
    assert_int_equal(
        config_rig_load(config_rig_legal(), seq, "--parallel.sequence_slices=33", &config),
        STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "model.seq_len 32 has no 33 slices"));
    assert_legal(seq, "--parallel.sequence_slices=32", &config);
    assert_int_equal(config->parallel.sequence_slices, 32);
    config_destroy(&config);
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
        cmocka_unit_test(weight_decay_ends_where_and_when_it_is_said),
        cmocka_unit_test(the_loss_scale_follows_the_number_format),
        cmocka_unit_test(checkpoints_go_into_the_run_directory_unless_told),
        cmocka_unit_test(dropout_is_a_share_below_one),
        cmocka_unit_test(evaluation_needs_something_to_evaluate_on),
        cmocka_unit_test(shares_have_to_be_a_whole),
        cmocka_unit_test(times_and_steps_have_to_be_in_order),
        cmocka_unit_test(layers_are_split_over_virtual_stages_in_model_order),
        cmocka_unit_test(shards_divide_heads_and_inner_width_or_are_refused_with_those_that_do),
        cmocka_unit_test(token_types_need_a_format_that_has_them),
        cmocka_unit_test(the_number_of_ranks_has_a_bound),
        cmocka_unit_test(the_batch_counts_the_replicas),
        cmocka_unit_test(slices_go_with_a_schedule_that_has_them_and_whole_rows),
    };

    return cmocka_run_group_tests_name("config_check", tests, config_rig_open, config_rig_close);
}

/* Single values: strict numbers, words, units, lists, and the override that gives them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_rig.h"

static void assert_refused(const char *override, const char *words)
{
    config_rig_refuses(config_rig_legal(), override, words);
}

static struct config *load(const char *override)
{
    struct config *config = NULL;

    assert_int_equal(config_rig_load(config_rig_legal(), override, NULL, &config), STATUS_OK);
    return config;
}

static void integers_are_digits_only(void **state)
{
    static const char *const bad[] = {"1e3", "0x10", "1_000", "+5",
                                      " 5",  "5 ",   "5.0",   "",
                                      "-",   "007",  "five",  "99999999999999999999"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char override[64];
        char words[128];

        (void)snprintf(override, sizeof(override), "--train.steps=%s", bad[i]);
        (void)snprintf(words, sizeof(words), "%s: train.steps: expected an integer", override);
        assert_refused(override, words);
    }
    assert_refused("--train.seed=-1", "at least 0; found -1");
    assert_refused("--parallel.pp=0", "an integer from 1 to 1024; found 0");
    assert_refused("--parallel.pp=1025", "an integer from 1 to 1024; found 1025");
}

static void reals_are_finite_decimals_in_range(void **state)
{
    static const char *const bad[] = {"nan", "inf",   "-inf", "0x1p3", "1e", "1e999",
                                      "e5",  "1.2.3", "+1",   "",      "1f", "-1"};
    struct config *config = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char override[64];

        (void)snprintf(override, sizeof(override), "--optimizer.lr=%s", bad[i]);
        assert_refused(override, "optimizer.lr: expected a number from 0 to 1e+06; found");
    }
    assert_refused("--optimizer.beta2=1", "below 1; found 1");
    assert_refused("--optimizer.eps=0", "above 0 to 1; found 0");
    config = load("--optimizer.lr=.5e-3");
    assert_true(config->optimizer.lr == 0.0005);
    config_destroy(&config);
}

static void booleans_are_true_and_false(void **state)
{
    static const char *const bad[] = {"yes", "no", "True", "1", "on", ""};
    struct config *config = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char override[64];

        (void)snprintf(override, sizeof(override), "--data.shuffle=%s", bad[i]);
        assert_refused(override, "data.shuffle: expected true or false; found");
    }
    config = load("--data.shuffle=false");
    assert_false(config->data.shuffle);
    config_destroy(&config);
}

static void bytes_take_units_of_1024(void **state)
{
    struct config *config = load("--train.memory_limit=3G");

    (void)state;
    assert_true(config->train.memory_limit == (int64_t)3 * 1024 * 1024 * 1024);
    config_destroy(&config);
    config = load("--train.memory_limit=5K");
    assert_int_equal(config->train.memory_limit, 5120);
    config_destroy(&config);
    config = load("--train.memory_limit=none");
    assert_int_equal(config->train.memory_limit, 0);
    config_destroy(&config);
    assert_refused("--train.memory_limit=9999999999T", "a number of bytes");
    assert_refused("--train.memory_limit=3GB", "a number of bytes");
    assert_refused("--train.memory_limit=0", "or none; found 0");
}

static void words_stand_for_what_the_machine_or_the_run_decides(void **state)
{
    struct config *config = load(NULL);

    (void)state;
    assert_int_equal(config->train.threads, 0);
    assert_int_equal(config->train.memory_limit, 0);
    assert_true(config->trace.last_step == INT64_MAX);
    assert_true(config->control.stall_after_s < 0.0);
    assert_true(config->precision.loss_scale == 1.0);
    assert_int_equal(config->parallel.lane_depth, 2);
    assert_int_equal(config->parallel.early_send, CONFIG_AUTO);
    assert_int_equal(config->parallel.embedding_sync, EMBEDDING_SYNC_AUTO);
    assert_int_equal(config->parallel.device, CONFIG_DEVICE_AUTO);
    config_destroy(&config);
    config = load("--parallel.embedding_sync=zmq");
    assert_int_equal(config->parallel.embedding_sync, EMBEDDING_SYNC_ZMQ);
    config_destroy(&config);
    config = load("--parallel.embedding_sync=data_plane");
    assert_int_equal(config->parallel.embedding_sync, EMBEDDING_SYNC_DATA_PLANE);
    config_destroy(&config);
    config = load("--model.tied_embeddings=false");
    assert_false(config->model.tied_embeddings);
    config_destroy(&config);
    config = load("--train.threads=3");
    assert_int_equal(config->train.threads, 3);
    config_destroy(&config);
}

static void the_format_follows_the_file_name_unless_given(void **state)
{
    struct config *config = load(NULL);

    (void)state;
    assert_int_equal(config->data.format, FORMAT_TEXT);
    assert_int_equal(config->model.vocab_size, 256);
    config_destroy(&config);
    assert_refused("--data.train=a.safetensors", "model.vocab_size: missing");
    assert_int_equal(config_rig_load(config_rig_legal(), "--data.train=a.safetensors",
                                     "--model.vocab_size=131", &config),
                     STATUS_OK);
    assert_int_equal(config->data.format, FORMAT_SAMPLES);
    config_destroy(&config);
}

static void texts_are_kept_whole_or_refused(void **state)
{
    char override[1024] = "--data.train=";
    struct config *config = load("--data.train=a b=c, \xc3\xa9.txt");

    (void)state;
    assert_string_equal(config->data.train, "a b=c, \xc3\xa9.txt");
    config_destroy(&config);
    assert_refused("--data.train=\xff", "data.train: expected a text");
    assert_refused("--data.train=a\nb", "--data.train=a?b: data.train: expected a text");
    assert_refused("--data.train=", "data.train: expected a file name");
    memset(override + strlen(override), 'x', 512);
    assert_refused(override, "less than 512 bytes");
}

static void lists_may_stand_with_or_without_brackets(void **state)
{
    struct config *config = load("--parallel.layers_per_stage=3,2,1,0");

    (void)state;
    assert_int_equal(config->parallel.layers_per_stage[0], 3);
    assert_int_equal(config->parallel.layers_per_stage[3], 0);
    assert_int_equal(config->parallel.layers_per_stage[4], 0);
    config_destroy(&config);
    config = load("--parallel.layers_per_stage=[ 0, 0 ,1, 5 ]");
    assert_int_equal(config->parallel.layers_per_stage[3], 5);
    config_destroy(&config);
    config = load("--parallel.layers_per_stage=auto");
    assert_int_equal(config->parallel.layers_per_stage[0], 2);
    assert_int_equal(config->parallel.layers_per_stage[3], 1);
    config_destroy(&config);
    assert_refused("--parallel.layers_per_stage=", "expected a list of integers");
    assert_refused("--parallel.layers_per_stage=[]", "expected a list of integers");
    assert_refused("--parallel.layers_per_stage=3,,3,0", "expected a list of integers");
    assert_refused("--parallel.layers_per_stage=3,x,3,0", "expected a list of integers");
    assert_refused("--parallel.layers_per_stage=3,-1,4,0", "expected a list of integers");
    assert_refused("--data.split=0.5,0.5", "expected a list of three shares");
    assert_refused("--data.split=0.25,0.25,0.25,0.25", "expected a list of three shares");
}

static void more_stages_than_layers_leave_the_last_ones_empty(void **state)
{
    struct config *config = load("--model.num_layers=3");

    (void)state;
    assert_int_equal(config->parallel.layers_per_stage[0], 1);
    assert_int_equal(config->parallel.layers_per_stage[2], 1);
    assert_int_equal(config->parallel.layers_per_stage[3], 0);
    config_destroy(&config);
}

static void words_that_are_no_override_are_refused_as_they_stand(void **state)
{
    (void)state;
    assert_refused("--train.steps", "--train.steps: expected --train.steps=value");
    assert_refused("--pp=2", "--pp=2: pp: unknown key; did you mean parallel.pp?");
    assert_refused("quickstart", "quickstart: unknown key; sections: model");
    assert_refused("", "unknown key");
    assert_refused("=", "unknown key");
    assert_refused(".=", "unknown key");
}

static void overwrite_is_of_the_command_line_alone(void **state)
{
    struct config *config = load("--overwrite");

    (void)state;
    assert_true(config->train.overwrite);
    config_destroy(&config);
    config = load(NULL);
    assert_false(config->train.overwrite);
    config_destroy(&config);
    config_rig_refuses("train: {overwrite: true}\n", NULL, "train.overwrite: unknown key");
}

static void what_comes_later_is_legal_at_its_default_however_written(void **state)
{
    static const char *const legal[] = {"--control.port=0",
                                        "--control.secret_file=", "--data.tokenizer=byte"};
    struct config *config = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(legal) / sizeof(legal[0]); i++) {
        config = load(legal[i]);
        config_destroy(&config);
    }
    assert_refused("--control.port=5", "5 is not supported by this build yet; legal now: 0");
    assert_refused("--parallel.schedule=nonsense",
                   "expected one of gpipe, 1f1b, interleaved_1f1b, bfs, zb_h1, zb_h2, izb, zb_v, "
                   "v_half, v_min, seq1f1b, auto, file:PATH; found nonsense");
    assert_refused("--control.port=-5", "expected an integer from 0");
}

static void one_word_is_for_all_stages_and_a_list_is_by_stage(void **state)
{
    struct config *config = load("--train.recompute=full");

    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(config->train.recompute[i], RECOMPUTE_FULL);
    }
    /* Nothing lies behind the last stage. */
    assert_int_equal(config->train.recompute[4], RECOMPUTE_NONE);
    config_destroy(&config);
    config = load("--train.recompute=none,selective, full ,none");
    assert_int_equal(config->train.recompute[0], RECOMPUTE_NONE);
    assert_int_equal(config->train.recompute[1], RECOMPUTE_SELECTIVE);
    assert_int_equal(config->train.recompute[2], RECOMPUTE_FULL);
    assert_int_equal(config->train.recompute[3], RECOMPUTE_NONE);
    config_destroy(&config);
    config = load("--train.recompute=[full,full,none,none]");
    assert_int_equal(config->train.recompute[1], RECOMPUTE_FULL);
    assert_int_equal(config->train.recompute[2], RECOMPUTE_NONE);
    config_destroy(&config);
    assert_refused("--train.recompute=full,none",
                   "train.recompute: expected one word, or 4 (parallel.pp 4 x virtual_stages 1), "
                   "found 2");
    assert_refused("--train.recompute=[full]", "expected one word, or 4");
    assert_refused("--train.recompute=full,none,none,none,none", "found 5");
    assert_refused("--train.recompute=[]", "expected one of none, selective, full, or a list");
    assert_refused("--train.recompute=full,half,none,none", "found full,half,none,none");
    assert_refused("--train.recompute=half", "expected one of none, selective, full");
}

static void a_resumed_run_may_change_what_is_named(void **state)
{
    struct config *config = load("--checkpoint.allow_change=[seed, data.shuffle,optimizer]");

    (void)state;
    assert_true(config_allows_change(config, "train", "seed"));
    assert_true(config_allows_change(config, "data", "shuffle"));
    assert_true(config_allows_change(config, "optimizer", "beta1"));
    assert_false(config_allows_change(config, "data", "train"));
    assert_false(config_allows_change(config, "train", "global_batch_size"));
    assert_false(config_allows_change(config, "optim", "beta1"));
    config_destroy(&config);
    config = load("--checkpoint.allow_change=train.global_batch_size,data.*");
    assert_true(config_allows_change(config, "train", "global_batch_size"));
    assert_true(config_allows_change(config, "data", "train"));
    assert_false(config_allows_change(config, "train", "seed"));
    config_destroy(&config);
    config = load("--checkpoint.allow_change=[]");
    assert_false(config_allows_change(config, "train", "seed"));
    config_destroy(&config);
}

static void a_name_that_no_resumed_run_is_asked_for_gets_the_nearest(void **state)
{
    (void)state;
    assert_refused(
        "--checkpoint.allow_change=sed",
        "checkpoint.allow_change: \"sed\" is no key that a resumed run is asked for; did "
        "you mean seed?");
    assert_refused("--checkpoint.allow_change=seed,data.shufle", "did you mean shuffle?");
    assert_refused("--checkpoint.allow_change=everything_at_once", "; legal: data, optimizer, ");
    assert_refused("--checkpoint.allow_change=pp", "parallel.pp may not change yet: ");
    assert_refused("--checkpoint.allow_change=lr", "optimizer.lr may change without being named");
    assert_refused("--checkpoint.allow_change=hidden_size", "model.hidden_size may not change");
    assert_refused("--checkpoint.allow_change=optimizer.name", "optimizer.name may not change");
    assert_refused("--checkpoint.allow_change=seed,,data", "\"?\" is no key");
    config_rig_refuses("model: {num_layers: 6, hidden_size: 64, num_heads: 4, seq_len: 32}\n"
                       "checkpoint: {allow_change: seed}\n",
                       NULL, ":2: checkpoint.allow_change: expected a list of keys");
}

static void scales_that_cannot_be_or_not_move_are_refused(void **state)
{
    (void)state;
    assert_refused("--precision.loss_scale=0", "expected a number from 1e-18 to 1e+18, or auto");
    assert_refused("--precision.loss_scale=-2", "found -2");
    assert_refused("--precision.initial_scale=0",
                   "precision.initial_scale: expected a number from");
    assert_refused("--precision.min_scale=0", "precision.min_scale: expected a number from");
    assert_refused("--precision.growth_interval=0", "growth_interval: expected an integer from 1");
    assert_refused("--precision.growth_factor=1", "growth_factor: expected a number above 1");
    assert_refused("--precision.backoff_factor=1", "a number above 0, below 1; found 1");
    assert_refused("--precision.backoff_factor=0", "a number above 0, below 1; found 0");
    assert_refused("--precision.hysteresis=0", "hysteresis: expected an integer from 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_digits_only),
        cmocka_unit_test(reals_are_finite_decimals_in_range),
        cmocka_unit_test(booleans_are_true_and_false),
        cmocka_unit_test(bytes_take_units_of_1024),
        cmocka_unit_test(words_stand_for_what_the_machine_or_the_run_decides),
        cmocka_unit_test(the_format_follows_the_file_name_unless_given),
        cmocka_unit_test(texts_are_kept_whole_or_refused),
        cmocka_unit_test(lists_may_stand_with_or_without_brackets),
        cmocka_unit_test(more_stages_than_layers_leave_the_last_ones_empty),
        cmocka_unit_test(words_that_are_no_override_are_refused_as_they_stand),
        cmocka_unit_test(overwrite_is_of_the_command_line_alone),
        cmocka_unit_test(one_word_is_for_all_stages_and_a_list_is_by_stage),
        cmocka_unit_test(a_resumed_run_may_change_what_is_named),
        cmocka_unit_test(a_name_that_no_resumed_run_is_asked_for_gets_the_nearest),
        cmocka_unit_test(scales_that_cannot_be_or_not_move_are_refused),
        cmocka_unit_test(what_comes_later_is_legal_at_its_default_however_written),
    };

    return cmocka_run_group_tests_name("config_value", tests, config_rig_open, config_rig_close);
}

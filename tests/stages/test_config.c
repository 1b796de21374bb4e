/* What a configuration resolves to, and what is refused, with which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/config.h"

static char path[64];

static const char base[] =
    "model: {num_layers: 30, hidden_size: 64, num_heads: 4, seq_len: 32, vocab_size: 256}\n"
    "parallel: {pp: 4}\n"
    "train: {steps: 10, micro_batch_size: 2, num_microbatches: 4}\n"
    "optimizer: {lr: 1.0e-3}\n"
    "data: {train: text.txt}\n";

static int make_path(void **state)
{
    int descriptor = -1;

    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/weir-config-XXXXXX.yaml");
    descriptor = mkstemps(path, 5);
    return descriptor < 0 ? -1 : close(descriptor);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_yaml(const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Loads the base with one override ("" for none). */
static enum status load(const char *override, struct config **config)
{
    char *copy = strdup(override);
    enum status status = STATUS_OK;

    *config = NULL;
    write_yaml(base);
    status = config_load(path, &copy, override[0] != '\0' ? 1 : 0, config);
    free(copy);
    return status;
}

static void assert_refused(const char *override, const char *first, const char *second)
{
    struct config *config = NULL;
    enum status status = load(override, &config);
    const char *message = status_last()->message;

    config_destroy(&config);
    if (status != STATUS_ERR_REFUSED || strstr(message, first) == NULL ||
        strstr(message, second) == NULL) {
        fail_msg("%s: got %s, \"%s\"; expected a refusal with \"%s\" and \"%s\"", override,
                 status_name(status), message, first, second);
    }
}

static void test_defaults_are_those_of_the_design(void **state)
{
    struct config *config = NULL;

    (void)state;
    assert_int_equal(load("", &config), STATUS_OK);
    assert_int_equal(config->model.ffn_hidden_size, 256);
    assert_int_equal(config->model.max_positions, 32);
    assert_true(config->model.init_std == 0.02 && config->model.layer_norm_eps == 1e-5);
    assert_true(config->model.tied_embeddings);
    assert_int_equal(config->parallel.schedule, SCHEDULE_1F1B);
    assert_int_equal(config->parallel.lane_depth, 2);
    assert_int_equal(config->train.seed, 1234);
    assert_int_equal(config->train.global_batch_size, 8);
    assert_true(config->optimizer.beta1 == 0.9 && config->optimizer.beta2 == 0.95);
    assert_true(config->optimizer.eps == 1e-8 && config->optimizer.weight_decay == 0.1);
    assert_true(config->optimizer.grad_clip == 1.0 && config->optimizer.min_lr == 0.0);
    assert_int_equal(config->optimizer.lr_schedule, LR_COSINE);
    assert_int_equal(config->optimizer.decay_steps, 10);
    assert_true(config->data.split[0] == 0.95 && config->data.split[1] == 0.05);
    assert_true(config->data.shuffle);
    assert_int_equal(config->precision.max_skipped_in_a_row, 50);
    assert_true(config->control.heartbeat_s == 2.0 && config->control.dead_after_s == 10.0);
    assert_true(config->control.start_timeout_s == 600.0);
    assert_false(config->trace.enabled);
    assert_int_equal(config->precision.dtype, DTYPE_FP32);
    assert_true(config->precision.loss_scale == 1.0 && !config->precision.dynamic_scale);
    assert_true(config->precision.initial_scale == 65536.0 && config->precision.min_scale == 1.0);
    assert_int_equal(config->precision.growth_interval, 1000);
    assert_int_equal(config->precision.hysteresis, 2);
    assert_true(config->precision.growth_factor == 2.0 && config->precision.backoff_factor == 0.5);
    assert_int_equal(config->optimizer.name, OPTIMIZER_ADAM);
    assert_true(config->optimizer.momentum == 0.9 && config->model.dropout == 0.0);
    assert_int_equal(config->optimizer.weight_decay_schedule, WD_CONSTANT);
    assert_true(config->optimizer.end_weight_decay == 0.1);
    assert_int_equal(config->optimizer.weight_decay_steps, 10);
    assert_int_equal(config->parallel.zero_stage, 0);
    assert_int_equal(config->train.recompute[3], RECOMPUTE_NONE);
    assert_false(config->train.log_num_zeros || config->train.log_params_norm);
    assert_int_equal(config->checkpoint.every, 0);
    assert_int_equal(config->checkpoint.keep, 2);
    assert_int_equal(config->checkpoint.resume, RESUME_AUTO);
    assert_string_equal(config->checkpoint.allow_change[0], "");
    config_destroy(&config);
}

/* H16: 30 layers on 4 stages: all appear once, the last ones fewer. */
static void test_layers_are_split_evenly_and_none_is_lost(void **state)
{
    struct config *config = NULL;

    (void)state;
    assert_int_equal(load("", &config), STATUS_OK);
    assert_int_equal(config->parallel.layers_per_stage[0], 8);
    assert_int_equal(config->parallel.layers_per_stage[1], 8);
    assert_int_equal(config->parallel.layers_per_stage[2], 7);
    assert_int_equal(config->parallel.layers_per_stage[3], 7);
    config_destroy(&config);
    assert_int_equal(load("parallel.layers_per_stage=[0, 10, 15, 5]", &config), STATUS_OK);
    assert_int_equal(config->parallel.layers_per_stage[2], 15);
    config_destroy(&config);
    assert_refused("parallel.layers_per_stage=[8, 8, 7]", "layers_per_stage", "4");
    assert_refused("parallel.layers_per_stage=[8, 8, 8, 8]", "layers_per_stage", "30");
}

static void test_any_two_batch_keys_give_the_third(void **state)
{
    struct config *config = NULL;

    (void)state;
    assert_int_equal(load("train.global_batch_size=8", &config), STATUS_OK);
    config_destroy(&config);
    assert_refused("train.global_batch_size=10", "global_batch_size", "8");
}

static void test_contradictions_name_their_values(void **state)
{
    (void)state;
    assert_refused("model.num_heads=5", "model.num_heads", "64");
    assert_refused("model.max_positions=16", "max_positions", "seq_len");
    assert_refused("optimizer.warmup_steps=10", "warmup_steps", "10");
    assert_refused("optimizer.grad_clip=-1", "grad_clip", "-1");
    assert_refused("data.split=[0.5, 0.2, 0]", "split", "0.7");
    assert_refused("model.vocab_size=100", "vocab_size", "256");
    assert_refused("parallel.virtual_stages=2", "virtual_stages", "1f1b");
    assert_refused("parallel.sequence_slices=2", "sequence_slices", "seq1f1b");
}

static void test_what_this_build_cannot_do_is_refused_by_name(void **state)
{
    static const char *const later[] = {
        "data.tokenizer=gpt2",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
        char key[64];

        (void)snprintf(key, sizeof(key), "%.*s", (int)strcspn(later[i], "="), later[i]);
        assert_refused(later[i], key, "not supported by this build");
    }
}

static void test_unknown_keys_and_wrong_types_name_place_and_the_nearest(void **state)
{
    struct config *config = NULL;

    (void)state;
    assert_refused("parallel.pipe=2", "parallel.pipe", "parallel.pp");
    assert_refused("train.stpes=2", "train.stpes", "train.steps");
    assert_refused("train.steps=soon", "train.steps", "soon");
    assert_refused("trace.enabled=yes", "trace.enabled", "true");
    write_yaml("model: {num_layers: 2}\ntrian: {steps: 1}\n");
    assert_int_equal(config_load(path, NULL, 0, &config), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, path));
    assert_non_null(strstr(status_last()->message, ":2"));
    assert_non_null(strstr(status_last()->message, "train"));
    write_yaml("model: {num_layers: 2, num_layers: 3}\n");
    assert_int_equal(config_load(path, NULL, 0, &config), STATUS_ERR_REFUSED);
    write_yaml("model: [1, 2\n");
    assert_int_equal(config_load(path, NULL, 0, &config), STATUS_ERR_REFUSED);
    assert_null(config);
}

static void test_the_resolved_configuration_reads_back_to_itself(void **state)
{
    struct config *config = NULL;
    struct config *again = NULL;
    FILE *file = NULL;

    (void)state;
    assert_int_equal(load("optimizer.lr=3.3e-4", &config), STATUS_OK);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(config_write_yaml(config, file), STATUS_OK);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(config_load(path, NULL, 0, &again), STATUS_OK);
    assert_true(config_hash(config) == config_hash(again));
    assert_true(again->optimizer.lr == 3.3e-4);
    config_destroy(&again);
    assert_int_equal(load("optimizer.lr=3.4e-4", &again), STATUS_OK);
    assert_true(config_hash(config) != config_hash(again));
    config_destroy(&config);
    config_destroy(&again);
}

static void test_later_overrides_win(void **state)
{
    char first[] = "--train.steps=20";
    char second[] = "train.steps=30";
    char *overrides[] = {first, second};
    struct config *config = NULL;

    (void)state;
    write_yaml(base);
    assert_int_equal(config_load(path, overrides, 2, &config), STATUS_OK);
    assert_int_equal(config->train.steps, 30);
    config_destroy(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_those_of_the_design),
        cmocka_unit_test(test_layers_are_split_evenly_and_none_is_lost),
        cmocka_unit_test(test_any_two_batch_keys_give_the_third),
        cmocka_unit_test(test_contradictions_name_their_values),
        cmocka_unit_test(test_what_this_build_cannot_do_is_refused_by_name),
        cmocka_unit_test(test_unknown_keys_and_wrong_types_name_place_and_the_nearest),
        cmocka_unit_test(test_the_resolved_configuration_reads_back_to_itself),
        cmocka_unit_test(test_later_overrides_win),
    };

    return cmocka_run_group_tests_name("config", tests, make_path, remove_path);
}

/* What a file may look like, and where a refusal says that it stands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_rig.h"

/* Expects `text` to be refused with "FILE:where" and what follows it in the message. */
static void assert_refused_at(const char *text, const char *where, const char *words)
{
    char expected[512];

    (void)snprintf(expected, sizeof(expected), "%s:%s", config_rig_path(), where);
    config_rig_refuses(text, NULL, expected);
    config_rig_refuses(text, NULL, words);
}

static void unknown_keys_are_refused_with_file_and_line(void **state)
{
    (void)state;
    assert_refused_at("model: {num_layers: 2}\n\nparallel:\n  pp: 2\n  pipe: 2\n",
                      "5: parallel.pipe: unknown key; did you mean parallel.pp?", "pipe");
    assert_refused_at("# a comment\nparalel: {pp: 2}\n",
                      "2: paralel: unknown section; did you mean parallel?", "paralel");
    assert_refused_at("pp: 2\n", "1: pp: unknown section; did you mean parallel.pp?", "pp");
    assert_refused_at("model:\n  <<: {a: 1}\n", "2: model.<<: unknown key", "<<");
}

static void what_is_given_twice_is_refused_with_both_lines(void **state)
{
    char first[128];

    (void)state;
    (void)snprintf(first, sizeof(first), "given twice; first at %s:2", config_rig_path());
    assert_refused_at("model:\n  num_layers: 2\n  num_heads: 1\n  num_layers: 2\n",
                      "4: model.num_layers: ", first);
    assert_refused_at("\ntrain: {steps: 1}\nmodel: {num_layers: 2}\ntrain: {seed: 1}\n",
                      "4: train: ", first);
}

static void values_of_the_wrong_kind_are_refused_with_their_line(void **state)
{
    (void)state;
    assert_refused_at("train:\n  steps: [1, 2]\n", "2: train.steps: expected an integer", "[1, 2]");
    assert_refused_at("train:\n  steps: {a: 1}\n",
                      "2: train.steps: expected a single value, found keys below it", "");
    assert_refused_at("train:\n  steps:\n", "2: train.steps: expected a value", "default");
    assert_refused_at("train:\n  steps: ~\n", "2: train.steps: expected a value", "default");
    assert_refused_at("train:\n  steps: \"5\"\n", "2: train.steps: expected an integer",
                      "found the text \"5\"");
    assert_refused_at("data:\n  split: 0.5\n", "2: data.split: expected a list", "0.5");
    assert_refused_at("data:\n  split: [[1], 0, 0]\n", "2: data.split: expected a single value",
                      "found a list");
    assert_refused_at("train: 5\n", "1: train: expected keys below it, found a single value", "");
    assert_refused_at("- a\n", "1: the configuration: expected keys below it, found a list", "");
    assert_refused_at("just text\n", "1: the configuration: expected keys below it", "");
}

static void what_else_yaml_knows_is_refused(void **state)
{
    (void)state;
    assert_refused_at("train:\n  steps: &a 5\n", "2: train.steps: YAML tags and anchors", "");
    assert_refused_at("train:\n  steps: !!int 5\n", "2: train.steps: YAML tags and anchors", "");
    assert_refused_at("train:\n  steps: *a\n", "2: train.steps: expected a single value",
                      "an alias");
    assert_refused_at("train: {steps: 5}\n---\ntrain: {seed: 5}\n", "2", "a second one");
    assert_refused_at("train:\n  run_dir: \"a\\0b\"\n", "2: train.run_dir: found a NUL byte", "");
}

static void what_is_no_yaml_is_refused_with_line_and_column(void **state)
{
    (void)state;
    assert_refused_at("model: {num_layers: 2\ntrain: {steps: 5}\n", "2:", "expected YAML");
    assert_refused_at("model:\n\tnum_layers: 2\n", "", "expected YAML");
    assert_refused_at("model: {num_layers: \xff\xfe}\n", "", "expected YAML");
}

static void brackets_without_end_are_refused_and_no_crash(void **state)
{
    enum {
        DEPTH = 100000
    };
    char *text = malloc(DEPTH + 64);

    (void)state;
    assert_non_null(text);
    (void)snprintf(text, DEPTH + 64, "train: {steps: ");
    memset(text + strlen(text), '[', DEPTH);
    text[DEPTH + 15] = '\0';
    config_rig_refuses(text, NULL, config_rig_path());
    memset(text + 7, '{', DEPTH);
    config_rig_refuses(text, NULL, config_rig_path());
    free(text);
}

static void all_missing_keys_are_named_at_once(void **state)
{
    (void)state;
    config_rig_refuses("# nothing\n", NULL,
                       "model.num_layers, model.hidden_size, model.num_heads, model.seq_len, "
                       "train.steps, optimizer.lr, data.train");
    config_rig_refuses("", NULL, "model.num_layers");
    config_rig_refuses("model:\ntrain: {steps: 1}\n", NULL, "data.train");
}

static void a_file_that_is_not_there_is_refused_by_name(void **state)
{
    struct config *config = NULL;

    (void)state;
    assert_int_equal(config_load("/nowhere/at/all.yaml", NULL, 0, &config), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "/nowhere/at/all.yaml"));
    assert_null(config);
}

static void comments_quotes_and_styles_do_not_matter(void **state)
{
    struct config *config = NULL;

    (void)state;
    assert_int_equal(
        config_rig_load("--- # one document\n"
                        "\"model\": {num_layers: 6, hidden_size: 64,\n"
                        "  num_heads: 4, seq_len: 32}\n"
                        "train: {steps: 100, micro_batch_size: 2, num_microbatches: 4,}\n"
                        "optimizer:\n"
                        "  lr: 3e-4 # small\n"
                        "  lr_schedule: 'linear'\n"
                        "data:\n"
                        "  train: 'a # b.txt'\n"
                        "  split:\n"
                        "  - 0.5\n"
                        "  - 0.25\n"
                        "  - 0.25\n"
                        "trace:\n"
                        "...\n",
                        NULL, NULL, &config),
        STATUS_OK);
    assert_int_equal(config->model.num_layers, 6);
    assert_string_equal(config->data.train, "a # b.txt");
    assert_int_equal(config->optimizer.lr_schedule, LR_LINEAR);
    assert_true(config->data.split[0] == 0.5 && config->data.split[2] == 0.25);
    assert_string_equal(config->name, "rig");
    assert_string_equal(config->train.run_dir, "runs/rig");
    config_destroy(&config);
    assert_null(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_keys_are_refused_with_file_and_line),
        cmocka_unit_test(what_is_given_twice_is_refused_with_both_lines),
        cmocka_unit_test(values_of_the_wrong_kind_are_refused_with_their_line),
        cmocka_unit_test(what_else_yaml_knows_is_refused),
        cmocka_unit_test(what_is_no_yaml_is_refused_with_line_and_column),
        cmocka_unit_test(brackets_without_end_are_refused_and_no_crash),
        cmocka_unit_test(all_missing_keys_are_named_at_once),
        cmocka_unit_test(a_file_that_is_not_there_is_refused_by_name),
        cmocka_unit_test(comments_quotes_and_styles_do_not_matter),
    };

    return cmocka_run_group_tests_name("config_yaml", tests, config_rig_open, config_rig_close);
}

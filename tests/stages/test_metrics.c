/* metrics.jsonl and the console line: what stands in them, and that JSON stays JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config_rig.h"
#include "stages/metrics.h"

#define LINES_MOST 8

static char directory[] = "/tmp/weir-metrics-XXXXXX";
static char path[64];

static int open_all(void **state)
{
    if (config_rig_open(state) != 0 || mkdtemp(directory) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", directory);
    return 0;
}

static int close_all(void **state)
{
    (void)unlink(path);
    return rmdir(directory) == 0 ? config_rig_close(state) : -1;
}

/* A run's metrics, with what they print kept apart from the test's own output. */
struct rig {
    bool fp16;
    struct config *config;
    struct metrics *metrics;
    const struct metrics_past *past; /* NULL: a run that begins */
    int kept;
    FILE *printed;
};

/* 4 stages, global batch 8, seq_len 32: 256 tokens a step; 100 steps, of which each third is
 * printed. */
static void rig_begin(struct rig *rig)
{
    struct model_shape shape;
    char run_dir[96];

    (void)snprintf(run_dir, sizeof(run_dir), "--train.run_dir=%s", directory);
    assert_int_equal(
        config_rig_load(config_rig_legal(), run_dir, "--train.log_every=3", &rig->config),
        STATUS_OK);
    if (rig->fp16) {
        rig->config->precision.dtype = DTYPE_FP16;
        rig->config->precision.dynamic_scale = true;
    }
    model_shape_of(rig->config, 0, &shape);
    rig->printed = tmpfile();
    assert_non_null(rig->printed);
    (void)fflush(stdout);
    rig->kept = dup(STDOUT_FILENO);
    assert_true(rig->kept >= 0);
    assert_true(dup2(fileno(rig->printed), STDOUT_FILENO) >= 0);
    assert_int_equal(metrics_open(rig->config, &shape, rig->past, &rig->metrics), STATUS_OK);
}

/* What was printed, cut to `text_bytes`. */
static void rig_end(struct rig *rig, char *text, size_t text_bytes)
{
    size_t got = 0;

    metrics_close(&rig->metrics);
    assert_null(rig->metrics);
    metrics_close(&rig->metrics);
    (void)fflush(stdout);
    assert_true(dup2(rig->kept, STDOUT_FILENO) >= 0);
    assert_int_equal(close(rig->kept), 0);
    rewind(rig->printed);
    got = fread(text, 1, text_bytes - 1, rig->printed);
    text[got] = '\0';
    assert_int_equal(fclose(rig->printed), 0);
    config_destroy(&rig->config);
}

static struct update_outcome outcome_of(bool skipped)
{
    struct update_outcome outcome = {
        .skipped = skipped,
        .loss = 3.4125,
        .grad_norm = 0.8203125,
        .lr = 3e-4,
        .loss_scale = 1.0,
        .bubble = 0.0625,
        .mem_bytes = 1200000000,
    };

    (void)snprintf(outcome.cause, sizeof(outcome.cause), "%s",
                   skipped ? "rank 1: h.0.\"x\" holds NaN" : "");
    return outcome;
}

static void put(struct rig *rig, int64_t step, int64_t update, const struct update_outcome *outcome)
{
    const struct metrics_step line = {
        .step = step,
        .update = update,
        .consumed_samples = 8 * step,
        .seconds = 0.5,
        .bubble_ideal = 0.03125,
        .outcome = outcome,
    };

    assert_int_equal(metrics_put(rig->metrics, &line), STATUS_OK);
}

/* The lines of metrics.jsonl, each of which has to be one strict JSON object. */
static size_t read_lines(json_t **lines)
{
    static char text[32768];
    FILE *file = fopen(path, "r");
    size_t count = 0;

    assert_non_null(file);
    while (fgets(text, sizeof(text), file) != NULL) {
        json_error_t error;

        assert_true(count < LINES_MOST);
        assert_int_equal(text[strlen(text) - 1], '\n');
        lines[count] = json_loads(text, JSON_REJECT_DUPLICATES, &error);
        if (lines[count] == NULL) {
            fail_msg("line %zu: %s", count + 1, error.text);
        }
        count++;
    }
    assert_int_equal(fclose(file), 0);
    return count;
}

static void drop_lines(json_t **lines, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        json_decref(lines[i]);
    }
}

static double real(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);

    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void the_first_line_is_the_configuration(void **state)
{
    struct rig rig = {0};
    json_t *lines[LINES_MOST] = {NULL};
    char printed[64];

    (void)state;
    rig_begin(&rig);
    rig_end(&rig, printed, sizeof(printed));
    assert_string_equal(printed, "");
    assert_int_equal(read_lines(lines), 1);
    assert_true(real(json_object_get(lines[0], "model"), "hidden_size") == 64.0);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(lines[0], "train"), "run_dir")),
        directory);
    drop_lines(lines, 1);
}

/* V 256, C 64, L 6, F 256, T 32: without positions 256·64 + 6·(12·64² + 13·64) + 2·64 = 316,416
 * parameters; 6 · that + 12·6·64·32 = 2,045,952 FLOPs a token, 523,763,712 a step. */
static void a_step_has_the_keys_and_numbers_of_the_contract(void **state)
{
    static const char *const keys[] = {
        "step",
        "update",
        "loss",
        "grad_norm",
        "lr",
        "loss_scale",
        "skipped",
        "consumed_samples",
        "consumed_tokens",
        "step_ms",
        "tokens_per_s",
        "tflops",
        "bubble",
        "bubble_ideal",
        "mem_bytes",
    };
    const struct update_outcome outcome = outcome_of(false);
    struct rig rig = {0};
    json_t *lines[LINES_MOST] = {NULL};
    char printed[1024];

    (void)state;
    rig_begin(&rig);
    put(&rig, 7, 6, &outcome);
    rig_end(&rig, printed, sizeof(printed));
    assert_int_equal(read_lines(lines), 2);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        assert_non_null(json_object_get(lines[1], keys[i]));
    }
    assert_int_equal(json_object_size(lines[1]), sizeof(keys) / sizeof(keys[0]));
    assert_true(json_is_false(json_object_get(lines[1], "skipped")));
    assert_true(real(lines[1], "step") == 7.0);
    assert_true(real(lines[1], "update") == 6.0);
    assert_true(real(lines[1], "loss") == 3.4125);
    assert_true(real(lines[1], "grad_norm") == 0.8203125);
    assert_true(real(lines[1], "lr") == 3e-4);
    assert_true(real(lines[1], "loss_scale") == 1.0);
    assert_true(real(lines[1], "consumed_samples") == 56.0);
    assert_true(real(lines[1], "consumed_tokens") == 1792.0);
    assert_true(real(lines[1], "step_ms") == 500.0);
    assert_true(real(lines[1], "tokens_per_s") == 512.0);
    assert_true(fabs(real(lines[1], "tflops") - 1.047527424e-3) < 1e-15);
    assert_true(real(lines[1], "bubble") == 0.0625);
    assert_true(real(lines[1], "bubble_ideal") == 0.03125);
    assert_true(real(lines[1], "mem_bytes") == 1.2e9);
    drop_lines(lines, 2);
}

static void a_validation_loss_stands_where_there_was_one(void **state)
{
    const struct update_outcome outcome = outcome_of(false);
    const struct metrics_step line = {
        .step = 2, .seconds = 1.0, .has_valid = true, .valid_loss = 2.25, .outcome = &outcome};
    struct rig rig = {0};
    json_t *lines[LINES_MOST] = {NULL};
    char printed[1024];

    (void)state;
    rig_begin(&rig);
    assert_int_equal(metrics_put(rig.metrics, &line), STATUS_OK);
    metrics_print_held_out(rig.metrics, "valid", 2, 2.25);
    rig_end(&rig, printed, sizeof(printed));
    assert_int_equal(read_lines(lines), 2);
    assert_true(real(lines[1], "valid_loss") == 2.25);
    assert_string_equal(printed, "step 2 | valid loss 2.2500\n");
    drop_lines(lines, 2);
}

static void what_was_asked_for_is_told_too(void **state)
{
    struct update_outcome outcome = outcome_of(false);
    struct rig rig = {0};
    json_t *lines[LINES_MOST] = {NULL};
    char printed[1024];

    (void)state;
    outcome.has_num_zeros = true;
    outcome.num_zeros = 12345.0;
    outcome.has_params_norm = true;
    outcome.params_norm = 6.25;
    rig_begin(&rig);
    put(&rig, 1, 1, &outcome);
    rig_end(&rig, printed, sizeof(printed));
    assert_int_equal(read_lines(lines), 2);
    assert_true(real(lines[1], "num_zeros") == 12345.0);
    assert_true(real(lines[1], "params_norm") == 6.25);
    assert_non_null(strstr(printed, " | zeros 12345 | pnorm 6.2500 | eta "));
    assert_null(strstr(printed, "scale"));
    drop_lines(lines, 2);
}

static void a_dynamic_scale_stands_in_every_line(void **state)
{
    struct update_outcome good = outcome_of(false);
    struct update_outcome bad = outcome_of(true);
    struct rig rig = {.fp16 = true};
    json_t *lines[LINES_MOST] = {NULL};
    char printed[4096];

    (void)state;
    good.loss_scale = 65536.0;
    bad.loss_scale = 65536.0;
    bad.hysteresis_left = 1;
    rig_begin(&rig);
    put(&rig, 1, 1, &good);
    put(&rig, 2, 1, &bad);
    rig_end(&rig, printed, sizeof(printed));
    assert_int_equal(read_lines(lines), 3);
    assert_true(real(lines[1], "loss_scale") == 65536.0);
    assert_null(json_object_get(lines[1], "hysteresis_left"));
    assert_true(real(lines[2], "hysteresis_left") == 1.0);
    assert_non_null(strstr(printed, " | scale 65536 | eta "));
    assert_non_null(strstr(printed, " | scale 65536 skip 1 | eta "));
    drop_lines(lines, 3);
}

static void what_is_not_finite_is_null_and_the_run_goes_on(void **state)
{
    static const char *const keys[] = {"loss",         "grad_norm", "bubble",
                                       "tokens_per_s", "tflops",    "valid_loss"};
    struct update_outcome outcome = outcome_of(true);
    const struct metrics_step line = {.step = 1,
                                      .seconds = 0.0,
                                      .has_valid = true,
                                      .valid_loss = -(double)INFINITY,
                                      .outcome = &outcome};
    struct rig rig = {0};
    json_t *lines[LINES_MOST] = {NULL};
    char printed[1024];

    (void)state;
    outcome.loss = (double)NAN;
    outcome.grad_norm = (double)INFINITY;
    outcome.bubble = (double)NAN;
    rig_begin(&rig);
    assert_int_equal(metrics_put(rig.metrics, &line), STATUS_OK);
    rig_end(&rig, printed, sizeof(printed));
    assert_int_equal(read_lines(lines), 2);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        assert_true(json_is_null(json_object_get(lines[1], keys[i])));
    }
    drop_lines(lines, 2);
}

static void skipped_steps_are_counted_and_say_why(void **state)
{
    const struct update_outcome good = outcome_of(false);
    const struct update_outcome bad = outcome_of(true);
    struct rig rig = {0};
    json_t *lines[LINES_MOST] = {NULL};
    char printed[4096];

    (void)state;
    rig_begin(&rig);
    put(&rig, 1, 1, &good);
    put(&rig, 4, 3, &bad);
    put(&rig, 5, 3, &bad);
    put(&rig, 6, 4, &good);
    rig_end(&rig, printed, sizeof(printed));
    assert_int_equal(read_lines(lines), 5);
    assert_true(json_is_true(json_object_get(lines[3], "skipped")));
    assert_string_equal(json_string_value(json_object_get(lines[3], "cause")),
                        "rank 1: h.0.\"x\" holds NaN");
    assert_null(json_object_get(lines[4], "cause"));
    assert_non_null(strstr(printed, "step 5 skipped: rank 1: h.0.\"x\" holds NaN\n"));
    assert_non_null(strstr(printed, "step 6/100 | "));
    assert_non_null(strstr(printed, " | skip 2 | eta "));
    drop_lines(lines, 5);
}

/* log_every is 3: the first, each third and the last of 100. */
static void lines_are_printed_at_log_every_and_at_both_ends(void **state)
{
    static const int64_t steps[] = {1, 2, 3, 98, 100};
    const struct update_outcome outcome = outcome_of(false);
    struct rig rig = {0};
    json_t *lines[LINES_MOST] = {NULL};
    char printed[4096];
    const char *line = NULL;

    (void)state;
    rig_begin(&rig);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        metrics_tick(rig.metrics, steps[i]);
        put(&rig, steps[i], steps[i], &outcome);
    }
    rig_end(&rig, printed, sizeof(printed));
    assert_int_equal(read_lines(lines), 6);
    drop_lines(lines, 6);
    assert_ptr_equal(strstr(printed, "step 1/100"), printed);
    assert_null(strstr(printed, "step 2/"));
    assert_null(strstr(printed, "step 98/"));
    assert_null(strstr(printed, "[#"));
    line = strstr(printed, "step 3/100");
    assert_non_null(line);
    assert_ptr_equal(
        strstr(line, "step 3/100 | loss 3.4125 | gnorm 0.82 | lr 3.0e-04 | 500 ms | 512 tok/s | "
                     "0.3 GFLOP/s/rank | bubble 6.2% (ideal 3.1%) | mem 1.2G | eta "),
        line);
    line = strstr(printed, "step 100/100");
    assert_non_null(line);
    assert_non_null(strstr(line, "eta 0:00:00\n"));
}

static void each_line_is_whole_on_disk_before_the_next_step(void **state)
{
    const struct update_outcome outcome = outcome_of(false);
    struct rig rig = {0};
    json_t *lines[LINES_MOST] = {NULL};
    char printed[1024];

    (void)state;
    rig_begin(&rig);
    for (size_t count = 1; count < 4; count++) {
        assert_int_equal(read_lines(lines), count);
        drop_lines(lines, count);
        put(&rig, (int64_t)count, (int64_t)count, &outcome);
    }
    rig_end(&rig, printed, sizeof(printed));
}

/* The lines themselves are test_metrics_file's affair. */
static void a_resumed_run_goes_on_with_steps_and_skips(void **state)
{
    const struct metrics_past past = {.step = 3, .skipped = 4};
    const struct update_outcome outcome = outcome_of(false);
    struct rig rig = {.past = &past};
    json_t *lines[LINES_MOST] = {NULL};
    char printed[2048];

    (void)state;
    rig_begin(&rig);
    metrics_print_resumed(rig.metrics, 3, "a/step-00000003");
    put(&rig, 4, 4, &outcome);
    assert_int_equal(metrics_sync(rig.metrics), STATUS_OK);
    rig_end(&rig, printed, sizeof(printed));
    assert_non_null(strstr(printed, "resumed from step 3 | a/step-00000003\n"));
    /* The first step of a process is printed whatever log_every says. */
    assert_non_null(strstr(printed, "step 4/100 | "));
    assert_non_null(strstr(printed, "skip 4"));
    drop_lines(lines, read_lines(lines));
}

static void a_directory_that_is_not_there_is_a_failure_by_name(void **state)
{
    struct config *config = NULL;
    struct metrics *metrics = NULL;
    struct model_shape shape;

    (void)state;
    assert_int_equal(
        config_rig_load(config_rig_legal(), "--train.run_dir=/tmp/weir-none/none", NULL, &config),
        STATUS_OK);
    model_shape_of(config, 0, &shape);
    assert_int_equal(metrics_open(config, &shape, NULL, &metrics), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "/tmp/weir-none/none/metrics.jsonl"));
    assert_null(metrics);
    config_destroy(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_line_is_the_configuration),
        cmocka_unit_test(a_step_has_the_keys_and_numbers_of_the_contract),
        cmocka_unit_test(a_validation_loss_stands_where_there_was_one),
        cmocka_unit_test(what_is_not_finite_is_null_and_the_run_goes_on),
        cmocka_unit_test(what_was_asked_for_is_told_too),
        cmocka_unit_test(a_dynamic_scale_stands_in_every_line),
        cmocka_unit_test(skipped_steps_are_counted_and_say_why),
        cmocka_unit_test(lines_are_printed_at_log_every_and_at_both_ends),
        cmocka_unit_test(each_line_is_whole_on_disk_before_the_next_step),
        cmocka_unit_test(a_resumed_run_goes_on_with_steps_and_skips),
        cmocka_unit_test(a_directory_that_is_not_there_is_a_failure_by_name),
    };

    return cmocka_run_group_tests_name("metrics", tests, open_all, close_all);
}

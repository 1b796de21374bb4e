/* `weir trace`: from a run directory to trace, picture and table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stages/commands/command.h"
#include "tests/scheduler/demo_run.h"
#include "tests/scheduler/scratch.h"

#define MOST_ARGUMENTS 8

static const struct demo_config demo = {.shape = {.schedule = SCHEDULE_1F1B,
                                                  .ranks = 2,
                                                  .microbatches = 4,
                                                  .virtual_stages = 1,
                                                  .lane_depth = 2,
                                                  .early_send = true},
                                        .first_step = 1,
                                        .steps = 5,
                                        .forward_ms = 2.0,
                                        .input_ms = 2.0,
                                        .weight_ms = 1.0,
                                        .message_ms = 0.5,
                                        .update_ms = 1.0};

struct traced_run {
    struct scratch scratch;
    char stdout_path[SCRATCH_PATH_BYTES];
};

static void make_run(struct traced_run *traced)
{
    struct trace_run run;

    scratch_make(&traced->scratch);
    scratch_folder(&traced->scratch, "trace");
    scratch_path(&traced->scratch, "stdout", traced->stdout_path);
    demo_run_make(&demo, "demo", &run);
    demo_run_write(&run, traced->scratch.path);
    trace_run_release(&run);
}

/* Runs the command on up to three arguments with its results in a file. */
static enum status run_command(const struct traced_run *traced, const char *first,
                               const char *second, const char *third)
{
    const char *texts[] = {"trace", first, second, third};
    char *arguments[MOST_ARGUMENTS] = {NULL};
    int count = 0;
    int kept = dup(STDOUT_FILENO);
    enum status status = STATUS_OK;

    while (count < 4 && texts[count] != NULL) {
        arguments[count] = strdup(texts[count]);
        assert_non_null(arguments[count++]);
    }
    (void)fflush(stdout);
    assert_non_null(freopen(traced->stdout_path, "w", stdout));
    status = command_trace(count, arguments);
    (void)fflush(stdout);
    assert_int_equal(dup2(kept, STDOUT_FILENO), STDOUT_FILENO);
    (void)close(kept);
    while (count > 0) {
        free(arguments[--count]);
    }
    return status;
}

static bool exists(const struct traced_run *traced, const char *name)
{
    char path[SCRATCH_PATH_BYTES];
    struct stat found;

    scratch_path(&traced->scratch, name, path);
    return stat(path, &found) == 0;
}

static bool file_holds(const char *path, const char *wanted)
{
    size_t bytes = 0;
    char *text = scratch_read(path, &bytes);
    bool found = strstr(text, wanted) != NULL;

    free(text);
    return found;
}

static void without_options_it_merges_draws_and_sums(void **state)
{
    struct traced_run traced;
    char path[SCRATCH_PATH_BYTES];

    (void)state;
    make_run(&traced);
    assert_int_equal(run_command(&traced, traced.scratch.path, NULL, NULL), STATUS_OK);
    assert_true(exists(&traced, "trace/trace.json"));
    scratch_path(&traced.scratch, "timeline.svg", path);
    assert_true(file_holds(path, "steps 4 to 5")); /* the last two */
    assert_true(file_holds(traced.stdout_path, "5 steps, 2 ranks"));
    assert_true(file_holds(traced.stdout_path, "the bubble by cause"));
    assert_true(file_holds(traced.stdout_path, "critical path, "));
    assert_true(file_holds(traced.stdout_path, "stage 1     |"));
    assert_true(file_holds(traced.stdout_path, "step 5, ")); /* in characters, the last one */
    assert_true(exists(&traced, "timeline.html"));
    scratch_remove(&traced.scratch);
}

static void an_option_chooses_what_is_done(void **state)
{
    struct traced_run traced;
    char path[SCRATCH_PATH_BYTES];

    (void)state;
    make_run(&traced);
    assert_int_equal(run_command(&traced, "--format", "json", traced.scratch.path), STATUS_OK);
    assert_true(file_holds(traced.stdout_path, "\"causes\":{\"warm-up\":"));
    assert_false(file_holds(traced.stdout_path, "explain"));
    scratch_path(&traced.scratch, "here.json", path);
    assert_int_equal(run_command(&traced, "--json", path, traced.scratch.path), STATUS_OK);
    assert_true(exists(&traced, "here.json"));
    assert_false(exists(&traced, "trace/trace.json"));
    assert_false(exists(&traced, "timeline.svg"));
    scratch_remove(&traced.scratch);
}

static void each_file_has_an_option_of_its_own(void **state)
{
    static const char *const options[] = {"--html", "--perfetto", "--svg", "--json"};
    static const char *const begins[] = {"<!DOCTYPE html>", "\n", "<?xml ", "{\"displayTimeUnit\""};
    struct traced_run traced;
    char path[SCRATCH_PATH_BYTES];

    (void)state;
    make_run(&traced);
    scratch_path(&traced.scratch, "here", path);
    for (size_t index = 0; index < 4; index++) {
        size_t bytes = 0;
        char *text = NULL;

        assert_int_equal(run_command(&traced, options[index], path, traced.scratch.path),
                         STATUS_OK);
        text = scratch_read(path, &bytes);
        assert_int_equal(strncmp(text, begins[index], strlen(begins[index])), 0);
        free(text);
    }
    assert_false(exists(&traced, "timeline.html"));
    assert_int_equal(run_command(&traced, "--text", traced.scratch.path, NULL), STATUS_OK);
    assert_true(file_holds(traced.stdout_path, "stage 0     |F"));
    assert_false(file_holds(traced.stdout_path, "bubble"));
    scratch_remove(&traced.scratch);
}

/* The demo's own plan: p = 2, m = 4, F = I = 2, W = 1, latency 0.5: 20 ms of work, (p-1)(F+I) = 4 ms. */
static void a_run_is_explained_against_the_plan_of_its_configuration(void **state)
{
    static const char yaml[] =
        "model: {num_layers: 2, hidden_size: 8, num_heads: 2, seq_len: 8, vocab_size: 256}\n"
        "parallel: {pp: 2}\n"
        "train: {steps: 5, micro_batch_size: 1, num_microbatches: 4}\n"
        "optimizer: {lr: 0.1}\n"
        "data: {train: none.txt}\n";
    struct traced_run traced;
    char path[SCRATCH_PATH_BYTES];

    (void)state;
    make_run(&traced);
    assert_int_equal(run_command(&traced, "--explain", traced.scratch.path, NULL),
                     STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "config.yaml"));
    scratch_path(&traced.scratch, "config.yaml", path);
    scratch_write(path, yaml, sizeof(yaml) - 1);
    assert_int_equal(run_command(&traced, "--explain", traced.scratch.path, NULL), STATUS_OK);
    assert_true(file_holds(traced.stdout_path, "1f1b, pp 2, 4 micro-batches, early send on"));
    assert_true(file_holds(traced.stdout_path, "work      20.00 ms a rank"));
    assert_true(file_holds(traced.stdout_path, "(p-1)(F+I) = 1 x 4.00 ms = 4.00 ms"));
    assert_int_equal(run_command(&traced, "--format=json", "--explain", traced.scratch.path),
                     STATUS_OK);
    assert_true(file_holds(traced.stdout_path, "{\"run\":\"demo\",\"steps\":5,"));
    assert_true(file_holds(traced.stdout_path, "\"formula\":{\"text\":\"(p-1)(F+I)\""));
    assert_false(file_holds(traced.stdout_path, "ms a rank"));
    scratch_remove(&traced.scratch);
}

static void steps_limit_everything(void **state)
{
    struct traced_run traced;
    char path[SCRATCH_PATH_BYTES];

    (void)state;
    make_run(&traced);
    assert_int_equal(run_command(&traced, traced.scratch.path, "--steps", "1:3"), STATUS_OK);
    scratch_path(&traced.scratch, "timeline.svg", path);
    assert_true(file_holds(path, "steps 1 to 3"));
    scratch_path(&traced.scratch, "trace/trace.json", path);
    assert_true(file_holds(path, "\"step\":3"));
    assert_false(file_holds(path, "\"step\":4"));
    assert_true(file_holds(traced.stdout_path, "3 steps, 2 ranks"));
    scratch_remove(&traced.scratch);
}

static void what_cannot_be_meant_is_refused(void **state)
{
    static const char *const arguments[][2] = {
        {"--steps", "3:1"},  {"--steps", "a:b"},          {"--steps", "1:"},   {"--steps", "9:12"},
        {"--format", "xml"}, {"--format=json", "--text"}, {"--nothing", NULL}, {"--json", NULL}};
    struct traced_run traced;

    (void)state;
    make_run(&traced);
    for (size_t index = 0; index < sizeof(arguments) / sizeof(arguments[0]); index++) {
        assert_int_equal(
            run_command(&traced, traced.scratch.path, arguments[index][0], arguments[index][1]),
            STATUS_ERR_REFUSED);
    }
    assert_non_null(strstr(status_last()->message, "--json"));
    assert_int_equal(run_command(&traced, NULL, NULL, NULL), STATUS_ERR_REFUSED);
    assert_int_equal(run_command(&traced, "/nonexistent/run", NULL, NULL), STATUS_ERR_REFUSED);
    assert_int_equal(run_command(&traced, "a", "b", NULL), STATUS_ERR_REFUSED);
    scratch_remove(&traced.scratch);
}

static void a_run_that_was_not_traced_is_refused_with_the_key(void **state)
{
    struct traced_run traced;

    (void)state;
    scratch_make(&traced.scratch);
    scratch_path(&traced.scratch, "stdout", traced.stdout_path);
    assert_int_equal(run_command(&traced, traced.scratch.path, NULL, NULL), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "--trace.enabled=true"));
    scratch_remove(&traced.scratch);
}

static void help_is_printed(void **state)
{
    struct traced_run traced;

    (void)state;
    scratch_make(&traced.scratch);
    scratch_path(&traced.scratch, "stdout", traced.stdout_path);
    assert_int_equal(run_command(&traced, "--help", NULL, NULL), STATUS_OK);
    assert_true(file_holds(traced.stdout_path, "usage: weir trace RUN"));
    scratch_remove(&traced.scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_options_it_merges_draws_and_sums),
        cmocka_unit_test(an_option_chooses_what_is_done),
        cmocka_unit_test(each_file_has_an_option_of_its_own),
        cmocka_unit_test(a_run_is_explained_against_the_plan_of_its_configuration),
        cmocka_unit_test(steps_limit_everything),
        cmocka_unit_test(what_cannot_be_meant_is_refused),
        cmocka_unit_test(a_run_that_was_not_traced_is_refused_with_the_key),
        cmocka_unit_test(help_is_printed),
    };

    return cmocka_run_group_tests_name("command_trace", tests, NULL, NULL);
}

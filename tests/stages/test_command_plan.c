/* `weir plan` in every form: without a CONFIG, and what each rank holds with one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scheduler/plan_text.h"
#include "stages/commands/command.h"
#include "tests/scheduler/scratch.h"

#define MOST_ARGUMENTS 16

/* Runs `weir plan` on words separated by blanks; lends what it printed until it is freed. */
static enum status run_plan(const char *words, char **text_out)
{
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    char line[2048];
    char *arguments[MOST_ARGUMENTS] = {NULL};
    char *rest = NULL;
    int count = 0;
    int kept = dup(STDOUT_FILENO);
    size_t bytes = 0;
    enum status status;

    (void)snprintf(line, sizeof(line), "plan %s", words);
    for (char *word = strtok_r(line, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        assert_true(count + 1 < MOST_ARGUMENTS);
        arguments[count++] = word;
    }
    scratch_make(&scratch);
    scratch_path(&scratch, "stdout", path);
    assert_true(fflush(stdout) == 0 && kept >= 0);
    assert_non_null(freopen(path, "w", stdout));
    status = command_plan(count, arguments);
    assert_int_equal(fflush(stdout), 0);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    (void)close(kept);
    *text_out = scratch_read(path, &bytes);
    scratch_remove(&scratch);
    return status;
}

static int64_t integer(const json_t *root, const char *key)
{
    assert_true(json_is_integer(json_object_get(root, key)));
    return json_integer_value(json_object_get(root, key));
}

/* p 4, m 8, v 2 of the published tables: 28.5 without early send, peaks 5.5 to 2.5, 112 messages. */
static void json_has_the_numbers_of_the_published_table(void **state)
{
    char *text = NULL;
    json_error_t error;
    json_t *root;
    json_t *peaks;

    (void)state;
    assert_int_equal(run_plan("--schedule interleaved_1f1b --virtual-stages 2 --pp 4 "
                              "--num-microbatches 8 --early-send false --format json",
                              &text),
                     STATUS_OK);
    root = json_loads(text, 0, &error);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "schedule")), "interleaved_1f1b");
    assert_int_equal(integer(root, "p"), 4);
    assert_int_equal(integer(root, "m"), 8);
    assert_int_equal(integer(root, "v"), 2);
    assert_int_equal(integer(root, "messages"), 112);
    assert_int_equal(integer(root, "min_depth"), 1);
    assert_in_range(integer(root, "d_perf"), 1, 2);
    assert_true(json_number_value(json_object_get(root, "makespan")) == 28.5);
    assert_true(json_number_value(json_object_get(root, "bubble")) == 4.5);
    peaks = json_object_get(json_object_get(root, "peak"), "wall");
    for (size_t rank = 0; rank < 4; rank++) {
        assert_true(json_number_value(json_array_get(peaks, rank)) == 5.5 - (double)rank);
        assert_int_equal(json_array_size(json_array_get(json_object_get(root, "ranks"), rank)), 32);
    }
    assert_int_equal(json_array_size(json_object_get(root, "placement")), 8);
    json_decref(root);
    free(text);
}

/* By hand, p 3, F, I, W = 4, 6, 2 a rank and micro-batch: 2 hops of 4 + 6, of which half with two slices. */
static void the_formula_of_a_bubble_stands_beside_the_simulated_one(void **state)
{
    char *text = NULL;
    json_error_t error;
    json_t *root;
    const json_t *formula;

    (void)state;
    assert_int_equal(run_plan("--schedule seq1f1b --sequence-slices 2 --pp 3 --num-microbatches 4 "
                              "--costs 4,6,2 --format json",
                              &text),
                     STATUS_OK);
    root = json_loads(text, 0, &error);
    assert_non_null(root);
    formula = json_object_get(root, "formula");
    assert_string_equal(json_string_value(json_object_get(formula, "text")), "(p-1)(F+I)/k");
    assert_true(json_number_value(json_object_get(formula, "bubble")) == 10.0);
    assert_true(json_number_value(json_object_get(root, "bubble")) == 10.0);
    assert_true(json_number_value(json_object_get(json_object_get(root, "costs"), "I")) == 6.0);
    json_decref(root);
    free(text);
    assert_int_equal(run_plan("--schedule v_min --pp 3 --num-microbatches 4 --format json", &text),
                     STATUS_OK);
    assert_non_null(strstr(text, "\"formula\":{\"text\":null,\"limit\":null,\"bubble\":null}"));
    free(text);
}

/* A rank that puts its backwards off until six forwards have gone lets the gradients wait: one buffer
 * more than it reads is too few, by hand, two are enough. */
static void depths_are_shown_in_the_summary(void **state)
{
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    char words[SCRATCH_PATH_BYTES + 128];
    FILE *file = NULL;
    char *text = NULL;

    (void)state;
    assert_int_equal(run_plan("--pp 4 --num-microbatches 8 --format summary", &text), STATUS_OK);
    assert_non_null(strstr(text, "lane depth  2; nothing waits for more from 1\n"));
    free(text);
    scratch_make(&scratch);
    scratch_path(&scratch, "plan.csv", path);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("0F0,0F1,0F2,0F3,0F4,0F5,0B0,0B1,0B2,0B3,0B4,0B5\n"
                      "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1F4,1B4,1F5,1B5\n",
                      file) >= 0);
    assert_int_equal(fclose(file), 0);
    (void)snprintf(words, sizeof(words),
                   "--schedule file:%s --lane-depth 1 --costs 10,1,1 --format summary", path);
    assert_int_equal(run_plan(words, &text), STATUS_OK);
    assert_non_null(strstr(text, "lane depth  1; the makespan falls until 2\n"));
    free(text);
    scratch_remove(&scratch);
}

/* Makespans of the published tables, F = I = W = 1; the V's take two chunks unless told. */
static void every_schedule_is_planned_by_name(void **state)
{
    static const struct {
        const char *words;
        const char *makespan;
    } cases[] = {
        {"--schedule zb_h1", "makespan    27, ideal 24"},
        {"--schedule zb_h2", "makespan    27, ideal 24"},
        {"--schedule zb_v", "makespan    25.5, ideal 24"},
        {"--schedule v_half", "makespan    26.5, ideal 24"},
        {"--schedule v_min", "makespan    29.5, ideal 24"},
        {"--schedule izb --virtual-stages 2", "makespan    25.5, ideal 24"},
        {"--schedule bfs --virtual-stages 2 --early-send false", "makespan    28.5, ideal 24"},
        {"--schedule 1f1b --extra-in-flight 3 --early-send false",
         "peak        by rank, in micro-batches, to W: 7 5 3 1"}};
    char words[256];
    char *text = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)snprintf(words, sizeof(words), "--pp 4 --num-microbatches 8 --format summary %s",
                       cases[i].words);
        assert_int_equal(run_plan(words, &text), STATUS_OK);
        if (strstr(text, cases[i].makespan) == NULL) {
            fail_msg("%s: expected \"%s\" in %s", cases[i].words, cases[i].makespan, text);
        }
        free(text);
    }
}

/* Numbers without a unit say what they count; zb_h1 of this size is as short as any order. */
static void a_plan_that_was_searched_says_what_its_numbers_are(void **state)
{
    char *text = NULL;

    (void)state;
    assert_int_equal(
        run_plan("--pp 4 --num-microbatches 8 --schedule auto --format summary", &text), STATUS_OK);
    assert_non_null(strstr(text, "\nfound       zb_h1; no order is shorter, at these costs ("));
    assert_non_null(strstr(text, "\nmakespan    27, ideal 24, in units of the costs; ideal is what "
                                 "the fullest rank computes\n"));
    free(text);
}

/* p 4, m 8: 30 units of which 6 are bubble on every rank. */
static void a_plan_is_drawn_too(void **state)
{
    char *text = NULL;

    (void)state;
    assert_int_equal(run_plan("--pp 4 --num-microbatches 8 --format svg", &text), STATUS_OK);
    assert_int_equal(strncmp(text, "<?xml ", 6), 0);
    assert_non_null(strstr(text, "makespan 30 "));
    assert_non_null(strstr(text, "bubble 20.0%"));
    assert_non_null(strstr(text, ">time in units of the costs</text>"));
    assert_non_null(strstr(text, "<title>3W7, 1 units of the costs</title>"));
    assert_non_null(strstr(text, "</svg>\n"));
    free(text);
}

static void costs_that_are_none_are_refused_with_the_value(void **state)
{
    static const char *const costs[] = {"-1,1,1", "1,nan,1",   "1,1,inf", "1,1", "1,1,1,-2",
                                        "a,1,1",  "1,1,1,1,1", "0,0,0",   "",    "1,1,1,"};
    char words[96];
    char *text = NULL;

    (void)state;
    for (size_t index = 0; index < sizeof(costs) / sizeof(costs[0]); index++) {
        (void)snprintf(words, sizeof(words), "--pp 2 --num-microbatches 4 --costs=%s",
                       costs[index]);
        assert_int_equal(run_plan(words, &text), STATUS_ERR_REFUSED);
        (void)snprintf(words, sizeof(words), "\"%s\"", costs[index]);
        assert_non_null(strstr(status_last()->message, words));
        free(text);
    }
}

static void text_and_csv_read_back_as_the_plan(void **state)
{
    static const char *const forms[] = {"text", "csv"};
    static const char *const words = "--schedule interleaved_1f1b --virtual-stages 2 --pp 2 "
                                     "--num-microbatches 4 --format ";

    (void)state;
    for (size_t form = 0; form < 2; form++) {
        struct plan_shape shape = {.schedule = SCHEDULE_FILE, .lane_depth = 2};
        struct plan *plan = NULL;
        char line[256];
        char *text = NULL;

        (void)snprintf(line, sizeof(line), "%s%s", words, forms[form]);
        assert_int_equal(run_plan(line, &text), STATUS_OK);
        assert_int_equal(plan_text_parse("stdout", text, strlen(text), &shape, &plan), STATUS_OK);
        assert_int_equal(plan->shape.ranks, 2);
        assert_int_equal(plan->shape.virtual_stages, 2);
        assert_int_equal(plan->lines[0].count, 16);
        plan_destroy(&plan);
        free(text);
    }
}

static void chunks_of_a_schedule_that_has_none_are_refused(void **state)
{
    char *text = NULL;

    (void)state;
    assert_int_equal(
        run_plan("--schedule gpipe --virtual-stages 2 --pp 2 --num-microbatches 4", &text),
        STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "virtual_stages 2"));
    assert_non_null(strstr(status_last()->message, "interleaved_1f1b"));
    assert_string_equal(text, "");
    free(text);
}

/* A CONFIG in a folder of its own, and `weir plan` on it. */
static enum status run_config_plan(const char *words, char **text_out)
{
    static const char yaml[] = "model: {num_layers: 2, hidden_size: 32, num_heads: 2, seq_len: 8}\n"
                               "parallel: {pp: 2, dp: 2}\n"
                               "train: {steps: 1, micro_batch_size: 1, num_microbatches: 2}\n"
                               "optimizer: {lr: 1.0e-3}\n"
                               "data: {train: text.txt}\n";
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    char line[2 * SCRATCH_PATH_BYTES];
    enum status status;

    scratch_make(&scratch);
    scratch_path(&scratch, "job.yaml", path);
    scratch_write(path, yaml, strlen(yaml));
    (void)snprintf(line, sizeof(line), "%s %s", path, words);
    status = run_plan(line, text_out);
    scratch_remove(&scratch);
    return status;
}

static void json_has_the_memory_of_every_rank(void **state)
{
    char *text = NULL;
    json_t *root = NULL;
    json_t *memory = NULL;
    json_int_t sum = 0;
    const char *key = NULL;
    json_t *value = NULL;

    (void)state;
    assert_int_equal(run_config_plan("--format json --train.memory_limit=1G", &text), STATUS_OK);
    root = json_loads(text, 0, NULL);
    memory = json_object_get(root, "memory");
    assert_int_equal(integer(memory, "limit"), 1 << 30);
    assert_int_equal(json_array_size(json_object_get(memory, "state_each")), 4);
    json_object_foreach(memory, key, value)
    {
        if (json_is_array(value) && strcmp(key, "total") != 0 && strcmp(key, "state_each") != 0) {
            assert_int_equal(json_array_size(value), 4);
            sum += json_integer_value(json_array_get(value, 2));
        }
    }
    assert_true(sum > 0);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(memory, "total"), 2)), sum);
    assert_in_range(integer(memory, "largest_rank"), 0, 3);
    json_decref(root);
    free(text);
}

static void a_plan_that_does_not_fit_is_shown_and_refused(void **state)
{
    static const char *const forms[] = {"text", "summary", "json"};
    static const char *const shown[] = {"# memory      ", "memory      ", "\"limit\":10240"};

    (void)state;
    for (int form = 0; form < 3; form++) {
        char words[96];
        char *text = NULL;

        (void)snprintf(words, sizeof(words), "--format %s --train.memory_limit=10K", forms[form]);
        assert_int_equal(run_config_plan(words, &text), STATUS_ERR_REFUSED);
        assert_non_null(strstr(status_last()->message, "train.memory_limit: 10.0 KiB allowed"));
        assert_non_null(strstr(text, shown[form]));
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_has_the_numbers_of_the_published_table),
        cmocka_unit_test(the_formula_of_a_bubble_stands_beside_the_simulated_one),
        cmocka_unit_test(depths_are_shown_in_the_summary),
        cmocka_unit_test(every_schedule_is_planned_by_name),
        cmocka_unit_test(a_plan_that_was_searched_says_what_its_numbers_are),
        cmocka_unit_test(a_plan_is_drawn_too),
        cmocka_unit_test(costs_that_are_none_are_refused_with_the_value),
        cmocka_unit_test(text_and_csv_read_back_as_the_plan),
        cmocka_unit_test(chunks_of_a_schedule_that_has_none_are_refused),
        cmocka_unit_test(json_has_the_memory_of_every_rank),
        cmocka_unit_test(a_plan_that_does_not_fit_is_shown_and_refused),
    };

    return cmocka_run_group_tests_name("command_plan", tests, NULL, NULL);
}

/* The numbers of a run as JSON, against those by hand of a run whose costs were put into it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "scheduler/prove.h"
#include "scheduler/trace_json.h"
#include "tests/scheduler/demo_run.h"

/* p 4, m 8; F, I, W = 2, 3, 1 ms: 48 ms of work, and 15 of bubble; 1 ms of update between two steps. */
static const struct demo_config demo = {.shape = {.schedule = SCHEDULE_1F1B,
                                                  .ranks = 4,
                                                  .microbatches = 8,
                                                  .virtual_stages = 1,
                                                  .lane_depth = 2,
                                                  .early_send = true},
                                        .first_step = 1,
                                        .steps = 3,
                                        .forward_ms = 2.0,
                                        .input_ms = 3.0,
                                        .weight_ms = 1.0,
                                        .update_ms = 0.5};

/* The object of the run; of its plan too where `explained`. */
static json_t *print(const struct demo_config *config, bool explained)
{
    struct trace_run run;
    struct trace_explanation explanation;
    struct plan *lowered = NULL;
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    json_error_t error;
    json_t *root = NULL;

    assert_non_null(memory);
    assert_int_equal(plan_prove(&config->shape, NULL, &lowered), STATUS_OK);
    demo_run_make(config, "a \"demo\"", &run);
    assert_int_equal(trace_explain_make(&run, lowered, &explanation), STATUS_OK);
    assert_int_equal(trace_json_print(&run, explained ? &explanation : NULL, memory), STATUS_OK);
    assert_int_equal(fclose(memory), 0);
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        fail_msg("%s in %s", error.text, text);
    }
    free(text);
    trace_run_release(&run);
    plan_destroy(&lowered);
    return root;
}

static void expect(const json_t *object, const char *key, double expected)
{
    const json_t *number = json_object_get(object, key);

    if (!json_is_number(number) || fabs(json_number_value(number) - expected) > 1e-5) {
        fail_msg("%s is %f, expected %f", key, json_number_value(number), expected);
    }
}

static void numbers_are_those_of_the_run(void **state)
{
    json_t *root = print(&demo, true);
    const json_t *ranks = json_object_get(root, "ranks");
    const json_t *explain = json_object_get(root, "explain");
    const json_t *formula = json_object_get(explain, "formula");

    (void)state;
    assert_string_equal(json_string_value(json_object_get(root, "run")), "a \"demo\"");
    expect(root, "steps", 3);
    expect(root, "span_ms", 63.0);
    expect(root, "bubble", 15.0 / 63.0);
    assert_int_equal(json_array_size(ranks), 4);
    for (size_t index = 0; index < 4; index++) {
        const json_t *rank = json_array_get(ranks, index);
        const json_t *causes = json_object_get(rank, "causes");
        const char *cause = NULL;
        json_t *share = NULL;
        double sum = 0.0;

        expect(rank, "stage", (double)index);
        expect(rank, "busy_ms", 48.0);
        expect(rank, "bubble", 15.0 / 63.0);
        json_object_foreach((json_t *)causes, cause, share)
        {
            sum += json_number_value(share);
        }
        assert_true(fabs(sum - 15.0 / 63.0) < 1e-5);
        /* A rank waits for the first forwards of those before it, 2 ms each. */
        expect(causes, "warm-up", 2.0 * (double)index / 63.0);
    }
    expect(explain, "p", 4);
    expect(explain, "m", 8);
    expect(explain, "I_ms", 3.0);
    expect(explain, "ideal_ms", 48.0);
    expect(explain, "even_ms", 63.0);
    expect(explain, "between_ms", 1.0);
    assert_string_equal(json_string_value(json_object_get(formula, "text")), "(p-1)(F+I)");
    expect(formula, "bubble_ms", 15.0);
    json_decref(root);
}

static void what_is_not_known_is_null_or_not_there(void **state)
{
    struct demo_config config = demo;
    json_t *root = print(&demo, false);
    const json_t *formula = NULL;

    (void)state;
    assert_null(json_object_get(root, "explain"));
    json_decref(root);
    config.shape.schedule = SCHEDULE_V_MIN;
    config.shape.virtual_stages = 2;
    root = print(&config, true);
    formula = json_object_get(json_object_get(root, "explain"), "formula");
    assert_true(json_is_null(json_object_get(formula, "text")));
    assert_true(json_is_null(json_object_get(formula, "bubble_ms")));
    json_decref(root);
    config.shape.schedule = SCHEDULE_ZB_V; /* F, I and W differ */
    root = print(&config, true);
    formula = json_object_get(json_object_get(root, "explain"), "formula");
    assert_string_equal(json_string_value(json_object_get(formula, "text")), "(p-1)F/2");
    assert_string_equal(json_string_value(json_object_get(formula, "limit")), "F = I = W");
    assert_true(json_is_null(json_object_get(formula, "bubble_ms")));
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_the_run),
        cmocka_unit_test(what_is_not_known_is_null_or_not_there),
    };

    return cmocka_run_group_tests_name("trace_json", tests, NULL, NULL);
}

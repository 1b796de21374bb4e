/* The traffic of a job in what `weir plan` prints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "../scheduler/plan_fixture.h"
#include "stages/commands/plan_print.h"
#include "stages/commands/plan_traffic.h"

/* Messages of 1 × 8 × 32 × 4 = 1 KiB, four each way; an embedding of 16 × 32 × 4 = 2 KiB. */
static struct config small_job(int64_t pp)
{
    return (struct config){
        .model = {.num_layers = 2,
                  .hidden_size = 32,
                  .num_heads = 1,
                  .ffn_hidden_size = 128,
                  .seq_len = 8,
                  .max_positions = 8,
                  .vocab_size = 16,
                  .tied_embeddings = true},
        .parallel = {.pp = pp,
                     .tp = 1,
                     .dp = 1,
                     .virtual_stages = 1,
                     .sequence_slices = 1,
                     .layers_per_stage = {1, 1}},
        .train = {.micro_batch_size = 1, .num_microbatches = 4},
    };
}

/* Prints `traffic` with "# " before each line; free() the text. */
static char *printed(const struct plan_traffic *traffic)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    plan_traffic_print(traffic, "# ", out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void expect_table(int32_t pp, const char *expected)
{
    struct config config = small_job(pp);
    struct plan *plan = fixture_lowered(SCHEDULE_1F1B, pp, 4, true);
    struct plan_traffic traffic;
    char *text;

    assert_int_equal(plan_traffic_make(&config, plan, &traffic), STATUS_OK);
    text = printed(&traffic);
    assert_string_equal(text, expected);
    free(text);
    plan_traffic_release(&traffic);
    plan_destroy(&plan);
}

static void the_table_has_the_kinds_that_move_and_their_sum(void **state)
{
    (void)state;
    expect_table(2, "# traffic     a step                    largest rank           all ranks\n"
                    "#             activations               4.0 KiB (rank 0)         4.0 KiB\n"
                    "#             gradients                 4.0 KiB (rank 1)         4.0 KiB\n"
                    "#             embedding sync            2.0 KiB (rank 0)         4.0 KiB\n"
                    "#             total                     6.0 KiB (rank 0)        12.0 KiB\n");
}

static void one_rank_has_no_table(void **state)
{
    (void)state;
    expect_table(1, "# traffic     none between ranks\n");
}

/* The plan of two ranks as JSON; with `config` NULL without a model. */
static json_t *json_of(const struct config *config)
{
    struct plan *compute = fixture_compute(SCHEDULE_1F1B, 2, 4);
    struct plan *lowered = fixture_lowered(SCHEDULE_1F1B, 2, 4, true);
    struct plan_costs costs;
    struct plan_report report;
    struct plan_traffic traffic;
    const struct plan_costs_request asked = {.uniform = {1.0, 1.0, 1.0, 0.0}};
    struct plan_print print = {.compute = compute,
                               .lowered = lowered,
                               .costs = &asked,
                               .report = &report,
                               .traffic = &traffic,
                               .F = 1.0,
                               .I = 1.0,
                               .W = 1.0};
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    json_t *root;

    assert_int_equal(plan_costs_uniform(lowered, 1.0, 1.0, 1.0, 0.0, &costs), STATUS_OK);
    assert_int_equal(plan_report_make(lowered, &costs, &report), STATUS_OK);
    assert_int_equal(plan_traffic_make(config, lowered, &traffic), STATUS_OK);
    assert_int_equal(plan_print_json(&print, out), STATUS_OK);
    assert_int_equal(fclose(out), 0);
    root = json_loads(text, 0, NULL);
    assert_non_null(root);
    free(text);
    plan_traffic_release(&traffic);
    plan_report_release(&report);
    plan_costs_release(&costs);
    plan_destroy(&compute);
    plan_destroy(&lowered);
    return root;
}

static void json_has_the_bytes_of_each_rank_by_kind(void **state)
{
    struct config config = small_job(2);
    json_t *root = json_of(&config);
    json_t *expected =
        json_loads("{\"activations\": [4096, 0], \"gradients\": [0, 4096],"
                   " \"tensor_sums\": [0, 0], \"row_gathers\": [0, 0], \"head_rows\": [0, 0],"
                   " \"gradient_sums\": [0, 0], \"embedding_sync\": [2048, 2048],"
                   " \"weight_gathers\": [0, 0]}",
                   0, NULL);

    (void)state;
    assert_non_null(expected);
    assert_true(json_equal(json_object_get(root, "traffic"), expected));
    json_decref(expected);
    json_decref(root);
}

static void a_plan_without_a_model_has_no_traffic(void **state)
{
    json_t *root = json_of(NULL);

    (void)state;
    assert_non_null(json_object_get(root, "messages"));
    assert_null(json_object_get(root, "traffic"));
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_has_the_kinds_that_move_and_their_sum),
        cmocka_unit_test(one_rank_has_no_table),
        cmocka_unit_test(json_has_the_bytes_of_each_rank_by_kind),
        cmocka_unit_test(a_plan_without_a_model_has_no_traffic),
    };

    return cmocka_run_group_tests_name("plan_traffic", tests, NULL, NULL);
}

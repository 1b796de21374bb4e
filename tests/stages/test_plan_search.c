/* What auto chooses: layers of virtual stages, and the plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_rig.h"
#include "scheduler/prove.h"
#include "stages/commands/plan_memory.h"
#include "stages/model/flops.h"
#include "stages/plan_search.h"

static const char yaml[] =
    "model: {num_layers: 8, hidden_size: 64, num_heads: 4, seq_len: 32, vocab_size: 256}\n"
    "parallel: {pp: 4, schedule: auto}\n"
    "train: {steps: 1, micro_batch_size: 1, num_microbatches: 8, threads: 1}\n"
    "optimizer: {lr: 1.0e-3}\n"
    "data: {train: text.txt}\n";

static struct config *load(const char *first, const char *second)
{
    struct config *config = NULL;

    assert_int_equal(config_rig_load(yaml, first, second, &config), STATUS_OK);
    return config;
}

static struct search_result find(const struct config *config)
{
    struct search_result found;

    assert_int_equal(plan_search_run(config, 4, &found), STATUS_OK);
    return found;
}

/* A position: products 2·(64·192 + 64·64 + 2·64·256) = 98,304, attention over half of 32 positions
 * 2·32·64 = 4,096; the head three products of 2·64·256. */
static void flops_are_those_counted_by_hand(void **state)
{
    struct config *config = load("parallel.layers_per_stage=2,2,2,2", NULL);
    struct flops layer = flops_of_layer(config, RECOMPUTE_NONE);
    struct flops again = flops_of_layer(config, RECOMPUTE_FULL);
    struct flops first = flops_of_stage(config, 0);
    struct flops last = flops_of_stage(config, 3);

    (void)state;
    assert_true(layer.F == 98304.0 + 4096.0);
    assert_true(layer.I == 98304.0 + 8192.0);
    assert_true(layer.W == 98304.0);
    assert_true(again.I == layer.I + layer.F);
    assert_true(flops_of_head(config) == 98304.0);
    assert_true(first.F == 2.0 * 32.0 * layer.F);
    assert_true(last.F == 2.0 * 32.0 * layer.F + 32.0 * 98304.0);
    assert_true(last.W == 2.0 * 32.0 * layer.W);
    config_destroy(&config);
}

static void assert_split(const char *first, const char *second, const int64_t *expected, int count)
{
    struct config *config = load(first, second);

    for (int i = 0; i < count; i++) {
        assert_int_equal(config->parallel.layers_per_stage[i], expected[i]);
    }
    config_destroy(&config);
}

/* A layer is 307,200 FLOPs a position (one F, one I and one W of the test above), the head 384 for
 * each token of the vocabulary: 0.32 layers with 256, 2.56 with 2,048, 5.12 with 4,096. */
static void a_large_head_takes_the_place_of_layers(void **state)
{
    static const int64_t even[] = {2, 2, 2, 2};
    static const int64_t large[] = {3, 3, 2, 0};
    static const int64_t given[] = {2, 2, 2, 2};
    struct config *config;

    (void)state;
    assert_split(NULL, NULL, even, 4);
    /* 8 layers and 2.56: 3 at most; the head's rank has none, as 1 would be 3.56. */
    assert_split("model.vocab_size=2048", NULL, large, 4);
    assert_split("model.vocab_size=2048", "parallel.layers_per_stage=2,2,2,2", given, 4);
    /* On a V the head is on rank 0: 8 layers over ranks 1 to 3, where 3 is the least. */
    config = load("model.vocab_size=4096", "parallel.virtual_stages=2");
    assert_int_equal(config->parallel.layers_per_stage[0] + config->parallel.layers_per_stage[7],
                     0);
    for (int i = 1; i < 4; i++) {
        int64_t of_rank =
            config->parallel.layers_per_stage[i] + config->parallel.layers_per_stage[7 - i];

        assert_in_range(of_rank, 2, 3);
    }
    config_destroy(&config);
}

/* Proved, the same each time, and nowhere near worse than 1F1B. */
static void a_plan_is_found_the_same_each_time(void **state)
{
    struct config *config = load(NULL, NULL);
    struct search_result first = find(config);
    struct search_result second = find(config);
    struct plan *lowered = NULL;
    char text[256];

    (void)state;
    assert_true(first.makespan == second.makespan);
    assert_true(first.makespan <= first.named_makespan);
    assert_true(first.gap >= 0.0 && first.gap < 0.25);
    first.gap = 0.0312;
    plan_search_print(&first, "by FLOPs", text, sizeof(text));
    assert_non_null(strstr(text, "; 3.1 % above what no order can beat, by FLOPs ("));
    first.gap = 0.0;
    plan_search_print(&first, "by FLOPs", text, sizeof(text));
    assert_non_null(strstr(text, "; no order is shorter, by FLOPs ("));
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(first.plan->lines[rank].count, second.plan->lines[rank].count);
        assert_memory_equal(first.plan->lines[rank].actions, second.plan->lines[rank].actions,
                            (size_t)first.plan->lines[rank].count * sizeof(struct action));
    }
    assert_int_equal(plan_prove_made(&first.plan, &lowered), STATUS_OK);
    assert_null(first.plan);
    plan_destroy(&lowered);
    search_result_release(&first);
    search_result_release(&second);
    config_destroy(&config);
}

/* Bytes of the fullest rank with the plan that is found. */
static int64_t planned_bytes(const struct config *config)
{
    struct plan_memory memory;
    struct plan *lowered = NULL;
    struct search_result found = find(config);
    int64_t bytes;

    assert_int_equal(plan_prove_made(&found.plan, &lowered), STATUS_OK);
    assert_int_equal(plan_memory_make(config, lowered, &memory), STATUS_OK);
    bytes = (int64_t)memory.ranks[memory.largest].total_bytes;
    plan_memory_release(&memory);
    plan_destroy(&lowered);
    search_result_release(&found);
    return bytes;
}

/* Each limit is kept by the engine's own count, down to what 1F1B with one micro-batch in flight on each
 * rank would need, and beneath is refused with need and limit. */
static void memory_limits_are_kept_or_refused(void **state)
{
    struct config *config = load(NULL, NULL);
    int64_t free_bytes = planned_bytes(config);
    char limit[64];
    int refused = 0;

    (void)state;
    config_destroy(&config);
    for (int percent = 100; percent >= 40; percent -= 10) {
        int64_t bytes = free_bytes * percent / 100;
        struct search_result found;
        enum status status;

        (void)snprintf(limit, sizeof(limit), "train.memory_limit=%lld", (long long)bytes);
        config = load(limit, NULL);
        status = plan_search_run(config, 4, &found);
        if (status == STATUS_OK) {
            search_result_release(&found);
            assert_true(planned_bytes(config) <= bytes);
            assert_int_equal(refused, 0);
        } else {
            assert_int_equal(status, STATUS_ERR_REFUSED);
            assert_non_null(
                strstr(status_last()->message, "nothing fits into train.memory_limit: "));
            refused++;
        }
        config_destroy(&config);
    }
    assert_in_range(refused, 1, 5);
}

/* 3 · 4 · 2^20 actions. */
static void a_plan_too_large_for_a_search_is_refused(void **state)
{
    struct config *config = load("train.num_microbatches=1048576", NULL);
    struct search_result found;

    (void)state;
    assert_int_equal(plan_search_run(config, 4, &found), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "name a schedule"));
    config_destroy(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flops_are_those_counted_by_hand),
        cmocka_unit_test(a_large_head_takes_the_place_of_layers),
        cmocka_unit_test(a_plan_is_found_the_same_each_time),
        cmocka_unit_test(memory_limits_are_kept_or_refused),
        cmocka_unit_test(a_plan_too_large_for_a_search_is_refused),
    };

    return cmocka_run_group_tests(tests, config_rig_open, config_rig_close);
}

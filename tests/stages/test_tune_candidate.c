/* What `weir tune` may try of a configuration: lists by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_rig.h"
#include "stages/tune/candidate.h"

/* Two ranks, 8 sequences a step, 4 heads, 4 layers. */
static const char yaml[] =
    "model: {num_layers: 4, hidden_size: 64, num_heads: 4, seq_len: 32, vocab_size: 256}\n"
    "parallel: {pp: 2}\n"
    "train: {steps: 1, micro_batch_size: 1, num_microbatches: 8, threads: 1}\n"
    "optimizer: {lr: 1.0e-3}\n"
    "data: {train: text.txt}\n";

struct listing {
    struct tune_base base;
    struct tune_candidates candidates;
};

static void make(const char *text, const char *first, const char *second, const char *keys,
                 struct listing *listing)
{
    char *overrides[2] = {first != NULL ? strdup(first) : NULL,
                          second != NULL ? strdup(second) : NULL};
    struct config *config = NULL;
    unsigned bits = 0;

    /* Leaves the file where the base finds it. */
    assert_int_equal(config_rig_load(text, NULL, NULL, &config), STATUS_OK);
    config_destroy(&config);
    assert_int_equal(tune_keys_parse(keys, &bits), STATUS_OK);
    assert_int_equal(tune_base_load(config_rig_path(), overrides,
                                    (first != NULL ? 1 : 0) + (second != NULL ? 1 : 0), NULL,
                                    &listing->base),
                     STATUS_OK);
    assert_int_equal(tune_candidates_make(&listing->base, bits, &listing->candidates), STATUS_OK);
    free(overrides[0]);
    free(overrides[1]);
}

static void release(struct listing *listing)
{
    tune_candidates_release(&listing->candidates);
    tune_base_release(&listing->base);
}

/* "pp tp dp v size count schedule" of each, in the order of the list. */
static void assert_list(const struct listing *listing, const char *const *expected, size_t count)
{
    assert_int_equal(listing->candidates.count, count);
    for (size_t i = 0; i < count; i++) {
        const struct tune_candidate *c = &listing->candidates.all[i];
        char text[128];

        (void)snprintf(text, sizeof(text), "%d %d %d %d %d %d %s", (int)c->pp, (int)c->tp,
                       (int)c->dp, (int)c->virtual_stages, (int)c->micro_batch_size,
                       (int)c->num_microbatches, schedule_text(c->schedule));
        assert_string_equal(text, expected[i]);
        assert_true(c->configured == (i == 0));
    }
}

static void sizes_are_the_divisors_of_the_batch_and_the_configuration_comes_first(void **state)
{
    static const char *const expected[] = {"2 1 1 1 1 8 1f1b", "2 1 1 1 2 4 1f1b",
                                           "2 1 1 1 4 2 1f1b", "2 1 1 1 8 1 1f1b"};
    struct listing listing;

    (void)state;
    make(yaml, NULL, NULL, "micro_batch_size", &listing);
    assert_list(&listing, expected, 4);
    release(&listing);
}

static void grids_keep_the_world_and_the_global_batch(void **state)
{
    static const char *const expected[] = {
        "2 1 1 1 1 8 1f1b", "2 1 1 1 2 4 1f1b", "2 1 1 1 4 2 1f1b", "2 1 1 1 8 1 1f1b",
        "1 1 2 1 1 4 1f1b", "1 1 2 1 2 2 1f1b", "1 1 2 1 4 1 1f1b", "1 2 1 1 1 8 1f1b",
        "1 2 1 1 2 4 1f1b", "1 2 1 1 4 2 1f1b", "1 2 1 1 8 1 1f1b"};
    struct listing listing;

    (void)state;
    make(yaml, NULL, NULL, "grid,micro_batch_size", &listing);
    assert_list(&listing, expected, 11);
    release(&listing);
}

/* One layer has no second pipeline rank, three heads no two shards, an odd batch no two replicas. */
static void what_does_not_divide_is_no_candidate(void **state)
{
    static const char *const replicas[] = {"2 1 1 1 1 8 1f1b", "1 1 2 1 1 4 1f1b"};
    static const char *const alone[] = {"2 1 1 1 1 3 1f1b"};
    static const char *const shards[] = {"1 2 1 1 1 8 1f1b", "1 1 2 1 1 4 1f1b"};
    struct listing listing;

    (void)state;
    make(yaml, "model.num_heads=1", NULL, "grid", &listing);
    assert_list(&listing, replicas, 2);
    release(&listing);
    make(yaml, "model.num_heads=1", "train.num_microbatches=3", "grid", &listing);
    assert_list(&listing, alone, 1);
    release(&listing);
    make("model: {num_layers: 1, hidden_size: 64, num_heads: 4, seq_len: 32, vocab_size: 256}\n"
         "parallel: {tp: 2}\n"
         "train: {steps: 1, micro_batch_size: 1, num_microbatches: 8, threads: 1}\n"
         "optimizer: {lr: 1.0e-3}\n"
         "data: {train: text.txt}\n",
         NULL, NULL, "grid", &listing);
    assert_list(&listing, shards, 2);
    release(&listing);
}

/* Each chunk has a layer at least: 4 layers on 2 ranks are 2 chunks at most. */
static void chunks_go_with_schedules_that_take_them(void **state)
{
    static const char *const expected[] = {"2 1 1 2 1 8 interleaved_1f1b",
                                           "2 1 1 1 1 8 interleaved_1f1b"};
    struct listing listing;

    (void)state;
    make(yaml, "parallel.schedule=interleaved_1f1b", "parallel.virtual_stages=2", "virtual_stages",
         &listing);
    assert_list(&listing, expected, 2);
    release(&listing);
}

static void schedules_are_those_that_train_and_differ(void **state)
{
    struct listing listing;
    bool found_gpipe = false;

    (void)state;
    make(yaml, NULL, NULL, "schedule,virtual_stages", &listing);
    for (size_t i = 0; i < listing.candidates.count; i++) {
        const struct tune_candidate *c = &listing.candidates.all[i];

        found_gpipe = found_gpipe || c->schedule == SCHEDULE_GPIPE;
        assert_true(c->schedule != SCHEDULE_FORWARD_ONLY && c->schedule != SCHEDULE_FILE);
        assert_true(c->schedule != SCHEDULE_INTERLEAVED_1F1B || c->virtual_stages == 2);
        assert_true(c->schedule != SCHEDULE_1F1B || c->configured);
    }
    assert_true(found_gpipe);
    release(&listing);
    /* Alone, a rank has nothing to order. */
    make(yaml, "parallel.pp=1", NULL, "schedule,virtual_stages", &listing);
    assert_int_equal(listing.candidates.count, 1);
    release(&listing);
}

/* What is loaded is what the candidate says, and nothing of the rest moves. */
static void a_candidate_is_its_overrides(void **state)
{
    struct listing listing;
    int32_t layers[] = {3, 1};
    struct tune_candidate candidate = {.pp = 2,
                                       .tp = 1,
                                       .dp = 1,
                                       .virtual_stages = 1,
                                       .schedule = SCHEDULE_GPIPE,
                                       .micro_batch_size = 2,
                                       .num_microbatches = 4,
                                       .recompute = RECOMPUTE_FULL,
                                       .sets_recompute = true,
                                       .layers = layers};
    struct config *config = NULL;
    char text[TUNE_CANDIDATE_TEXT_BYTES];

    (void)state;
    make(yaml, "optimizer.lr=0.5", NULL, "schedule", &listing);
    assert_int_equal(tune_candidate_load(&listing.base, &candidate, &config), STATUS_OK);
    assert_int_equal(config->parallel.schedule, SCHEDULE_GPIPE);
    assert_int_equal(config->parallel.layers_per_stage[0], 3);
    assert_int_equal(config->parallel.layers_per_stage[1], 1);
    assert_int_equal(config->train.micro_batch_size, 2);
    assert_int_equal(config->train.num_microbatches, 4);
    assert_int_equal(config->train.global_batch_size, 8);
    assert_int_equal(config->train.recompute[1], RECOMPUTE_FULL);
    assert_true(config->optimizer.lr == 0.5);
    tune_candidate_print(&candidate, text, sizeof(text));
    assert_string_equal(text, "pp 2, tp 1, dp 1, gpipe, 4 x 2, layers 3+1, recompute full");
    config_destroy(&config);
    /* The configuration itself overrides nothing. */
    assert_int_equal(tune_candidate_load(&listing.base, &listing.candidates.all[0], &config),
                     STATUS_OK);
    assert_true(config_hash(config) == config_hash(listing.base.config));
    config_destroy(&config);
    release(&listing);
}

static void a_split_that_does_not_vary_stays(void **state)
{
    struct listing listing;

    (void)state;
    make(yaml, "parallel.layers_per_stage=3,1", NULL, "micro_batch_size", &listing);
    assert_int_equal(listing.candidates.count, 4);
    for (size_t i = 1; i < 4; i++) {
        assert_non_null(listing.candidates.all[i].layers);
        assert_int_equal(listing.candidates.all[i].layers[0], 3);
        assert_int_equal(listing.candidates.all[i].layers[1], 1);
    }
    release(&listing);
    /* Where it does, that of auto is another candidate. */
    make(yaml, "parallel.layers_per_stage=3,1", NULL, "layers_per_stage", &listing);
    assert_int_equal(listing.candidates.count, 2);
    assert_null(listing.candidates.all[1].layers);
    release(&listing);
}

static void recompute_goes_from_none_to_full_where_it_may(void **state)
{
    struct tune_candidate candidate = {.recompute = RECOMPUTE_NONE, .sets_recompute = true};
    struct tune_candidate fixed = {.recompute = RECOMPUTE_NONE};

    (void)state;
    assert_true(tune_candidate_recompute_more(&candidate));
    assert_int_equal(candidate.recompute, RECOMPUTE_SELECTIVE);
    assert_true(tune_candidate_recompute_more(&candidate));
    assert_int_equal(candidate.recompute, RECOMPUTE_FULL);
    assert_false(tune_candidate_recompute_more(&candidate));
    assert_false(tune_candidate_recompute_more(&fixed));
}

static void words_of_search_are_refused_by_name(void **state)
{
    unsigned keys = 0;

    (void)state;
    assert_int_equal(tune_keys_parse("all", &keys), STATUS_OK);
    assert_int_equal(keys, TUNE_KEYS_ALL);
    assert_int_equal(tune_keys_parse("grid,schedule", &keys), STATUS_OK);
    assert_int_equal(keys, 1U << TUNE_KEY_GRID | 1U << TUNE_KEY_SCHEDULE);
    assert_int_equal(tune_keys_parse("grid,shedule", &keys), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "\"shedule\"; did you mean schedule?"));
    assert_non_null(strstr(status_last()->message, "micro_batch_size, schedule"));
    assert_int_equal(tune_keys_parse("", &keys), STATUS_ERR_REFUSED);
    assert_int_equal(tune_keys_parse("grid,", &keys), STATUS_ERR_REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_the_divisors_of_the_batch_and_the_configuration_comes_first),
        cmocka_unit_test(grids_keep_the_world_and_the_global_batch),
        cmocka_unit_test(what_does_not_divide_is_no_candidate),
        cmocka_unit_test(chunks_go_with_schedules_that_take_them),
        cmocka_unit_test(schedules_are_those_that_train_and_differ),
        cmocka_unit_test(a_candidate_is_its_overrides),
        cmocka_unit_test(a_split_that_does_not_vary_stays),
        cmocka_unit_test(recompute_goes_from_none_to_full_where_it_may),
        cmocka_unit_test(words_of_search_are_refused_by_name),
    };

    return cmocka_run_group_tests_name("tune_candidate", tests, config_rig_open, config_rig_close);
}

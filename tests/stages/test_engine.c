/* What a step does when its numbers are bad, and what an engine refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/engine_start.h"
#include "tests/stages/engine_rig.h"
#include "tests/stages/samples_file.h"

#define POSITIONS 8
#define SAMPLES   16 /* four global batches of four */
#define VOCAB     256

static char samples_path[64];
static char words_path[64]; /* the same with five words */

static const char base_yaml[] =
    "model: {num_layers: 3, hidden_size: 16, num_heads: 2, seq_len: 8, vocab_size: 256}\n"
    "train: {steps: 4, micro_batch_size: 2, num_microbatches: 2, run_dir: unused}\n"
    "optimizer: {lr: 0.01, warmup_steps: 4, decay_steps: 10}\n";

/* The second global batch has no target at all, and of the fourth only the first half has any: of two
 * replicas the second has none. */
static int write_samples(char *path, size_t path_bytes, int32_t vocab)
{
    static float mask[SAMPLES * POSITIONS];
    const struct samples_file file = {.samples = SAMPLES,
                                      .positions = POSITIONS,
                                      .vocab = vocab,
                                      .more = "loss_mask",
                                      .values = mask};

    for (int i = 0; i < SAMPLES * POSITIONS; i++) {
        int batch = i / (4 * POSITIONS);
        int row = i / POSITIONS % 4;

        mask[i] = batch == 1 || (batch == 3 && row >= 2) ? 0.0F : 1.0F;
    }
    return samples_file_write(&file, path, path_bytes);
}

static int make_samples(void **state)
{
    (void)state;
    return write_samples(samples_path, sizeof(samples_path), VOCAB) != 0 ||
                   write_samples(words_path, sizeof(words_path), 5) != 0
               ? -1
               : 0;
}

static int remove_samples(void **state)
{
    (void)state;
    return unlink(samples_path) | unlink(words_path);
}

static void run_engine(int pp, const char *more, struct rig_result *run)
{
    char data[96];
    char stages[48];
    const char *overrides[] = {data, stages, "data.shuffle=false", more};

    (void)snprintf(data, sizeof(data), "data.train=%s", samples_path);
    (void)snprintf(stages, sizeof(stages), "parallel.pp=%d", pp);
    rig_run(base_yaml, overrides, more != NULL ? 4 : 3, run);
}

static void test_a_batch_without_targets_is_a_counted_step_without_an_update(void **state)
{
    static struct rig_result run;

    (void)state;
    for (int pp = 1; pp <= 3; pp++) {
        run_engine(pp, NULL, &run);
        assert_int_equal(run.status, STATUS_OK);
        assert_int_equal(run.ranks_disagree, 0);
        assert_int_equal(run.skipped[0], 0);
        assert_int_equal(run.skipped[1], 1);
        assert_int_equal(run.skipped[2], 0);
        assert_true(run.loss[1] == 0.0);
        assert_true(run.loss[2] > 1.0 && run.loss[2] < 7.0);
        /* Learning rate of updates 1, 2, 3: the empty step took none. */
        assert_true(fabs(run.lr[0] - 0.0025) < 1e-15);
        assert_true(fabs(run.lr[2] - 0.0050) < 1e-15);
        assert_true(fabs(run.lr[3] - 0.0075) < 1e-15);
        rig_release(&run);
    }
}

struct patience {
    int32_t left[RIG_STEPS_MOST];
};

static void keep_patience(void *context, const struct engine *engine)
{
    struct patience *patience = context;

    patience->left[engine->attempts - 1] = engine->update.outcome.hysteresis_left;
}

/* It is told of every skipped step, and an empty one is skipped and uses none of it. */
static void test_a_step_without_targets_leaves_the_hysteresis_and_says_so(void **state)
{
    static struct rig_result run;
    struct patience patience = {.left = {0}};
    const struct rig_hooks hooks = {.context = &patience, .on_step = keep_patience};
    char data[96];
    const char *overrides[] = {data, "data.shuffle=false", "precision.dtype=fp16",
                               "precision.hysteresis=3"};

    (void)state;
    (void)snprintf(data, sizeof(data), "data.train=%s", samples_path);
    rig_run_watched(base_yaml, overrides, 4, &hooks, &run);
    assert_int_equal(run.status, STATUS_OK);
    assert_int_equal(run.skipped[1], 1);
    for (int64_t step = 0; step < run.steps; step++) {
        assert_int_equal(patience.left[step], 3);
    }
    rig_release(&run);
}

/* A layout as overrides, ended by NULL. */
struct layout {
    const char *options[4];
};

static const struct layout layouts[] = {
    {{"parallel.dp=2", "train.num_microbatches=1", "parallel.pp=1", NULL}},
    {{"parallel.dp=2", "train.num_microbatches=1", "parallel.pp=2", NULL}},
    {{"parallel.tp=2", "parallel.pp=1", NULL, NULL}},
    {{"parallel.tp=2", "parallel.pp=2", NULL, NULL}},
    {{"parallel.virtual_stages=2", "parallel.schedule=interleaved_1f1b", "parallel.pp=2", NULL}},
    {{"parallel.virtual_stages=3", "parallel.schedule=interleaved_1f1b", "parallel.pp=1", NULL}},
};

#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static void run_layout(const struct layout *layout, const char *more, struct rig_result *run)
{
    char data[96];
    const char *overrides[8] = {data, "data.shuffle=false", "train.threads=1"};
    int count = 3;

    (void)snprintf(data, sizeof(data), "data.train=%s", samples_path);
    for (int i = 0; layout->options[i] != NULL; i++) {
        overrides[count++] = layout->options[i];
    }
    if (more != NULL) {
        overrides[count++] = more;
    }
    rig_run(base_yaml, overrides, count, run);
    if (run->status < 0) {
        fail_msg("%s %s: %s", layout->options[0], layout->options[1], run->message);
    }
    assert_int_equal(run->ranks_disagree, 0);
    assert_int_equal(run->copies_disagree, 0);
}

/* A whole batch without a target, and a replica without any while the other has some: the losses are
 * those of one process, and the step without is skipped everywhere. */
static void test_ranks_without_targets_do_what_all_do(void **state)
{
    static struct rig_result alone;
    static struct rig_result run;

    (void)state;
    run_engine(1, "train.threads=1", &alone);
    assert_int_equal(alone.status, STATUS_OK);
    for (size_t i = 0; i < LAYOUTS; i++) {
        run_layout(&layouts[i], NULL, &run);
        for (int64_t step = 0; step < run.steps; step++) {
            assert_int_equal(run.skipped[step], step == 1 ? 1 : 0);
            assert_true(fabs(run.loss[step] - alone.loss[step]) <= 2e-6 * fabs(alone.loss[step]));
        }
        rig_release(&run);
    }
    rig_release(&alone);
}

static void run_words(const char *tied, const char *tp, const char *pp, struct rig_result *run)
{
    char data[96];
    const char *overrides[] = {data,
                               "data.shuffle=false",
                               "train.threads=1",
                               "model.vocab_size=5",
                               "model.num_heads=4",
                               tied,
                               tp,
                               pp};

    (void)snprintf(data, sizeof(data), "data.train=%s", words_path);
    rig_run(base_yaml, overrides, 8, run);
    if (run->status < 0) {
        fail_msg("%s %s %s: %s", tied, tp, pp, run->message);
    }
    assert_int_equal(run->ranks_disagree + run->copies_disagree + run->holes, 0);
}

/* Five words on four shards, in parts of two: the last one has no row of the word embedding and of the head. */
static void test_a_shard_without_words_has_the_training_of_all(void **state)
{
    static const char *const ties[] = {"model.tied_embeddings=true", "model.tied_embeddings=false"};
    static const char *const depths[] = {"parallel.pp=1", "parallel.pp=2"};
    static struct rig_result alone;
    static struct rig_result run;

    (void)state;
    for (int i = 0; i < 4; i++) {
        run_words(ties[i % 2], "parallel.tp=1", "parallel.pp=1", &alone);
        run_words(ties[i % 2], "parallel.tp=4", depths[i / 2], &run);
        for (int64_t step = 0; step < run.steps; step++) {
            assert_true(fabs(run.loss[step] - alone.loss[step]) <= 2e-6 * fabs(alone.loss[step]));
        }
        rig_release(&run);
        rig_release(&alone);
    }
}

static void test_the_first_loss_is_near_the_logarithm_of_the_vocabulary(void **state)
{
    static struct rig_result run;

    (void)state;
    run_engine(2, NULL, &run);
    assert_int_equal(run.status, STATUS_OK);
    assert_true(fabs(run.loss[0] - log(VOCAB)) < 0.05);
    rig_release(&run);
}

#ifdef WEIR_FAULTS
/* table[0] of these ranks is a tensor that other ranks have too, and answer for in the norm. */
static void test_a_gradient_that_is_bad_in_one_copy_skips_the_step(void **state)
{
    static struct rig_result run;
    static const struct layout shards = {{"parallel.tp=2", "parallel.pp=3", NULL}};
    static const struct layout replicas = {
        {"parallel.dp=2", "parallel.pp=3", "train.num_microbatches=1", NULL}};
    static const char *const faults[] = {"poison@3:3", "poison@5:3"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(setenv("WEIR_FAULT", faults[i % 2], 1), 0);
        run_layout(i < 2 ? &shards : &replicas, NULL, &run);
        assert_int_equal(unsetenv("WEIR_FAULT"), 0);
        assert_int_equal(run.skipped[2], 1);
        assert_int_equal(run.skipped[3], 0);
        assert_true(isfinite(run.norm[3]) != 0 && isfinite(run.loss[3]) != 0);
        rig_release(&run);
    }
}

static void test_a_poisoned_gradient_skips_the_step_on_all_ranks_alike(void **state)
{
    static struct rig_result run;
    static const char *const faults[] = {"poison@0:3", "poison@1:3:2", "poison@2:3"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(setenv("WEIR_FAULT", faults[i], 1), 0);
        run_engine(3, NULL, &run);
        assert_int_equal(unsetenv("WEIR_FAULT"), 0);
        assert_int_equal(run.status, STATUS_OK);
        assert_int_equal(run.skipped[0], 0);
        assert_int_equal(run.skipped[2], 1);
        assert_int_equal(run.skipped[3], 0);
        assert_true(isfinite(run.norm[2]) == 0);
        assert_true(isfinite(run.norm[3]) != 0 && isfinite(run.loss[3]) != 0);
        /* Step 4 makes the update that step 3 did not. */
        assert_true(fabs(run.lr[3] - 0.0050) < 1e-15);
        for (int32_t t = 0; t < run.tensors; t++) {
            for (size_t e = 0; e < run.weights[t].elems; e++) {
                assert_true(isfinite(run.weights[t].data[e]) != 0);
            }
        }
        rig_release(&run);
    }
}
#endif

static void test_a_memory_limit_that_is_too_small_is_refused_with_the_table(void **state)
{
    static struct rig_result run;

    (void)state;
    run_engine(1, "train.memory_limit=10000", &run);
    assert_int_equal(run.status, STATUS_ERR_REFUSED);
    assert_non_null(strstr(run.message, "train.memory_limit"));
    assert_non_null(strstr(run.message, "stashes"));
    assert_non_null(strstr(run.message, "params"));
    rig_release(&run);
}

/* After a step all that was planned has been taken, and nothing beside it. */
static void compare_memory(void *context, const struct engine *engine)
{
    int *looks = context;

    assert_int_equal(engine_used_bytes(engine), engine->memory.total_bytes);
    (*looks)++;
}

static void test_what_is_used_is_what_was_planned(void **state)
{
    static const struct {
        const char *words[4];
        int ranks;
    } jobs[] = {
        {{"parallel.pp=1", "precision.dtype=bf16"}, 1},
        {{"parallel.pp=3", "train.recompute=full"}, 3},
        {{"parallel.pp=2", "parallel.dp=2", "parallel.zero_stage=1", "precision.dtype=fp16"}, 4},
        {{"parallel.tp=2", "train.recompute=selective", "optimizer.name=sgd"}, 2},
        {{"parallel.pp=2", "parallel.schedule=interleaved_1f1b", "parallel.virtual_stages=2"}, 2},
        {{"parallel.pp=3", "train.eval_every=1"}, 3},
    };
    static struct rig_result run;

    (void)state;
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        const char *overrides[8] = {"data.shuffle=false", "train.steps=1"};
        char data[96];
        char valid[96];
        int count = 2;
        int looks = 0;
        struct rig_hooks hooks = {.context = &looks, .on_step = compare_memory};

        (void)snprintf(data, sizeof(data), "data.train=%s", samples_path);
        (void)snprintf(valid, sizeof(valid), "data.valid=%s", samples_path);
        overrides[count++] = data;
        overrides[count++] = valid; /* is opened where it is evaluated */
        for (int word = 0; word < 4 && jobs[i].words[word] != NULL; word++) {
            overrides[count++] = jobs[i].words[word];
        }
        rig_run_watched(base_yaml, overrides, count, &hooks, &run);
        assert_int_equal(run.status, STATUS_OK);
        assert_int_equal(looks, jobs[i].ranks);
        rig_release(&run);
    }
}

static void test_ids_outside_the_vocabulary_are_refused_on_every_rank(void **state)
{
    static struct rig_result run;

    (void)state;
    run_engine(2, "model.vocab_size=100", &run);
    assert_int_equal(run.status, STATUS_ERR_REFUSED);
    assert_non_null(strstr(run.message, samples_path));
    rig_release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_batch_without_targets_is_a_counted_step_without_an_update),
        cmocka_unit_test(test_a_step_without_targets_leaves_the_hysteresis_and_says_so),
        cmocka_unit_test(test_ranks_without_targets_do_what_all_do),
        cmocka_unit_test(test_a_shard_without_words_has_the_training_of_all),
        cmocka_unit_test(test_the_first_loss_is_near_the_logarithm_of_the_vocabulary),
#ifdef WEIR_FAULTS
        cmocka_unit_test(test_a_gradient_that_is_bad_in_one_copy_skips_the_step),
        cmocka_unit_test(test_a_poisoned_gradient_skips_the_step_on_all_ranks_alike),
#endif
        cmocka_unit_test(test_a_memory_limit_that_is_too_small_is_refused_with_the_table),
        cmocka_unit_test(test_what_is_used_is_what_was_planned),
        cmocka_unit_test(test_ids_outside_the_vocabulary_are_refused_on_every_rank),
    };

    return cmocka_run_group_tests_name("engine", tests, make_samples, remove_samples);
}

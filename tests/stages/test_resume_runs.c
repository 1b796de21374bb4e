/* A run that goes on from a checkpoint is the run that was not interrupted, to the last bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "stages/checkpoint/contents.h"
#include "stages/checkpoint/sum.h"
#include "stages/engine.h"
#include "tests/stages/base_run.h"
#include "tests/stages/checkpoint_folder.h"

#define STEPS 12

static char dir_override[96];
static char every_override[48];

static void add(struct base_run *base, const char *override)
{
    int at = 0;

    while (base->more[at] != NULL) {
        at++;
    }
    assert_true(at < BASE_MORE);
    base->more[at] = override;
}

/* `base` for `steps` steps with a checkpoint after each `every`, from the last one where `resumes`. */
static void train(const struct base_run *base, int steps, int every, bool resumes,
                  struct rig_result *run)
{
    struct base_run one = *base;

    (void)snprintf(dir_override, sizeof(dir_override), "checkpoint.dir=%s/c", checkpoint_folder());
    (void)snprintf(every_override, sizeof(every_override), "checkpoint.every=%d", every);
    one.steps = steps;
    add(&one, dir_override);
    add(&one, every_override);
    add(&one, resumes ? "checkpoint.resume=must" : "checkpoint.resume=never");
    base_train(&one, run);
}

static void assert_same_end(const struct rig_result *run, const struct rig_result *unbroken,
                            int64_t first)
{
    char text[256];

    assert_int_equal(run->first, first);
    if (!rig_same_end(run, unbroken, text, sizeof(text))) {
        fail_msg("resumed from step %d: %s", (int)first, text);
    }
}

/* The learning rate still rises in the first part and falls in the second (H21). */
#define RISES "optimizer.warmup_steps=3"
#define FALLS "optimizer.lr_schedule=cosine"

/* A loss scale that changes before and after the checkpoint, and would at other steps without its state. */
#define GROWS "precision.growth_interval=3"

static const struct base_run layouts[] = {
    {.more = {RISES, FALLS}},
    {.pp = 2, .dp = 2, .more = {RISES, FALLS}},
    {.tp = 2, .micro_batch = 2, .more = {RISES, FALLS}},
    {.pp = 2, .virtual_stages = 2, .more = {RISES, FALLS}},
    {.pp = 2, .tp = 2, .dp = 2, .more = {RISES, FALLS}},
    {.pp = 2, .more = {RISES, "model.tied_embeddings=false"}},
    {.more = {RISES, FALLS, "precision.dtype=bf16"}},
    {.pp = 2, .dp = 2, .more = {RISES, "precision.dtype=bf16", "parallel.zero_stage=1"}},
    {.pp = 2, .more = {FALLS, "precision.dtype=fp16", GROWS}},
    {.pp = 2, .tp = 2, .more = {FALLS, "model.dropout=0.1", "train.recompute=full"}},
    {.dp = 2, .more = {FALLS, "optimizer.name=sgd", "parallel.zero_stage=2"}},
    {.pp = 2, .dp = 2, .more = {RISES, "parallel.zero_stage=3", "train.recompute=full"}},
    {.dp = 2, .more = {FALLS, "precision.dtype=bf16", "parallel.zero_stage=3"}},
    {.pp = 2, .tp = 2, .more = {FALLS, "model.dropout=0.1", "parallel.sequence_parallel=true"}},
};

#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

/* decay_steps follows the number of steps unless it is given. */
static void check_layout(const struct base_run *layout)
{
    static struct rig_result unbroken;
    static struct rig_result part;
    static struct rig_result run;
    struct base_run base = *layout;

    add(&base, "optimizer.decay_steps=12");
    base.steps = STEPS;
    base_train(&base, &unbroken);
    train(&base, 5, 5, false, &part);
    train(&base, STEPS, STEPS, true, &run);
    assert_same_end(&run, &unbroken, 5);
    rig_release(&unbroken);
    rig_release(&part);
    rig_release(&run);
}

static void test_a_resumed_run_has_the_bits_of_an_unbroken_one_in_every_layout(void **state)
{
    (void)state;
    for (size_t i = 0; i < LAYOUTS; i++) {
        assert_int_equal(checkpoint_folder_make(NULL), 0);
        check_layout(&layouts[i]);
        assert_int_equal(checkpoint_folder_remove(NULL), 0);
    }
}

/* Which sequences each step had, by place in the global batch, as the first stage's loaders gave them. */
struct log {
    uint64_t print[RIG_STEPS_MOST][BASE_BATCH];
};

static void keep_batch(void *context, const struct engine *engine)
{
    struct log *log = context;
    const struct loader_batch *batch = &engine->worker.run.batch;
    const struct config_train *train = &engine->config->train;
    int64_t positions = engine->config->model.seq_len;

    /* Micro-batches of one row: row i of replica d is (i·dp + d) of the global batch. */
    for (int64_t i = 0; batch->tokens != NULL && i < train->num_microbatches; i++) {
        int64_t place = i * engine->grid.shape.dp + engine->grid.dp;

        log->print[engine->attempts - 1][place] =
            base_print(BASE_PRINT_START, batch->tokens + i * positions,
                       (size_t)positions * sizeof(*batch->tokens));
    }
}

static int compare_prints(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;

    return a < b ? -1 : a > b;
}

/* All sequences of steps `first` … `end` - 1 are different ones. */
static void assert_no_repeats(const struct log *log, int first, int end)
{
    uint64_t prints[RIG_STEPS_MOST * BASE_BATCH];
    size_t count = (size_t)(end - first) * BASE_BATCH;

    memcpy(prints, log->print[first], count * sizeof(prints[0]));
    qsort(prints, count, sizeof(prints[0]), compare_prints);
    for (size_t i = 1; i < count; i++) {
        assert_true(prints[i] != prints[i - 1]);
    }
}

/* H22: shuffled, over the end of an epoch, and resumed three times. 22 % of 14000 bytes are 96
 * sequences of 32: 12 steps of 8 an epoch. */
static void test_the_data_goes_on_where_it_was_and_no_sequence_comes_twice(void **state)
{
    static const int stops[] = {5, 10, 15, 20};
    static struct log logs[2];
    static struct rig_result run;
    struct rig_hooks hooks = {.context = &logs[0], .on_step = keep_batch};
    const struct base_run base = {
        .dp = 2, .steps = 20, .hooks = &hooks, .more = {"data.split=[0.22, 0.78, 0]"}};

    (void)state;
    base_train(&base, &run);
    rig_release(&run);
    hooks.context = &logs[1];
    for (int i = 0; i < 4; i++) {
        train(&base, stops[i], 5, i > 0, &run);
        assert_int_equal(run.first, i > 0 ? stops[i - 1] : 0);
        rig_release(&run);
    }
    assert_memory_equal(&logs[0], &logs[1], sizeof(logs[0]));
    assert_no_repeats(&logs[1], 0, 12);
    assert_no_repeats(&logs[1], 12, 20);
    /* Another order in the second epoch. */
    assert_memory_not_equal(logs[1].print[0], logs[1].print[12], sizeof(logs[1].print[0]));
}

/* Tries to go on with `changes`, up to three; the run is refused with the words. */
static void check_refusal(const struct base_run *base, const char *const changes[3],
                          const char *const words[3])
{
    static struct rig_result run;
    struct base_run one = *base;
    int at = 0;

    one.steps = STEPS;
    for (int i = 0; i < 3; i++) {
        if (changes[i] != NULL) {
            one.more[at++] = changes[i];
        }
    }
    one.more[at++] = dir_override;
    one.more[at] = "checkpoint.resume=must";
    base_try(&one, &run);
    if (run.status != STATUS_ERR_REFUSED) {
        fail_msg("%s: expected a refusal, got %d", changes[0], (int)run.status);
    }
    for (int i = 0; i < 3; i++) {
        if (words[i] != NULL && strstr(run.message, words[i]) == NULL) {
            fail_msg("expected \"%s\" in: %s", words[i], run.message);
        }
    }
    rig_release(&run);
}

/* Of two ranks of which one finds the damage, both refuse, and the message names the file. */
static void test_a_file_with_another_sum_or_none_is_refused_by_name(void **state)
{
    static const char shard[] = "c/step-00000005/shard-pp1-tp0-dp0.safetensors";
    static struct rig_result run;
    const struct base_run base = {.pp = 2};

    (void)state;
    train(&base, 5, 5, false, &run);
    rig_release(&run);
    checkpoint_folder_damage(shard, 4001);
    check_refusal(
        &base, (const char *const[3]){"train.log_every=1"},
        (const char *const[3]){"shard-pp1-tp0-dp0.safetensors", "expected the XXH3 sum", "found"});
    checkpoint_folder_damage(shard, 4001);
    train(&base, STEPS, STEPS, true, &run);
    rig_release(&run);
    checkpoint_folder_write("c/latest", "step-00000005\n");
    assert_int_equal(unlink(checkpoint_folder_path(shard)), 0);
    check_refusal(&base, (const char *const[3]){"train.log_every=1"},
                  (const char *const[3]){"shard-pp1-tp0-dp0.safetensors", "missing"});
}

/* In the metadata of `file`, the place of `tensor`: `old` becomes `new`, which is as long. Its sum in the
 * manifest is then that of the changed file. */
static void move_place(const char *folder, int32_t rank, const char *tensor, const char *old,
                       const char *new)
{
    struct manifest manifest;
    char name[SHARD_NAME_BYTES];
    char path[FILE_PATH_BYTES];
    char *bytes = NULL;
    char *at = NULL;
    size_t count = 0;

    assert_int_equal(manifest_read(folder, &manifest), STATUS_OK);
    manifest_shard_name(&manifest.layout, rank, name);
    assert_int_equal(folder_path(folder, name, path), STATUS_OK);
    assert_int_equal(file_read(path, 1 << 24, &bytes, &count), STATUS_OK);
    at = memmem(bytes, count, tensor, strlen(tensor));
    assert_non_null(at);
    at = memmem(at, 512, old, strlen(old));
    assert_non_null(at);
    memcpy(at, new, strlen(old));
    assert_int_equal(file_write(path, bytes, count), STATUS_OK);
    manifest.files[rank].xxh3 = sum_of(bytes, count);
    assert_int_equal(manifest_write(folder, &manifest), STATUS_OK);
    manifest_release(&manifest);
    free(bytes);
}

/* Sizes and sums are right, and so is the number of elements: 64 of a layer norm, of which each of two replicas
 * has 32, and the second one's begin with the 31st. */
static void test_a_hole_beside_an_overlap_is_refused_by_name_as_by_verify(void **state)
{
    static const char words[] = "tensor h.1.ln_1.weight: of its elements 0 to 63, 30 to 31 are in "
                                "shard-pp0-tp0-dp0.safetensors and again in "
                                "shard-pp0-tp0-dp1.safetensors";
    static struct rig_result run;
    const struct base_run base = {.dp = 2, .more = {"parallel.zero_stage=1"}};
    const char *folder = checkpoint_folder_path("c/step-00000005");
    struct manifest manifest;
    struct contents contents;

    (void)state;
    train(&base, 5, 5, false, &run);
    rig_release(&run);
    move_place(folder, 1, "\"h.1.ln_1.weight\":", "\\\"first\\\": 32", "\\\"first\\\": 30");
    check_refusal(&base, (const char *const[3]){"parallel.zero_stage=1"},
                  (const char *const[3]){words, "step-00000005"});
    assert_int_equal(manifest_read(folder, &manifest), STATUS_OK);
    assert_int_equal(contents_read(folder, &manifest, true, &contents), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, words));
    manifest_release(&manifest);
}

/* Each rank sums its own file alone. */
static void test_a_damaged_file_of_any_rank_is_refused_by_all(void **state)
{
    static struct rig_result run;
    const struct base_run base = {.pp = 2, .dp = 2};

    (void)state;
    train(&base, 5, 5, false, &run);
    rig_release(&run);
    for (int32_t rank = 0; rank < 4; rank++) {
        const struct grid_shape layout = {.pp = 2, .tp = 1, .dp = 2};
        char name[SHARD_NAME_BYTES];
        char path[128];

        manifest_shard_name(&layout, rank, name);
        (void)snprintf(path, sizeof(path), "c/step-00000005/%s", name);
        checkpoint_folder_damage(path, 5);
        check_refusal(&base, (const char *const[3]){"train.log_every=1"},
                      (const char *const[3]){name, "expected the XXH3 sum"});
        checkpoint_folder_damage(path, 5);
    }
    train(&base, STEPS, STEPS, true, &run);
    rig_release(&run);
}

static void test_another_training_set_is_refused_unless_it_is_asked_for(void **state)
{
    static struct rig_result run;
    const struct base_run base = {.more = {"data.split=[0.5, 0.5, 0]"}};
    struct base_run other = {.steps = STEPS, .more = {"data.split=[0.6, 0.4, 0]"}};

    (void)state;
    train(&base, 5, 5, false, &run);
    rig_release(&run);
    check_refusal(&other, (const char *const[3]){"data.split=[0.6, 0.4, 0]"},
                  (const char *const[3]){"data.split", "0.5", "allow_change"});
    other.more[1] = "checkpoint.allow_change=[data.split]";
    train(&other, STEPS, STEPS, true, &run);
    assert_int_equal(run.first, 5);
    rig_release(&run);
}

/* One bit of the text, under the same name: rank 0 alone looks, and all ranks end with what it says. The next
 * checkpoint is of the text that is trained on. */
static void test_a_changed_text_is_refused_on_all_ranks_unless_it_is_asked_for(void **state)
{
    static struct rig_result run;
    const struct base_run base = {.pp = 2, .dp = 2};
    const struct base_run allowed = {
        .pp = 2, .dp = 2, .more = {"checkpoint.allow_change=[data.train]"}};
    const char *const changes[3] = {"train.log_every=1"};

    (void)state;
    train(&base, 5, 5, false, &run);
    rig_release(&run);
    base_turn_text(7000);
    check_refusal(&base, changes,
                  (const char *const[3]){"the content of data.train", "14000 bytes, XXH3 ",
                                         " → 14000 bytes, XXH3 "});
    train(&allowed, 8, 8, true, &run);
    assert_int_equal(run.first, 5);
    rig_release(&run);
    train(&base, STEPS, STEPS, true, &run);
    assert_int_equal(run.first, 8);
    rig_release(&run);
    base_turn_text(7000);
    check_refusal(&base, changes,
                  (const char *const[3]){"the content of data.train", "allow_change"});
}

static void test_a_resumed_run_may_have_another_schedule_and_keeps_its_bits(void **state)
{
    static struct rig_result unbroken;
    static struct rig_result run;
    const struct base_run base = {.pp = 2, .steps = STEPS};
    const struct base_run other = {.pp = 2, .schedule = "gpipe"};

    (void)state;
    base_train(&base, &unbroken);
    train(&base, 5, 5, false, &run);
    rig_release(&run);
    train(&other, STEPS, STEPS, true, &run);
    assert_same_end(&run, &unbroken, 5);
    rig_release(&run);
    rig_release(&unbroken);
}

/* What the scaler and the counts were after each step, as rank 0 has them. */
struct skip_log {
    struct grad_scaler_state state[RIG_STEPS_MOST];
    int64_t updates[RIG_STEPS_MOST];
};

static void keep_scaler(void *context, const struct engine *engine)
{
    struct skip_log *log = context;

    if (engine->grid.rank == 0) {
        log->state[engine->attempts - 1] = engine->update.scaler.state;
        log->updates[engine->attempts - 1] = engine->update.updates;
    }
}

static void assert_same_skips(const struct rig_result *run, const struct rig_result *unbroken,
                              const struct skip_log *own, const struct skip_log *log, int first)
{
    for (int step = first; step < STEPS; step++) {
        const struct grad_scaler_state *a = &own->state[step];
        const struct grad_scaler_state *b = &log->state[step];

        assert_int_equal(run->skipped[step], unbroken->skipped[step]);
        assert_int_equal(run->skipped_in_a_row[step], unbroken->skipped_in_a_row[step]);
        assert_true(run->scale[step] == unbroken->scale[step]);
        assert_true(a->scale == b->scale && a->good_steps == b->good_steps &&
                    a->hysteresis_left == b->hysteresis_left);
        assert_int_equal(own->updates[step], log->updates[step]);
    }
}

/* A scale far too large, so that steps 1 to 6 overflow: it shrinks from the second on, which uses the
 * hysteresis up. Two good steps let it grow, too far again, and steps 9 to 11 overflow. */
static const int overflows[STEPS] = {1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0};

/* The cuts are among the skipped steps: with hysteresis used up, and after another row of them. */
static void test_skipped_steps_before_and_after_the_cut_change_nothing(void **state)
{
    static const int cuts[] = {3, 9, 10};
    static struct rig_result unbroken;
    static struct rig_result run;
    static struct skip_log logs[2];
    struct rig_hooks hooks = {.context = &logs[0], .on_step = keep_scaler};
    struct base_run base = {.pp = 2,
                            .steps = STEPS,
                            .hooks = &hooks,
                            .more = {RISES, "optimizer.decay_steps=12", "precision.dtype=fp16",
                                     "precision.initial_scale=1e12",
                                     "precision.backoff_factor=0.0625",
                                     "precision.growth_factor=256", "precision.growth_interval=2"}};

    (void)state;
    base_train(&base, &unbroken);
    assert_memory_equal(unbroken.skipped, overflows, sizeof(overflows));
    assert_int_equal(unbroken.skipped_in_a_row[10], 3);
    assert_int_equal(logs[0].updates[STEPS - 1], 3);
    /* Of update 3 of a warm-up of 3. */
    assert_true(unbroken.lr[STEPS - 1] == 0.001);
    hooks.context = &logs[1];
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        assert_int_equal(checkpoint_folder_make(NULL), 0);
        train(&base, cuts[i], cuts[i], false, &run);
        rig_release(&run);
        memset(&logs[1], 0, sizeof(logs[1]));
        train(&base, STEPS, STEPS, true, &run);
        assert_same_end(&run, &unbroken, cuts[i]);
        assert_same_skips(&run, &unbroken, &logs[1], &logs[0], cuts[i]);
        rig_release(&run);
        assert_int_equal(checkpoint_folder_remove(NULL), 0);
    }
    rig_release(&unbroken);
}

/* The scale of a run in one precision is nothing to the other. */
static void test_a_scale_that_becomes_dynamic_begins_with_its_first_value(void **state)
{
    static const char *const dtypes[] = {"precision.dtype=bf16", "precision.dtype=fp16"};
    static const double scales[] = {1.0, 4096.0};
    static struct rig_result run;

    (void)state;
    for (int to = 0; to < 2; to++) {
        const struct base_run before = {.more = {dtypes[1 - to], "precision.initial_scale=4096"}};
        const struct base_run after = {.more = {dtypes[to], "precision.initial_scale=4096",
                                                "checkpoint.allow_change=[precision.dtype]"}};

        assert_int_equal(checkpoint_folder_make(NULL), 0);
        train(&before, 5, 5, false, &run);
        assert_true(run.scale[4] == scales[1 - to]);
        rig_release(&run);
        train(&after, STEPS, STEPS, true, &run);
        assert_int_equal(run.first, 5);
        assert_true(run.scale[5] == scales[to]);
        rig_release(&run);
        assert_int_equal(checkpoint_folder_remove(NULL), 0);
    }
}

#define FOLDER(test) \
    cmocka_unit_test_setup_teardown(test, checkpoint_folder_make, checkpoint_folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_resumed_run_has_the_bits_of_an_unbroken_one_in_every_layout),
        FOLDER(test_the_data_goes_on_where_it_was_and_no_sequence_comes_twice),
        FOLDER(test_a_file_with_another_sum_or_none_is_refused_by_name),
        FOLDER(test_a_hole_beside_an_overlap_is_refused_by_name_as_by_verify),
        FOLDER(test_a_damaged_file_of_any_rank_is_refused_by_all),
        FOLDER(test_another_training_set_is_refused_unless_it_is_asked_for),
        FOLDER(test_a_changed_text_is_refused_on_all_ranks_unless_it_is_asked_for),
        cmocka_unit_test(test_skipped_steps_before_and_after_the_cut_change_nothing),
        cmocka_unit_test(test_a_scale_that_becomes_dynamic_begins_with_its_first_value),
        FOLDER(test_a_resumed_run_may_have_another_schedule_and_keeps_its_bits),
    };

    return cmocka_run_group_tests_name("resume_runs", tests, base_make, base_remove);
}

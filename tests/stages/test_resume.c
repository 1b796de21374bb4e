/* What a resumed run may change of its configuration, and what it is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "config_rig.h"
#include "stages/resume.h"
#include "tests/base/capture.h"
#include "tests/stages/checkpoint_folder.h"

static char dir_override[128];

/* What is told is looked at, whatever the level around the test is. */
static int open_all(void **state)
{
    return setenv("WEIR_LOG", "info", 1) == 0 ? config_rig_open(state) : -1;
}

/* A checkpoint of the legal configuration (pp 4), with files of no bytes. */
static void save(int64_t step, const char *change)
{
    static struct manifest_sum sums[4];
    struct config *config = NULL;
    struct manifest manifest = {
        .step = step,
        .updates = step,
        .consumed = 8 * step,
        .sequences = 10,
        .data = {.bytes = 400, .xxh3 = 0x0123456789abcdefU},
        .scale = {.scale = 1.0},
        .threads = 3,
        .layout = {.pp = 4, .tp = 1, .dp = 1},
        .files = sums,
    };
    char path[FILE_PATH_BYTES];

    assert_int_equal(config_rig_load(config_rig_legal(), change, NULL, &config), STATUS_OK);
    assert_int_equal(config_write_json(config, &manifest.config), STATUS_OK);
    config_destroy(&config);
    assert_int_equal(store_begin(checkpoint_folder(), step), STATUS_OK);
    assert_int_equal(store_partial_path(checkpoint_folder(), step, path), STATUS_OK);
    for (int32_t rank = 0; rank < 4; rank++) {
        char name[SHARD_NAME_BYTES];
        char file[FILE_PATH_BYTES];

        manifest_shard_name(&manifest.layout, rank, name);
        assert_int_equal(folder_path(path, name, file), STATUS_OK);
        assert_int_equal(file_write(file, "", 0), STATUS_OK);
    }
    assert_int_equal(manifest_write(path, &manifest), STATUS_OK);
    free(manifest.config);
    assert_int_equal(store_publish(checkpoint_folder(), step), STATUS_OK);
}

/* The configuration of a run that is to go on. */
static struct config *load(const char *change)
{
    struct config *config = NULL;

    (void)snprintf(dir_override, sizeof(dir_override), "checkpoint.dir=%s", checkpoint_folder());
    assert_int_equal(config_rig_load(config_rig_legal(), dir_override, change, &config), STATUS_OK);
    return config;
}

static enum status judge(struct config *config)
{
    struct resume resume;
    enum status status = resume_find(config, &resume);

    if (status >= 0) {
        assert_true(resume.place.found);
        status = resume_judge(&resume, config, true);
    }
    resume_release(&resume);
    return status;
}

static void assert_refused(const char *change, const char *old_new, const char *hint)
{
    struct config *config = load(change);

    if (judge(config) != STATUS_ERR_REFUSED) {
        fail_msg("%s is taken", change);
    }
    if (strstr(status_last()->message, old_new) == NULL ||
        strstr(status_last()->message, hint) == NULL) {
        fail_msg("expected \"%s\" and \"%s\" in: %s", old_new, hint, status_last()->message);
    }
    config_destroy(&config);
}

static void another_model_is_refused_with_both_values(void **state)
{
    (void)state;
    save(10, NULL);
    assert_refused("model.hidden_size=128", "model.hidden_size 64 → 128", "model");
    assert_refused("model.vocab_size=300", "model.vocab_size 256 → 300", "model");
    assert_refused("model.tied_embeddings=false", "model.tied_embeddings true → false", "model");
    assert_refused("model.num_layers=8", "model.num_layers 6 → 8", "model");
}

static void another_layout_is_refused_with_both_values(void **state)
{
    (void)state;
    save(10, NULL);
    assert_refused("parallel.pp=2", "parallel.pp 4 → 2", "layout");
    assert_refused("parallel.tp=2", "parallel.tp 1 → 2", "layout");
    assert_refused("parallel.zero_stage=1", "parallel.zero_stage 0 → 1", "layout");
    assert_refused("parallel.layers_per_stage=[3,1,1,1]",
                   "parallel.layers_per_stage [2, 2, 1, 1] → [3, 1, 1, 1]", "layout");
}

static void seed_data_batch_and_optimizer_are_refused_unless_named(void **state)
{
    static const char *const changes[][3] = {
        {"train.seed=5", "train.seed 1234 → 5", "checkpoint.allow_change=[seed]"},
        {"train.num_microbatches=8", "train.global_batch_size 8 → 16",
         "checkpoint.allow_change=[global_batch_size]"},
        {"data.shuffle=false", "data.shuffle true → false", "checkpoint.allow_change=[data]"},
        {"data.train=other.txt", "data.train \"text.txt\" → \"other.txt\"",
         "checkpoint.allow_change=[data.train]"},
        {"optimizer.beta2=0.999", "optimizer.beta2 0.95 → 0.999",
         "checkpoint.allow_change=[optimizer]"},
        {"optimizer.weight_decay=0", "optimizer.weight_decay 0.1 → 0",
         "checkpoint.allow_change=[weight_decay]"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        char allow[96];
        struct config *config = NULL;
        struct config *allowed = NULL;

        save(10, NULL);
        assert_refused(changes[i][0], changes[i][1], "checkpoint.allow_change");
        (void)snprintf(allow, sizeof(allow), "%s", changes[i][2]);
        config = load(changes[i][0]);
        allowed = load(allow);
        memcpy(config->checkpoint.allow_change, allowed->checkpoint.allow_change,
               sizeof(config->checkpoint.allow_change));
        if (judge(config) != STATUS_OK) {
            fail_msg("%s with %s: %s", changes[i][0], allow, status_last()->message);
        }
        config_destroy(&config);
        config_destroy(&allowed);
    }
}

/* What weight decay comes to is asked for like where it begins; of a constant one it is nothing. */
static void the_end_of_weight_decay_is_asked_for_where_it_has_one(void **state)
{
    static const char falls[] = "optimizer.weight_decay_schedule=linear";
    static const char *const changes[][2] = {
        {"optimizer.end_weight_decay=0.05", "optimizer.end_weight_decay 0.1 → 0.05"},
        {"optimizer.weight_decay_steps=70", "optimizer.weight_decay_steps 100 → 70"},
        {"train.steps=200", "optimizer.weight_decay_steps 100 → 200"},
    };

    (void)state;
    save(10, falls);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct config *config = load(changes[i][0]);

        config->optimizer.weight_decay_schedule = WD_LINEAR;
        assert_int_equal(judge(config), STATUS_ERR_REFUSED);
        if (strstr(status_last()->message, changes[i][1]) == NULL) {
            fail_msg("expected \"%s\" in: %s", changes[i][1], status_last()->message);
        }
        (void)snprintf(config->checkpoint.allow_change[0],
                       sizeof(config->checkpoint.allow_change[0]), "optimizer.*");
        assert_int_equal(judge(config), STATUS_OK);
        config_destroy(&config);
    }
    save(10, NULL);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct config *config = load(changes[i][0]);

        assert_int_equal(judge(config), STATUS_OK);
        config_destroy(&config);
    }
}

static enum status judge_content(struct config *config, uint64_t bytes, uint64_t xxh3)
{
    const struct manifest_sum data = {.bytes = bytes, .xxh3 = xxh3};
    struct resume resume;
    enum status status = STATUS_OK;

    assert_int_equal(resume_find(config, &resume), STATUS_OK);
    status = resume_judge_data(&resume, config, &data, true);
    resume_release(&resume);
    return status;
}

/* The same name, the same size, the same number of sequences. */
static void another_content_of_the_training_set_is_refused_unless_named(void **state)
{
    static const char *const allowing[] = {"checkpoint.allow_change=[data]",
                                           "checkpoint.allow_change=[data.train]"};
    static const char *const others[] = {"checkpoint.allow_change=[data.split, data.shuffle]",
                                         "checkpoint.allow_change=[seed]", NULL};
    static const char change[] =
        "text.txt: 400 bytes, XXH3 0123456789abcdef → 400 bytes, XXH3 0123456789abcdee";
    char text[4096];

    (void)state;
    save(10, NULL);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        struct config *config = load(others[i]);

        assert_int_equal(judge_content(config, 400, 0x0123456789abcdefU), STATUS_OK);
        assert_int_equal(judge_content(config, 400, 0x0123456789abcdeeU), STATUS_ERR_REFUSED);
        assert_non_null(strstr(status_last()->message, "step-00000010 cannot be resumed"));
        assert_non_null(strstr(status_last()->message, "the content of data.train, "));
        assert_non_null(strstr(status_last()->message, change));
        assert_non_null(strstr(status_last()->message, "name data.train in "
                                                       "checkpoint.allow_change"));
        assert_int_equal(judge_content(config, 401, 0x0123456789abcdefU), STATUS_ERR_REFUSED);
        assert_non_null(strstr(status_last()->message, "400 bytes, XXH3 0123456789abcdef → 401 "));
        config_destroy(&config);
    }
    for (size_t i = 0; i < sizeof(allowing) / sizeof(allowing[0]); i++) {
        struct config *config = load(allowing[i]);
        struct capture capture;

        capture_begin(&capture);
        assert_int_equal(judge_content(config, 400, 0x0123456789abcdeeU), STATUS_OK);
        capture_end(&capture, text, sizeof(text));
        assert_non_null(strstr(text, "resumed with another content of data.train, "));
        assert_non_null(strstr(text, change));
        config_destroy(&config);
    }
}

static void fewer_steps_than_are_done_are_refused_with_both_numbers(void **state)
{
    struct config *as_many = load("train.steps=10");

    (void)state;
    save(10, NULL);
    assert_refused("train.steps=9", "train.steps: 9, and ", "is of step 10");
    assert_int_equal(judge(as_many), STATUS_OK);
    config_destroy(&as_many);
}

static void the_rest_is_taken_and_told(void **state)
{
    static const char *const changes[][2] = {
        {"parallel.schedule=gpipe", "parallel.schedule: \"1f1b\" → \"gpipe\""},
        {"optimizer.lr=0.5", "optimizer.lr: 0.0003 → 0.5"},
        {"train.steps=200", "train.steps: 100 → 200"},
        {"train.steps=200", "optimizer.decay_steps: 100 → 200"},
        {"train.threads=2", "train.threads: 3 → 2"},
        {"train.log_every=7", "train.log_every: 1 → 7"},
    };
    char text[4096];

    (void)state;
    save(10, NULL);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct config *config = load(changes[i][0]);
        struct capture capture;

        capture_begin(&capture);
        assert_int_equal(judge(config), STATUS_OK);
        capture_end(&capture, text, sizeof(text));
        if (strstr(text, changes[i][1]) == NULL) {
            fail_msg("%s: expected \"%s\" in:\n%s", changes[i][0], changes[i][1], text);
        }
        config_destroy(&config);
    }
}

static void automatic_threads_are_those_of_the_first_start(void **state)
{
    struct config *config = load(NULL);
    struct config *given = load("train.threads=7");
    struct resume resume;

    (void)state;
    save(10, NULL);
    assert_int_equal(resume_find(config, &resume), STATUS_OK);
    assert_true(config->train.threads == 0);
    resume_settle(&resume, config);
    resume_settle(&resume, given);
    assert_true(config->train.threads == 3);
    assert_true(given->train.threads == 7);
    resume_release(&resume);
    config_destroy(&config);
    config_destroy(&given);
}

/* Its moments would be new, and its count of updates not. */
static void another_optimizer_is_refused_whatever_is_named(void **state)
{
    struct config *config = load("optimizer.name=sgd");
    struct config *allowed = load("checkpoint.allow_change=[optimizer]");

    (void)state;
    save(10, NULL);
    assert_refused("optimizer.name=sgd", "optimizer.name \"adam\" → \"sgd\"", "moments");
    memcpy(config->checkpoint.allow_change, allowed->checkpoint.allow_change,
           sizeof(config->checkpoint.allow_change));
    assert_int_equal(judge(config), STATUS_ERR_REFUSED);
    assert_int_equal(judge(allowed), STATUS_OK);
    config_destroy(&config);
    config_destroy(&allowed);
}

static void never_and_must_are_obeyed(void **state)
{
    struct config *never = load("checkpoint.resume=never");
    struct config *must = load("checkpoint.resume=must");
    struct resume resume;

    (void)state;
    assert_int_equal(resume_find(must, &resume), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "checkpoint.resume is must"));
    assert_non_null(strstr(status_last()->message, checkpoint_folder()));
    save(10, NULL);
    assert_int_equal(resume_find(never, &resume), STATUS_OK);
    assert_false(resume.place.found);
    assert_int_equal(resume_find(must, &resume), STATUS_OK);
    assert_true(resume.place.found && resume.manifest.step == 10);
    resume_release(&resume);
    must->train.overwrite = true;
    assert_int_equal(resume_find(must, &resume), STATUS_ERR_REFUSED);
    config_destroy(&never);
    config_destroy(&must);
}

/* The words that a user needs: which file, and which older checkpoint would do. */
static void a_damaged_one_is_refused_and_the_older_one_is_named(void **state)
{
    struct config *config = load(NULL);
    struct resume resume;
    struct capture capture;
    char text[4096];

    (void)state;
    save(5, NULL);
    save(10, NULL);
    assert_int_equal(unlink(checkpoint_folder_path("step-00000010/shard-pp2-tp0-dp0.safetensors")),
                     0);
    capture_begin(&capture);
    assert_int_equal(resume_find(config, &resume), STATUS_ERR_REFUSED);
    capture_end(&capture, text, sizeof(text));
    assert_non_null(strstr(text, "shard-pp2-tp0-dp0.safetensors"));
    assert_non_null(strstr(text, "echo step-00000005 > "));
    resume_release(&resume);
    checkpoint_folder_write("latest", "step-00000005\n");
    assert_int_equal(resume_find(config, &resume), STATUS_OK);
    assert_true(resume.manifest.step == 5);
    resume_release(&resume);
    config_destroy(&config);
}

/* One that cannot be used either is no way out. */
static void an_older_one_that_is_damaged_too_is_not_named(void **state)
{
    static const char shard[] = "step-%08d/shard-pp2-tp0-dp0.safetensors";
    struct config *config = load(NULL);
    struct resume resume;
    struct capture capture;
    char text[4096];
    char name[64];
    char path[FILE_PATH_BYTES];

    (void)state;
    for (int step = 5; step <= 20; step += 5) {
        save(step, NULL);
    }
    (void)snprintf(name, sizeof(name), shard, 20);
    assert_int_equal(unlink(checkpoint_folder_path(name)), 0);
    (void)snprintf(name, sizeof(name), shard, 15);
    checkpoint_folder_write(name, "longer");
    checkpoint_folder_write("step-00000010/manifest.json", "{}");
    capture_begin(&capture);
    assert_int_equal(resume_find(config, &resume), STATUS_ERR_REFUSED);
    capture_end(&capture, text, sizeof(text));
    assert_non_null(strstr(text, "echo step-00000005 > "));
    assert_non_null(strstr(status_last()->message, "step-00000020"));
    resume_release(&resume);
    assert_false(store_find_older(checkpoint_folder(), 5, path));
    (void)snprintf(name, sizeof(name), shard, 5);
    assert_int_equal(unlink(checkpoint_folder_path(name)), 0);
    assert_false(store_find_older(checkpoint_folder(), 20, path));
    config_destroy(&config);
}

#define FOLDER(test) \
    cmocka_unit_test_setup_teardown(test, checkpoint_folder_make, checkpoint_folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER(another_model_is_refused_with_both_values),
        FOLDER(another_layout_is_refused_with_both_values),
        FOLDER(seed_data_batch_and_optimizer_are_refused_unless_named),
        FOLDER(the_end_of_weight_decay_is_asked_for_where_it_has_one),
        FOLDER(another_content_of_the_training_set_is_refused_unless_named),
        FOLDER(fewer_steps_than_are_done_are_refused_with_both_numbers),
        FOLDER(the_rest_is_taken_and_told),
        FOLDER(automatic_threads_are_those_of_the_first_start),
        FOLDER(another_optimizer_is_refused_whatever_is_named),
        FOLDER(never_and_must_are_obeyed),
        FOLDER(a_damaged_one_is_refused_and_the_older_one_is_named),
        FOLDER(an_older_one_that_is_damaged_too_is_not_named),
    };

    return cmocka_run_group_tests_name("resume", tests, open_all, config_rig_close);
}

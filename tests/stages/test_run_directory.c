/* A run's directory: what is made, what an earlier run left, and the lock of a live one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "config_rig.h"
#include "stages/run_directory.h"

static char root[] = "/tmp/weir-run-XXXXXX";
static char run_path[64];
static struct config *config;

static int open_all(void **state)
{
    return config_rig_open(state) == 0 && mkdtemp(root) != NULL ? 0 : -1;
}

static int close_all(void **state)
{
    return rmdir(root) == 0 ? config_rig_close(state) : -1;
}

static int load(void **state)
{
    char override[96];

    (void)state;
    (void)snprintf(run_path, sizeof(run_path), "%s/deep/run", root);
    (void)snprintf(override, sizeof(override), "--train.run_dir=%s", run_path);
    return config_rig_load(config_rig_legal(), override, NULL, &config) == STATUS_OK ? 0 : -1;
}

static const char *inside(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", run_path, name);
    return path;
}

static bool is_there(const char *name)
{
    return access(inside(name), F_OK) == 0;
}

static void leave(const char *name)
{
    assert_int_equal(file_write(inside(name), "left\n", 5), STATUS_OK);
}

/* Whether the file has `text` and nothing else. */
static bool says(const char *name, const char *text)
{
    char *found = NULL;
    size_t count = 0;
    bool same = false;

    assert_int_equal(file_read(inside(name), 65536, &found, &count), STATUS_OK);
    same = strcmp(found, text) == 0;
    free(found);
    return same;
}

/* Removes all that a test of this program can leave. */
static int clean(void **state)
{
    char deep[64];

    (void)state;
    config_destroy(&config);
    (void)snprintf(deep, sizeof(deep), "%s/deep", root);
    return folder_remove(deep) == STATUS_OK ? 0 : -1;
}

/* A directory as a run leaves it that did not come to its end. */
static void begin_a_run_and_break_off(void)
{
    struct run_directory run;

    assert_int_equal(run_directory_open(config, false, &run), STATUS_OK);
    leave("metrics.jsonl");
    run_directory_release(&run);
}

static void a_new_directory_is_made_with_its_configuration(void **state)
{
    struct run_directory run;
    struct config *again = NULL;

    (void)state;
    assert_int_equal(run_directory_state(config), RUN_NEW);
    assert_int_equal(run_directory_check(config, false), STATUS_OK);
    assert_false(is_there(""));
    assert_int_equal(run_directory_open(config, false, &run), STATUS_OK);
    assert_string_equal(run.path, run_path);
    assert_true(run.lock >= 0);
    assert_true(is_there("trace") && is_there("model") && is_there("lock"));
    assert_int_equal(config_load(inside("config.yaml"), NULL, 0, &again), STATUS_OK);
    assert_true(config_hash(again) == config_hash(config));
    config_destroy(&again);
    assert_int_equal(run_directory_state(config), RUN_NEW);
    run_directory_release(&run);
    assert_int_equal(run.lock, -1);
    run_directory_release(&run);
}

static void a_directory_with_the_final_weights_is_finished(void **state)
{
    (void)state;
    begin_a_run_and_break_off();
    leave("model/m.bytes");
    assert_int_equal(run_directory_state(config), RUN_INCOMPLETE);
    leave("model/config.json");
    assert_int_equal(run_directory_state(config), RUN_FINISHED);
    assert_int_equal(run_directory_check(config, false), STATUS_OK);
}

static void a_run_that_did_not_finish_is_refused_with_the_two_ways_out(void **state)
{
    struct run_directory run;
    const char *message = status_last()->message;

    (void)state;
    begin_a_run_and_break_off();
    assert_int_equal(run_directory_state(config), RUN_INCOMPLETE);
    assert_int_equal(run_directory_check(config, false), STATUS_ERR_REFUSED);
    assert_non_null(strstr(message, run_path));
    assert_non_null(strstr(message, "--train.run_dir"));
    assert_non_null(strstr(message, "--overwrite"));
    assert_int_equal(run_directory_open(config, false, &run), STATUS_ERR_REFUSED);
    assert_int_equal(run.lock, -1);
    run_directory_release(&run);
    assert_true(is_there("metrics.jsonl"));
}

/* What a resumed run finds: the traces of its first attempt put aside, and nothing that says it is
 * finished. */
static void a_run_that_goes_on_keeps_what_it_has(void **state)
{
    struct run_directory run;

    (void)state;
    begin_a_run_and_break_off();
    leave("model/config.json");
    leave("trace/rank-0.json");
    leave("trace/rank-1.json");
    leave("trace/mine.json");
    leave("config.yaml");
    for (int attempt = 1; attempt <= 2; attempt++) {
        assert_int_equal(run_directory_open(config, true, &run), STATUS_OK);
        /* It may still be refused: as it was. */
        assert_true(is_there("trace/rank-0.json"));
        assert_true(attempt == 2 || is_there("model/config.json"));
        assert_true(attempt == 2 || says("config.yaml", "left\n"));
        assert_int_equal(run_directory_go_on(config), STATUS_OK);
        run_directory_release(&run);
        assert_false(says("config.yaml", "left\n"));
        assert_false(is_there("model/config.json"));
        assert_true(is_there("metrics.jsonl") && is_there("trace/mine.json"));
        assert_false(is_there("trace/rank-0.json"));
        assert_true(is_there("trace/attempt-1/rank-0.json") &&
                    is_there("trace/attempt-1/rank-1.json"));
        leave("trace/rank-0.json");
    }
    assert_true(is_there("trace/attempt-2/rank-0.json"));
}

/* 20 steps of which 10 were run: finished where there is nothing to go on from. */
static void a_finished_run_that_is_asked_for_more_steps_goes_on_from_its_checkpoint(void **state)
{
    static const char lines[] = "{}\n{\"step\":9,\"loss\":1}\n{\"step\":10,\"loss\":1}\n";

    (void)state;
    begin_a_run_and_break_off();
    assert_int_equal(file_write(inside("metrics.jsonl"), lines, strlen(lines)), STATUS_OK);
    leave("model/config.json");
    config->train.steps = 20;
    assert_int_equal(run_directory_state(config), RUN_FINISHED);
    assert_int_equal(file_make_directories(inside("checkpoints/step-00000010")), STATUS_OK);
    leave("checkpoints/step-00000010/manifest.json");
    assert_int_equal(run_directory_state(config), RUN_INCOMPLETE);
    config->checkpoint.resume = RESUME_NEVER;
    assert_int_equal(run_directory_state(config), RUN_FINISHED);
    config->checkpoint.resume = RESUME_AUTO;
    config->train.steps = 10;
    assert_int_equal(run_directory_state(config), RUN_FINISHED);
}

static void overwriting_removes_checkpoints_of_this_run_alone(void **state)
{
    struct run_directory run;

    (void)state;
    begin_a_run_and_break_off();
    assert_int_equal(file_make_directories(inside("checkpoints/step-00000010")), STATUS_OK);
    leave("checkpoints/step-00000010/manifest.json");
    leave("checkpoints/latest");
    config->train.overwrite = true;
    /* Somebody else's, by name. */
    (void)snprintf(config->checkpoint.dir, sizeof(config->checkpoint.dir), "%s/./checkpoints",
                   run_path);
    assert_int_equal(run_directory_check(config, false), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "checkpoint.dir"));
    assert_true(is_there("checkpoints/latest"));
    (void)snprintf(config->checkpoint.dir, sizeof(config->checkpoint.dir), "%s/checkpoints",
                   run_path);
    assert_int_equal(run_directory_open(config, false, &run), STATUS_OK);
    run_directory_release(&run);
    assert_false(is_there("checkpoints/latest"));
    assert_false(is_there("checkpoints/step-00000010"));
}

/* Else a restart, or the next start, would take another run's checkpoint for its own. */
static void a_run_that_begins_does_not_do_so_among_the_checkpoints_of_another(void **state)
{
    struct run_directory run;

    (void)state;
    (void)snprintf(config->checkpoint.dir, sizeof(config->checkpoint.dir), "%s/deep/kept", root);
    assert_int_equal(run_directory_open(config, false, &run), STATUS_OK);
    run_directory_release(&run);
    assert_int_equal(file_make_directories(inside("../kept/step-00000010")), STATUS_OK);
    leave("../kept/step-00000010/manifest.json");
    assert_int_equal(run_directory_check(config, true), STATUS_OK);
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        config->train.overwrite = overwrite != 0;
        config->checkpoint.resume = overwrite != 0 ? RESUME_AUTO : RESUME_NEVER;
        assert_int_equal(run_directory_open(config, false, &run), STATUS_ERR_REFUSED);
        assert_int_equal(run.lock, -1);
        assert_non_null(strstr(status_last()->message, "--checkpoint.dir"));
        assert_non_null(strstr(status_last()->message, config->checkpoint.dir));
        assert_true(is_there("../kept/step-00000010/manifest.json"));
    }
}

static void two_runs_do_not_live_on_one_checkpoint_dir(void **state)
{
    struct config *other = NULL;
    struct run_directory live;
    struct run_directory run;
    char override[96];

    (void)state;
    (void)snprintf(override, sizeof(override), "--train.run_dir=%s/deep/other", root);
    assert_int_equal(config_rig_load(config_rig_legal(), override, NULL, &other), STATUS_OK);
    memcpy(other->checkpoint.dir, config->checkpoint.dir, sizeof(other->checkpoint.dir));
    assert_int_equal(run_directory_open(config, false, &live), STATUS_OK);
    for (int resumes = 0; resumes < 2; resumes++) {
        assert_int_equal(run_directory_check_free(other), STATUS_ERR_REFUSED);
        assert_int_equal(run_directory_open(other, resumes != 0, &run), STATUS_ERR_REFUSED);
        assert_non_null(strstr(status_last()->message, "checkpoint.dir: another run is alive"));
        assert_int_equal(run.lock, -1);
        assert_int_equal(run.checkpoint_lock, -1);
    }
    run_directory_release(&live);
    assert_int_equal(run_directory_open(other, false, &run), STATUS_OK);
    /* The other way round: the owner of the directory comes second. */
    assert_int_equal(run_directory_open(config, false, &live), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "checkpoint.dir: another run is alive"));
    run_directory_release(&live);
    run_directory_release(&run);
    config_destroy(&other);
}

static void overwriting_removes_what_a_run_left_and_nothing_else(void **state)
{
    static const char *const gone[] = {"metrics.jsonl",    "plan.csv",     "timeline.svg",
                                       "trace/0.json",     "trace/1.json", "model/m.bytes",
                                       "model/config.json"};
    struct run_directory run;

    (void)state;
    begin_a_run_and_break_off();
    for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++) {
        leave(gone[i]);
    }
    leave("notes.txt");
    config->train.overwrite = true;
    assert_int_equal(run_directory_state(config), RUN_NEW);
    assert_int_equal(run_directory_open(config, false, &run), STATUS_OK);
    for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++) {
        if (is_there(gone[i])) {
            fail_msg("%s is still there", gone[i]);
        }
    }
    assert_true(is_there("trace") && is_there("model") && is_there("config.yaml"));
    assert_true(is_there("notes.txt"));
    run_directory_release(&run);
}

static void whose_the_directory_is_shows_in_its_configuration(void **state)
{
    struct run_directory_stamp before;
    struct run_directory run;

    (void)state;
    run_directory_stamp(config, &before);
    assert_false(run_directory_changed(config, &before));
    begin_a_run_and_break_off();
    assert_true(run_directory_changed(config, &before));
    run_directory_stamp(config, &before);
    assert_false(run_directory_changed(config, &before));
    /* One that goes on has not begun with the directory yet. */
    assert_int_equal(run_directory_open(config, true, &run), STATUS_OK);
    assert_false(run_directory_changed(config, &before));
    assert_int_equal(run_directory_go_on(config), STATUS_OK);
    assert_true(run_directory_changed(config, &before));
    run_directory_release(&run);
}

static void a_run_may_have_one_directory_for_everything(void **state)
{
    struct run_directory run;
    struct run_directory second;

    (void)state;
    (void)snprintf(config->checkpoint.dir, sizeof(config->checkpoint.dir), "%s/", run_path);
    assert_int_equal(run_directory_open(config, false, &run), STATUS_OK);
    assert_int_equal(run_directory_open(config, false, &second), STATUS_ERR_REFUSED);
    run_directory_release(&second);
    run_directory_release(&run);
}

static void a_live_run_is_refused_and_left_alone(void **state)
{
    struct run_directory live;
    struct run_directory run;

    (void)state;
    assert_int_equal(run_directory_open(config, false, &live), STATUS_OK);
    leave("metrics.jsonl");
    config->train.overwrite = true;
    assert_int_equal(run_directory_check(config, false), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "alive"));
    assert_non_null(strstr(status_last()->message, run_path));
    assert_int_equal(run_directory_open(config, false, &run), STATUS_ERR_REFUSED);
    run_directory_release(&run);
    assert_true(is_there("metrics.jsonl"));
    run_directory_release(&live);
    assert_int_equal(run_directory_open(config, false, &run), STATUS_OK);
    run_directory_release(&run);
}

/* Asking is no holding: two that look at once do not see one another. */
static void a_look_leaves_the_lock_free(void **state)
{
    struct run_directory run;

    (void)state;
    assert_int_equal(run_directory_open(config, false, &run), STATUS_OK);
    run_directory_release(&run);
    assert_int_equal(run_directory_check(config, false), STATUS_OK);
    assert_int_equal(run_directory_check(config, false), STATUS_OK);
    assert_int_equal(run_directory_open(config, false, &run), STATUS_OK);
    run_directory_release(&run);
}

static void a_file_in_the_place_of_the_directory_is_refused_by_name(void **state)
{
    struct run_directory run;
    char deep[64];

    (void)state;
    (void)snprintf(deep, sizeof(deep), "%s/deep", root);
    assert_int_equal(file_write(deep, "x", 1), STATUS_OK);
    assert_true(run_directory_open(config, false, &run) < 0);
    assert_non_null(strstr(status_last()->message, deep));
    assert_int_equal(run.lock, -1);
    run_directory_release(&run);
}

#define CLEAN(test) cmocka_unit_test_setup_teardown(test, load, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLEAN(a_new_directory_is_made_with_its_configuration),
        CLEAN(a_directory_with_the_final_weights_is_finished),
        CLEAN(a_run_that_did_not_finish_is_refused_with_the_two_ways_out),
        CLEAN(overwriting_removes_what_a_run_left_and_nothing_else),
        CLEAN(a_run_that_goes_on_keeps_what_it_has),
        CLEAN(a_finished_run_that_is_asked_for_more_steps_goes_on_from_its_checkpoint),
        CLEAN(overwriting_removes_checkpoints_of_this_run_alone),
        CLEAN(a_run_that_begins_does_not_do_so_among_the_checkpoints_of_another),
        CLEAN(two_runs_do_not_live_on_one_checkpoint_dir),
        CLEAN(whose_the_directory_is_shows_in_its_configuration),
        CLEAN(a_run_may_have_one_directory_for_everything),
        CLEAN(a_live_run_is_refused_and_left_alone),
        CLEAN(a_look_leaves_the_lock_free),
        CLEAN(a_file_in_the_place_of_the_directory_is_refused_by_name),
    };

    return cmocka_run_group_tests_name("run_directory", tests, open_all, close_all);
}

/* The folder of checkpoints: which one is taken, what is replaced and removed, and what never is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "stages/checkpoint/store.h"
#include "tests/stages/checkpoint_folder.h"

/* What a checkpoint after `step` leaves when it is written to its end; `content` stands in it. */
static void save(int64_t step, const char *content)
{
    char path[FILE_PATH_BYTES];
    char file[FILE_PATH_BYTES];

    assert_int_equal(store_begin(checkpoint_folder(), step), STATUS_OK);
    assert_int_equal(store_partial_path(checkpoint_folder(), step, path), STATUS_OK);
    assert_int_equal(folder_path(path, "manifest.json", file), STATUS_OK);
    assert_int_equal(file_write(file, content, strlen(content)), STATUS_OK);
    assert_int_equal(store_publish(checkpoint_folder(), step), STATUS_OK);
}

static bool is_there(const char *name)
{
    return access(checkpoint_folder_path(name), F_OK) == 0;
}

static void assert_found(int64_t step, const char *warning)
{
    struct store_place place;
    char name[STORE_NAME_BYTES];

    assert_int_equal(store_find(checkpoint_folder(), &place), STATUS_OK);
    assert_true(place.found);
    assert_true(place.step == step);
    store_name(step, name);
    assert_string_equal(place.path, checkpoint_folder_path(name));
    if (warning == NULL) {
        assert_string_equal(place.warning, "");
    } else if (strstr(place.warning, warning) == NULL) {
        fail_msg("expected \"%s\" in \"%s\"", warning, place.warning);
    }
}

static void names_sort_as_steps_do(void **state)
{
    char name[STORE_NAME_BYTES];

    (void)state;
    store_name(10, name);
    assert_string_equal(name, "step-00000010");
    store_name(123456789012, name);
    assert_string_equal(name, "step-123456789012");
}

static void nothing_is_found_where_there_is_nothing(void **state)
{
    struct store_place place;

    (void)state;
    assert_int_equal(store_find(checkpoint_folder(), &place), STATUS_OK);
    assert_false(place.found);
    assert_int_equal(store_find(checkpoint_folder_path("none"), &place), STATUS_OK);
    assert_false(place.found);
    assert_false(store_has_any(checkpoint_folder_path("none")));
}

/* A link to itself: no rights of any user open it. */
static void a_folder_that_cannot_be_looked_at_is_not_taken_for_empty(void **state)
{
    struct store_place place;

    (void)state;
    assert_int_equal(symlink("loop", checkpoint_folder_path("loop")), 0);
    assert_int_equal(store_find(checkpoint_folder_path("loop"), &place), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "checkpoint.dir: cannot read"));
    assert_true(store_has_any(checkpoint_folder_path("loop")));
}

static void the_last_one_that_was_written_to_its_end_is_found(void **state)
{
    (void)state;
    save(5, "five");
    assert_found(5, NULL);
    save(10, "ten");
    assert_found(10, NULL);
    /* A death while 15 is written. */
    assert_int_equal(store_begin(checkpoint_folder(), 15), STATUS_OK);
    assert_found(10, NULL);
    assert_true(is_there("step-00000015.partial"));
}

static void latest_decides_and_not_the_number(void **state)
{
    (void)state;
    save(10, "ten");
    save(20, "twenty");
    checkpoint_folder_write("latest", "step-00000010\n");
    assert_found(10, NULL);
    checkpoint_folder_write("latest", "step-00000020");
    assert_found(20, NULL);
}

/* A death between the two moves of the first checkpoint; a user who has removed a damaged one. */
static void without_the_one_that_latest_names_the_newest_is_taken_with_a_warning(void **state)
{
    struct store_place place;

    (void)state;
    save(10, "ten");
    assert_int_equal(unlink(checkpoint_folder_path("latest")), 0);
    assert_found(10, "latest is missing");
    save(20, "twenty");
    assert_int_equal(folder_remove(checkpoint_folder_path("step-00000020")), STATUS_OK);
    assert_found(10, "names what is not there: step-00000020");
    assert_int_equal(folder_remove(checkpoint_folder_path("step-00000010")), STATUS_OK);
    assert_int_equal(store_find(checkpoint_folder(), &place), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "step-00000020"));
}

static void what_latest_may_not_say_is_refused(void **state)
{
    static const char *const wrong[] = {"",
                                        "step-10",
                                        "../step-00000010",
                                        "step-00000010.partial",
                                        "step-0000001x",
                                        "step--0000001"};
    struct store_place place;

    (void)state;
    save(10, "ten");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        checkpoint_folder_write("latest", wrong[i]);
        assert_int_equal(store_find(checkpoint_folder(), &place), STATUS_ERR_REFUSED);
        assert_non_null(strstr(status_last()->message, "/latest"));
        assert_non_null(strstr(status_last()->message, "step-00000010"));
    }
}

static void partial_ones_are_named_and_the_next_save_removes_them(void **state)
{
    char text[128];

    (void)state;
    save(5, "five");
    assert_int_equal(store_partials(checkpoint_folder(), text, sizeof(text)), 0);
    assert_int_equal(store_begin(checkpoint_folder(), 10), STATUS_OK);
    checkpoint_folder_write("step-00000010.partial/shard", "half");
    assert_int_equal(store_partials(checkpoint_folder(), text, sizeof(text)), 1);
    assert_string_equal(text, "step-00000010.partial");
    /* The next attempt begins it again, and finds nothing in it. */
    assert_int_equal(store_begin(checkpoint_folder(), 10), STATUS_OK);
    assert_false(is_there("step-00000010.partial/shard"));
    store_discard(checkpoint_folder(), 10);
    assert_false(is_there("step-00000010.partial"));
    store_discard(checkpoint_folder(), 10);
    assert_found(5, NULL);
    /* A death while one was being removed. */
    assert_int_equal(file_make_directories(checkpoint_folder_path("step-00000007.discarded")),
                     STATUS_OK);
    checkpoint_folder_write("step-00000007.discarded/shard", "half");
    assert_int_equal(store_partials(checkpoint_folder(), text, sizeof(text)), 1);
    assert_string_equal(text, "step-00000007.discarded");
    assert_found(5, NULL);
    assert_int_equal(store_begin(checkpoint_folder(), 10), STATUS_OK);
    assert_int_equal(store_partials(checkpoint_folder(), text, sizeof(text)), 1);
    assert_string_equal(text, "step-00000010.partial");
    /* What is not weir's stays. */
    assert_int_equal(file_make_directories(checkpoint_folder_path("discarded")), STATUS_OK);
    store_discard(checkpoint_folder(), 10);
    assert_int_equal(store_partials(checkpoint_folder(), text, sizeof(text)), 0);
    assert_true(is_there("discarded"));
}

/* A death between the rename and `latest`: the same step is saved again by the next attempt. */
static void a_whole_one_of_the_same_step_is_replaced(void **state)
{
    char *text = NULL;
    size_t count = 0;

    (void)state;
    save(5, "five");
    save(10, "old");
    checkpoint_folder_write("latest", "step-00000005\n");
    save(10, "new");
    assert_found(10, NULL);
    assert_int_equal(
        file_read(checkpoint_folder_path("step-00000010/manifest.json"), 16, &text, &count),
        STATUS_OK);
    assert_string_equal(text, "new");
    free(text);
    assert_false(is_there("step-00000010.partial"));
}

static void the_oldest_go_and_never_the_latest_or_a_later_one(void **state)
{
    (void)state;
    for (int64_t step = 5; step <= 30; step += 5) {
        save(step, "x");
    }
    checkpoint_folder_write("step-00000099", "a file of somebody's");
    assert_int_equal(store_prune(checkpoint_folder(), 25, 2), STATUS_OK);
    assert_false(is_there("step-00000005") || is_there("step-00000010") ||
                 is_there("step-00000015"));
    assert_true(is_there("step-00000020") && is_there("step-00000025") &&
                is_there("step-00000030") && is_there("step-00000099"));
    checkpoint_folder_write("latest", "step-00000020\n");
    assert_int_equal(store_prune(checkpoint_folder(), 30, 1), STATUS_OK);
    assert_true(is_there("step-00000020") && is_there("step-00000030"));
    assert_false(is_there("step-00000025"));
}

#define RACES      200
#define RACE_FILES 20

static void race_file(int64_t step, int i, const char *end, char *name, size_t name_bytes)
{
    (void)snprintf(name, name_bytes, "step-%08lld%s/%d", (long long)step, end, i);
}

/* Gives up each checkpoint whose number comes; ends with the pipe. */
static void discard_what_comes(int from)
{
    int64_t step = 0;

    while (read(from, &step, sizeof(step)) == (ssize_t)sizeof(step)) {
        store_discard(checkpoint_folder(), step);
    }
    _exit(0);
}

static bool has_all(int64_t step)
{
    bool all = true;

    for (int i = 0; i < RACE_FILES; i++) {
        char name[64];

        race_file(step, i, "", name, sizeof(name));
        all = all && is_there(name);
    }
    return all;
}

static void fill(int64_t step)
{
    assert_int_equal(store_begin(checkpoint_folder(), step), STATUS_OK);
    for (int i = 0; i < RACE_FILES; i++) {
        char name[64];

        race_file(step, i, ".partial", name, sizeof(name));
        checkpoint_folder_write(name, "x");
    }
}

/* `again`: one of the same step is there already, and in its place stays, or the new one is there. */
static void publish_against(int64_t step, bool again, int to)
{
    bool published = false;

    fill(step);
    if (again) {
        assert_int_equal(store_publish(checkpoint_folder(), step), STATUS_OK);
        fill(step);
    }
    assert_int_equal(write(to, &step, sizeof(step)), sizeof(step));
    published = store_publish(checkpoint_folder(), step) >= 0;
    if ((published || again) && !has_all(step)) {
        fail_msg("step %d, %s: files are missing", (int)step, published ? "published" : "there");
    }
}

/* A rank may give a save up, because another has died, at the moment rank 0 puts it into place. */
static void
one_that_is_published_while_another_process_gives_it_up_is_whole_or_not_there(void **state)
{
    char text[256];
    int ends[2];
    int code = 0;
    pid_t other = 0;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    other = fork();
    if (other == 0) {
        (void)close(ends[1]);
        discard_what_comes(ends[0]);
    }
    (void)close(ends[0]);
    for (int64_t step = 1; step <= RACES; step++) {
        publish_against(step, step % 2 == 0, ends[1]);
    }
    (void)close(ends[1]);
    assert_int_equal(waitpid(other, &code, 0), other);
    assert_int_equal(code, 0);
    assert_int_equal(store_partials(checkpoint_folder(), text, sizeof(text)), 0);
}

static void clearing_removes_all_checkpoints_and_nothing_else(void **state)
{
    char text[64];

    (void)state;
    save(5, "five");
    save(10, "ten");
    assert_int_equal(store_begin(checkpoint_folder(), 15), STATUS_OK);
    checkpoint_folder_write("notes.txt", "mine");
    assert_true(store_has_any(checkpoint_folder()));
    assert_int_equal(store_clear(checkpoint_folder()), STATUS_OK);
    assert_false(store_has_any(checkpoint_folder()));
    assert_int_equal(store_partials(checkpoint_folder(), text, sizeof(text)), 0);
    assert_true(is_there("notes.txt"));
    assert_int_equal(unlink(checkpoint_folder_path("notes.txt")), 0);
    save(5, "five");
    assert_int_equal(store_clear(checkpoint_folder()), STATUS_OK);
    assert_false(folder_exists(checkpoint_folder()));
    assert_int_equal(store_clear(checkpoint_folder()), STATUS_OK);
}

#define FOLDER(test) \
    cmocka_unit_test_setup_teardown(test, checkpoint_folder_make, checkpoint_folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER(names_sort_as_steps_do),
        FOLDER(nothing_is_found_where_there_is_nothing),
        FOLDER(a_folder_that_cannot_be_looked_at_is_not_taken_for_empty),
        FOLDER(the_last_one_that_was_written_to_its_end_is_found),
        FOLDER(latest_decides_and_not_the_number),
        FOLDER(without_the_one_that_latest_names_the_newest_is_taken_with_a_warning),
        FOLDER(what_latest_may_not_say_is_refused),
        FOLDER(partial_ones_are_named_and_the_next_save_removes_them),
        FOLDER(a_whole_one_of_the_same_step_is_replaced),
        FOLDER(the_oldest_go_and_never_the_latest_or_a_later_one),
        FOLDER(one_that_is_published_while_another_process_gives_it_up_is_whole_or_not_there),
        FOLDER(clearing_removes_all_checkpoints_and_nothing_else),
    };

    return cmocka_run_group_tests_name("checkpoint_store", tests, NULL, NULL);
}

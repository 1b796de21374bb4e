/* Folders as a whole: put into place, replaced, removed. */
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
#include "tests/base/capture.h"

static char root[64];

static int make(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof(root), "/tmp/weir-folder-XXXXXX");
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return folder_remove(root) == STATUS_OK && access(root, F_OK) != 0 ? 0 : -1;
}

static const char *path_of(const char *name)
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", root, name);
    return path;
}

static void leave(const char *name)
{
    assert_int_equal(file_write(path_of(name), "x", 1), STATUS_OK);
}

static bool is_there(const char *name)
{
    return access(path_of(name), F_OK) == 0;
}

static void a_folder_is_removed_with_all_that_is_in_it_and_links_are_not_followed(void **state)
{
    (void)state;
    assert_int_equal(file_make_directories(path_of("a/b/c")), STATUS_OK);
    leave("a/file");
    leave("a/b/c/file");
    leave("kept");
    assert_int_equal(symlink(path_of("kept"), path_of("a/link")), 0);
    assert_int_equal(symlink(root, path_of("a/loop")), 0);
    assert_int_equal(folder_remove(path_of("a")), STATUS_OK);
    assert_false(is_there("a"));
    assert_true(is_there("kept"));
    assert_int_equal(folder_remove(path_of("kept")), STATUS_OK);
    assert_false(is_there("kept"));
    assert_int_equal(folder_remove(path_of("never/there")), STATUS_OK);
}

static void discarding_says_nothing(void **state)
{
    struct capture capture;
    char text[256];

    (void)state;
    assert_int_equal(file_make_directories(path_of("a/b")), STATUS_OK);
    leave("a/b/file");
    leave("a/file");
    capture_begin(&capture);
    folder_discard(path_of("a"));
    folder_discard(path_of("a"));
    capture_end(&capture, text, sizeof(text));
    assert_string_equal(text, "");
    assert_false(is_there("a"));
}

static void a_folder_takes_the_place_of_another_or_of_none(void **state)
{
    (void)state;
    assert_int_equal(file_make_directories(path_of("new")), STATUS_OK);
    leave("new/one");
    assert_int_equal(folder_replace(path_of("new"), path_of("place")), STATUS_OK);
    assert_true(is_there("place/one"));
    assert_false(is_there("new"));
    assert_int_equal(file_make_directories(path_of("new")), STATUS_OK);
    leave("new/two");
    assert_int_equal(folder_replace(path_of("new"), path_of("place")), STATUS_OK);
    assert_true(is_there("place/two"));
    assert_false(is_there("place/one"));
    assert_false(is_there("new"));
    assert_true(folder_replace(path_of("none"), path_of("place")) < 0);
    assert_non_null(strstr(status_last()->message, "place"));
    assert_true(is_there("place/two"));
}

static void a_path_that_does_not_fit_is_refused_and_not_cut(void **state)
{
    static char longest[FILE_PATH_BYTES + 8];
    char path[FILE_PATH_BYTES];

    (void)state;
    assert_int_equal(folder_path("a/b", "c", path), STATUS_OK);
    assert_string_equal(path, "a/b/c");
    memset(longest, 'x', FILE_PATH_BYTES - 3);
    assert_int_equal(folder_path(longest, "y", path), STATUS_OK);
    assert_int_equal(folder_path(longest, "yy", path), STATUS_ERR_REFUSED);
}

static void only_what_is_there_can_be_synced(void **state)
{
    (void)state;
    leave("file");
    assert_true(folder_exists(root));
    assert_false(folder_exists(path_of("file")));
    assert_false(folder_exists(path_of("none")));
    assert_int_equal(folder_sync(root), STATUS_OK);
    assert_true(folder_sync(path_of("none")) < 0);
    assert_non_null(strstr(status_last()->message, "none"));
}

#define ROOT(test) cmocka_unit_test_setup_teardown(test, make, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOT(a_folder_is_removed_with_all_that_is_in_it_and_links_are_not_followed),
        ROOT(discarding_says_nothing),
        ROOT(a_folder_takes_the_place_of_another_or_of_none),
        ROOT(a_path_that_does_not_fit_is_refused_and_not_cut),
        ROOT(only_what_is_there_can_be_synced),
    };

    return cmocka_run_group_tests_name("folder", tests, NULL, NULL);
}

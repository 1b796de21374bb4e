#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/base/capture.h"

static char directory[] = "/tmp/weir-test-file-XXXXXX";
static char path_text[512];

/* A path in the test's directory; valid until the next call. */
static const char *path_of(const char *name)
{
    (void)snprintf(path_text, sizeof(path_text), "%s/%s", directory, name);
    return path_text;
}

static void write_plain(const char *name, const void *bytes, size_t count)
{
    FILE *file = fopen(path_of(name), "w");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static int entries_in_directory(void)
{
    DIR *open = opendir(directory);
    int entries = 0;

    assert_non_null(open);
    for (struct dirent *entry = readdir(open); entry != NULL; entry = readdir(open)) {
        entries += entry->d_name[0] != '.' ? 1 : 0;
    }
    assert_int_equal(closedir(open), 0);
    return entries;
}

/* Removes what the tests of this program leave, so that each begins with an empty directory. */
static int clean(void **state)
{
    DIR *open = opendir(directory);

    (void)state;
    if (open == NULL) {
        return -1;
    }
    for (struct dirent *entry = readdir(open); entry != NULL; entry = readdir(open)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (void)remove(path_of(entry->d_name));
        }
    }
    return closedir(open);
}

static void quietly(struct capture *capture)
{
    capture_begin(capture);
}

static void and_loud_again(struct capture *capture)
{
    char text[2048];

    capture_end(capture, text, sizeof(text));
}

static void a_file_reads_back_whole_with_a_nul_behind_it(void **state)
{
    char *bytes = NULL;
    size_t count = 0;

    (void)state;
    write_plain("a", "x\0y", 3);
    assert_int_equal(file_read(path_of("a"), 3, &bytes, &count), STATUS_OK);
    assert_int_equal(count, 3);
    assert_memory_equal(bytes, "x\0y", 4);
    free(bytes);
}

static void an_empty_file_is_no_error(void **state)
{
    char *bytes = NULL;
    size_t count = 9;
    struct file_map map = {.data = NULL, .bytes = 9};

    (void)state;
    write_plain("empty", "", 0);
    assert_int_equal(file_read(path_of("empty"), 10, &bytes, &count), STATUS_OK);
    assert_int_equal(count, 0);
    assert_string_equal(bytes, "");
    free(bytes);
    assert_int_equal(file_map_open(path_of("empty"), &map), STATUS_OK);
    assert_int_equal(map.bytes, 0);
    assert_null(map.data);
    file_map_close(&map);
}

static void a_file_above_the_limit_is_refused_with_both_numbers(void **state)
{
    struct capture capture;
    char *bytes = NULL;
    size_t count = 0;

    (void)state;
    write_plain("a", "four", 4);
    quietly(&capture);
    enum status status = file_read(path_of("a"), 3, &bytes, &count);
    and_loud_again(&capture);
    assert_int_equal(status, STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "at most 3 bytes, found 4"));
    assert_null(bytes);
}

static void what_is_no_regular_file_is_refused_with_path_and_cause(void **state)
{
    struct capture capture;
    char *bytes = NULL;
    size_t count = 0;
    struct file_map map = {0};

    (void)state;
    quietly(&capture);
    enum status missing = file_read(path_of("missing"), 3, &bytes, &count);
    assert_non_null(strstr(status_last()->message, path_of("missing")));
    assert_non_null(strstr(status_last()->message, "No such file"));
    enum status folder = file_read(directory, 3, &bytes, &count);
    assert_non_null(strstr(status_last()->message, "a directory"));
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    enum status pipe = file_map_open(path_of("pipe"), &map);
    assert_non_null(strstr(status_last()->message, "a pipe"));
    and_loud_again(&capture);
    assert_int_equal(missing, STATUS_ERR_REFUSED);
    assert_int_equal(folder, STATUS_ERR_REFUSED);
    assert_int_equal(pipe, STATUS_ERR_REFUSED);
}

static void a_mapping_shows_the_file_and_outlives_its_name(void **state)
{
    struct file_map map = {0};

    (void)state;
    write_plain("a", "hello", 5);
    assert_int_equal(file_map_open(path_of("a"), &map), STATUS_OK);
    assert_int_equal(unlink(path_of("a")), 0);
    assert_int_equal(map.bytes, 5);
    assert_memory_equal(map.data, "hello", 5);
    file_map_close(&map);
    assert_null(map.data);
    file_map_close(&map);
}

static void a_written_file_replaces_the_old_one_and_leaves_nothing_else(void **state)
{
    char *bytes = NULL;
    size_t count = 0;

    (void)state;
    write_plain("a", "the old one, longer", 19);
    assert_int_equal(file_write(path_of("a"), "new", 3), STATUS_OK);
    assert_int_equal(file_read(path_of("a"), 100, &bytes, &count), STATUS_OK);
    assert_string_equal(bytes, "new");
    free(bytes);
    assert_int_equal(entries_in_directory(), 1);
}

static void until_commit_the_old_file_stands(void **state)
{
    struct file_writer writer;
    char *bytes = NULL;
    size_t count = 0;

    (void)state;
    write_plain("a", "old", 3);
    assert_int_equal(file_writer_open(path_of("a"), &writer), STATUS_OK);
    assert_int_equal(file_writer_put(&writer, "new ", 4), STATUS_OK);
    assert_int_equal(file_writer_put(&writer, "text", 4), STATUS_OK);
    assert_int_equal(file_read(path_of("a"), 100, &bytes, &count), STATUS_OK);
    assert_string_equal(bytes, "old");
    free(bytes);
    assert_int_equal(file_writer_commit(&writer), STATUS_OK);
    assert_int_equal(file_read(path_of("a"), 100, &bytes, &count), STATUS_OK);
    assert_string_equal(bytes, "new text");
    free(bytes);
    file_writer_discard(&writer);
    assert_int_equal(access(path_of("a"), R_OK), 0);
}

static void draining_changes_nothing_that_can_be_seen(void **state)
{
    static char bytes[1 << 16];
    struct file_writer writer;
    struct file_map map = {0};

    (void)state;
    memset(bytes, 'x', sizeof(bytes));
    assert_int_equal(file_writer_open(path_of("a"), &writer), STATUS_OK);
    assert_int_equal(file_writer_drain(&writer), STATUS_OK);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(file_writer_put(&writer, bytes, sizeof(bytes)), STATUS_OK);
        assert_int_equal(file_writer_drain(&writer), STATUS_OK);
    }
    assert_int_not_equal(access(path_of("a"), F_OK), 0);
    assert_int_equal(file_writer_commit(&writer), STATUS_OK);
    assert_int_equal(file_map_open(path_of("a"), &map), STATUS_OK);
    assert_int_equal(map.bytes, 40 * sizeof(bytes));
    for (size_t i = 0; i < 40; i++) {
        assert_memory_equal((char *)map.data + i * sizeof(bytes), bytes, sizeof(bytes));
    }
    file_map_close(&map);
}

/* What the disk did not take is said by whoever hears of it first. */
static void draining_what_is_no_file_any_more_fails_by_name(void **state)
{
    struct file_writer writer;
    struct capture capture;

    (void)state;
    assert_int_equal(file_writer_open(path_of("a"), &writer), STATUS_OK);
    assert_int_equal(close(writer.fd), 0);
    quietly(&capture);
    enum status status = file_writer_drain(&writer);
    and_loud_again(&capture);
    assert_int_equal(status, STATUS_ERR_IO);
    assert_non_null(strstr(status_last()->message, writer.temporary));
    (void)unlink(writer.temporary);
}

static void a_discarded_writer_leaves_the_old_file_alone(void **state)
{
    struct file_writer writer;

    (void)state;
    write_plain("a", "old", 3);
    assert_int_equal(file_writer_open(path_of("a"), &writer), STATUS_OK);
    assert_int_equal(file_writer_put(&writer, "new", 3), STATUS_OK);
    assert_int_equal(entries_in_directory(), 2);
    file_writer_discard(&writer);
    file_writer_discard(&writer);
    assert_int_equal(entries_in_directory(), 1);
}

static void a_commit_that_fails_leaves_nothing(void **state)
{
    struct capture capture;
    struct file_writer writer;

    (void)state;
    assert_int_equal(mkdir(path_of("a"), 0700), 0);
    assert_int_equal(file_writer_open(path_of("a"), &writer), STATUS_OK);
    quietly(&capture);
    enum status status = file_writer_commit(&writer); /* a file does not replace a directory */
    and_loud_again(&capture);
    assert_true(status < 0);
    assert_non_null(strstr(status_last()->message, path_of("a")));
    assert_int_equal(entries_in_directory(), 1);
}

static void writing_into_a_missing_directory_names_it(void **state)
{
    struct capture capture;

    (void)state;
    quietly(&capture);
    enum status status = file_write(path_of("no/such"), "x", 1);
    and_loud_again(&capture);
    assert_int_equal(status, STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "no/such"));
}

static void directories_are_made_with_their_parents_once(void **state)
{
    struct stat info;

    (void)state;
    assert_int_equal(file_make_directories(path_of("b//c/d/")), STATUS_OK);
    assert_int_equal(file_make_directories(path_of("b/c/d")), STATUS_OK);
    assert_int_equal(stat(path_of("b/c/d"), &info), 0);
    assert_true(S_ISDIR(info.st_mode));
    assert_int_equal(rmdir(path_of("b/c/d")), 0);
    assert_int_equal(rmdir(path_of("b/c")), 0);
}

static void a_file_in_the_way_of_a_directory_is_refused(void **state)
{
    struct capture capture;

    (void)state;
    write_plain("a", "x", 1);
    quietly(&capture);
    enum status inside = file_make_directories(path_of("a/b"));
    enum status itself = file_make_directories(path_of("a"));
    enum status empty = file_make_directories("");
    and_loud_again(&capture);
    assert_int_equal(inside, STATUS_ERR_REFUSED);
    assert_int_equal(itself, STATUS_ERR_REFUSED);
    assert_int_equal(empty, STATUS_ERR_REFUSED);
}

static enum status print_number(const void *context, FILE *out)
{
    const int *number = context;

    (void)fprintf(out, "number %d", *number);
    return *number < 0 ? status_note(STATUS_ERR_INVALID, "below 0") : STATUS_OK;
}

static void what_is_printed_is_written_whole_or_not_at_all(void **state)
{
    const int good = 7;
    const int bad = -1;
    char *text = NULL;
    size_t count = 0;

    (void)state;
    assert_int_equal(file_print(path_of("printed"), print_number, &good), STATUS_OK);
    assert_int_equal(file_print(path_of("printed"), print_number, &bad), STATUS_ERR_INVALID);
    assert_int_equal(file_read(path_of("printed"), 64, &text, &count), STATUS_OK);
    assert_string_equal(text, "number 7");
    free(text);
}

static void several_fill_a_file_and_its_name_comes_last(void **state)
{
    static const char whole[] = "hello world";
    struct file_shared left;
    struct file_shared right;
    char *bytes = NULL;
    size_t count = 0;
    char found[6] = "";

    (void)state;
    assert_int_equal(file_shared_create(path_of("shared"), 11), STATUS_OK);
    assert_int_equal(file_shared_open(path_of("shared"), 11, &left), STATUS_OK);
    assert_int_equal(file_shared_open(path_of("shared"), 11, &right), STATUS_OK);
    assert_int_equal(file_shared_put(&right, 5, " world", 6), STATUS_OK);
    assert_int_equal(file_shared_put(&left, 0, "hello", 5), STATUS_OK);
    assert_int_equal(file_shared_get(&left, 6, found, 5), STATUS_OK);
    assert_string_equal(found, "world");
    assert_int_equal(file_shared_close(&right), STATUS_OK);
    assert_int_equal(file_shared_close(&left), STATUS_OK);
    assert_int_equal(file_shared_close(&left), STATUS_OK);
    assert_int_not_equal(access(path_of("shared"), F_OK), 0);
    assert_int_equal(file_shared_publish(path_of("shared")), STATUS_OK);
    assert_int_equal(file_read(path_of("shared"), 100, &bytes, &count), STATUS_OK);
    assert_int_equal(count, 11);
    assert_string_equal(bytes, whole);
    assert_int_equal(entries_in_directory(), 1);
    free(bytes);
}

static void a_shared_file_of_another_size_or_none_is_refused(void **state)
{
    struct file_shared file;
    char byte = 0;

    (void)state;
    assert_int_equal(file_shared_open(path_of("shared"), 8, &file), STATUS_ERR_REFUSED);
    assert_int_equal(file_shared_publish(path_of("shared")), STATUS_ERR_REFUSED);
    assert_int_equal(file_shared_create(path_of("shared"), 8), STATUS_OK);
    assert_int_equal(file_shared_open(path_of("shared"), 9, &file), STATUS_ERR_IO);
    assert_non_null(strstr(status_last()->message, "9 bytes"));
    assert_false(file.open);
    assert_int_equal(file_shared_open(path_of("shared"), 8, &file), STATUS_OK);
    assert_int_equal(file_shared_get(&file, 8, &byte, 1), STATUS_ERR_IO);
    assert_int_equal(file_shared_close(&file), STATUS_OK);
    file_shared_remove(path_of("shared"));
    file_shared_remove(path_of("shared"));
    assert_int_equal(entries_in_directory(), 0);
}

/* A directory in the place of the name: what was written goes with the attempt. */
static void a_shared_file_that_cannot_be_published_leaves_nothing(void **state)
{
    (void)state;
    assert_int_equal(mkdir(path_of("taken"), 0777), 0);
    assert_int_equal(file_shared_create(path_of("taken"), 1), STATUS_OK);
    assert_true(file_shared_publish(path_of("taken")) < 0);
    assert_int_equal(entries_in_directory(), 1);
    assert_int_equal(rmdir(path_of("taken")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_file_reads_back_whole_with_a_nul_behind_it, clean),
        cmocka_unit_test_setup(an_empty_file_is_no_error, clean),
        cmocka_unit_test_setup(a_file_above_the_limit_is_refused_with_both_numbers, clean),
        cmocka_unit_test_setup(what_is_no_regular_file_is_refused_with_path_and_cause, clean),
        cmocka_unit_test_setup(a_mapping_shows_the_file_and_outlives_its_name, clean),
        cmocka_unit_test_setup(a_written_file_replaces_the_old_one_and_leaves_nothing_else, clean),
        cmocka_unit_test_setup(until_commit_the_old_file_stands, clean),
        cmocka_unit_test_setup(draining_changes_nothing_that_can_be_seen, clean),
        cmocka_unit_test_setup(draining_what_is_no_file_any_more_fails_by_name, clean),
        cmocka_unit_test_setup(a_discarded_writer_leaves_the_old_file_alone, clean),
        cmocka_unit_test_setup(a_commit_that_fails_leaves_nothing, clean),
        cmocka_unit_test_setup(what_is_printed_is_written_whole_or_not_at_all, clean),
        cmocka_unit_test_setup(several_fill_a_file_and_its_name_comes_last, clean),
        cmocka_unit_test_setup(a_shared_file_of_another_size_or_none_is_refused, clean),
        cmocka_unit_test_setup(a_shared_file_that_cannot_be_published_leaves_nothing, clean),
        cmocka_unit_test_setup(writing_into_a_missing_directory_names_it, clean),
        cmocka_unit_test_setup(directories_are_made_with_their_parents_once, clean),
        cmocka_unit_test_setup(a_file_in_the_way_of_a_directory_is_refused, clean),
    };
    int failed = 0;

    if (mkdtemp(directory) == NULL) {
        return 1;
    }
    failed = cmocka_run_group_tests_name("file", tests, NULL, NULL);
    (void)clean(NULL);
    (void)rmdir(directory);
    return failed;
}

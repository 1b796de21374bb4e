#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "collectives/job_directory.h"

#define PATIENCE_S 20.0

static char place[64]; /* the temporary directory of the test that runs */

static int make_place(void **state)
{
    (void)state;
    (void)snprintf(place, sizeof(place), "/tmp/weir-test-XXXXXX");
    if (mkdtemp(place) == NULL) {
        return -1;
    }
    (void)unsetenv("MASTER_ADDR");
    (void)unsetenv("MASTER_PORT");
    return setenv("TMPDIR", place, 1) == 0 && setenv("WEIR_JOB", "job-1", 1) == 0 ? 0 : -1;
}

/* Every test leaves its place empty. */
static int remove_place(void **state)
{
    (void)state;
    return rmdir(place);
}

static void name_path(char *path, size_t path_bytes, const char *rest)
{
    (void)snprintf(path, path_bytes, "%s/weir-%lu%s", place, (unsigned long)geteuid(), rest);
}

static enum status open_rank(int32_t rank, struct job_directory **directory)
{
    return job_directory_open(rank, NULL, clock_deadline(PATIENCE_S), directory);
}

static void test_rank_0_makes_a_private_directory_and_removes_it(void **state)
{
    struct job_directory *directory = NULL;
    struct stat info;
    char expected[128];
    char file[160];

    (void)state;
    name_path(expected, sizeof(expected), "/job-1");
    assert_int_equal(open_rank(0, &directory), STATUS_OK);
    assert_string_equal(job_directory_path(directory), expected);
    assert_int_equal(stat(expected, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    (void)snprintf(file, sizeof(file), "%s/control", expected);
    int fd = open(file, O_CREAT | O_WRONLY, 0600);

    assert_true(fd >= 0);
    (void)close(fd);
    job_directory_remove(&directory);
    assert_null(directory);
    assert_int_not_equal(stat(expected, &info), 0);
    job_directory_remove(&directory);
}

static void *open_as_rank_1(void *argument)
{
    struct job_directory **directory = argument;

    return open_rank(1, directory) == STATUS_OK ? argument : NULL;
}

static void test_other_ranks_wait_until_rank_0_has_made_it(void **state)
{
    struct job_directory *first = NULL;
    struct job_directory *second = NULL;
    pthread_t thread;
    void *result = NULL;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, open_as_rank_1, &second), 0);
    assert_int_equal(open_rank(0, &first), STATUS_OK);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
    assert_string_equal(job_directory_path(first), job_directory_path(second));
    /* Rank 1 leaves first, and takes nothing away from rank 0. */
    job_directory_remove(&second);
    assert_int_equal(access(job_directory_path(first), F_OK), 0);
    job_directory_remove(&first);
}

static void test_a_rank_whose_rank_0_never_comes_is_told_where_it_waited(void **state)
{
    struct job_directory *directory = NULL;

    (void)state;
    assert_int_equal(job_directory_open(1, NULL, clock_now_ns() + 30 * CLOCK_MS, &directory),
                     STATUS_ERR_TIMEOUT);
    assert_non_null(strstr(status_last()->message, place));
    assert_non_null(strstr(status_last()->message, "WEIR_JOB"));
}

static void test_a_cancel_ends_the_wait(void **state)
{
    struct job_directory *directory = NULL;
    struct cancel cancel = {0};

    (void)state;
    cancel_request(&cancel);
    assert_int_equal(job_directory_open(1, &cancel, CLOCK_NEVER, &directory), STATUS_ERR_CANCELLED);
}

static void test_a_second_job_of_the_same_name_is_refused_with_directory_and_process(void **state)
{
    struct job_directory *first = NULL;
    struct job_directory *second = NULL;
    char process[32];

    (void)state;
    assert_int_equal(open_rank(0, &first), STATUS_OK);
    assert_int_equal(open_rank(0, &second), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, job_directory_path(first)));
    (void)snprintf(process, sizeof(process), "process %ld", (long)getpid());
    assert_non_null(strstr(status_last()->message, process));
    assert_int_equal(access(job_directory_path(first), F_OK), 0);
    job_directory_remove(&first);
}

/* Forks a rank 0 that leaves a file behind and is killed. */
static void leave_a_dead_job(void)
{
    int ready[2];
    char byte = 0;

    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        struct job_directory *directory = NULL;
        char file[160];

        if (open_rank(0, &directory) != STATUS_OK) {
            _exit(1);
        }
        (void)snprintf(file, sizeof(file), "%s/control", job_directory_path(directory));
        if (open(file, O_CREAT | O_WRONLY, 0600) < 0 || write(ready[1], &byte, 1) != 1) {
            _exit(1);
        }
        for (;;) {
            (void)pause();
        }
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void test_what_a_dead_job_left_is_swept_away(void **state)
{
    struct job_directory *directory = NULL;
    char file[160];

    (void)state;
    leave_a_dead_job();
    name_path(file, sizeof(file), "/job-1/control");
    assert_int_equal(access(file, F_OK), 0);
    assert_int_equal(open_rank(0, &directory), STATUS_OK);
    assert_int_not_equal(access(file, F_OK), 0);
    job_directory_remove(&directory);
}

static void test_a_dead_jobs_directory_is_not_taken_for_a_living_one(void **state)
{
    struct job_directory *directory = NULL;

    (void)state;
    leave_a_dead_job();
    assert_int_equal(job_directory_open(1, NULL, clock_now_ns() + 30 * CLOCK_MS, &directory),
                     STATUS_ERR_TIMEOUT);
    assert_int_equal(open_rank(0, &directory), STATUS_OK);
    job_directory_remove(&directory);
}

static void test_the_last_rank_removes_it_where_rank_0_was_killed(void **state)
{
    struct job_directory *survivor = NULL;
    int ready[2];
    char byte = 0;
    char path[128];

    (void)state;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        struct job_directory *directory = NULL;

        if (open_rank(0, &directory) != STATUS_OK || write(ready[1], &byte, 1) != 1) {
            _exit(1);
        }
        for (;;) {
            (void)pause();
        }
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    assert_int_equal(open_rank(1, &survivor), STATUS_OK);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    job_directory_remove(&survivor);
    name_path(path, sizeof(path), "");
    assert_int_not_equal(access(path, F_OK), 0);
}

static void test_a_level_that_others_may_enter_is_refused_by_name(void **state)
{
    struct job_directory *directory = NULL;
    char path[128];

    (void)state;
    name_path(path, sizeof(path), "");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(open_rank(0, &directory), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, path));
    assert_non_null(strstr(status_last()->message, "0755"));
    assert_int_equal(open_rank(1, &directory), STATUS_ERR_REFUSED);
    assert_int_equal(rmdir(path), 0);
}

static void test_a_link_in_its_place_is_refused(void **state)
{
    struct job_directory *directory = NULL;
    char path[128];

    (void)state;
    name_path(path, sizeof(path), "");
    assert_int_equal(symlink(place, path), 0);
    assert_int_equal(open_rank(0, &directory), STATUS_ERR_REFUSED);
    assert_int_equal(unlink(path), 0);
}

static void test_a_path_too_long_is_refused_with_both_that_make_it(void **state)
{
    struct job_directory *directory = NULL;

    (void)state;
    assert_int_equal(setenv("WEIR_JOB", "a-name-of-a-job-of-forty-eight-bytes-not-one-mor", 1), 0);
    (void)strncat(place, "/longer", sizeof(place) - strlen(place) - 1);
    assert_int_equal(setenv("TMPDIR", place, 1), 0);
    place[strlen(place) - strlen("/longer")] = '\0';
    assert_int_equal(open_rank(0, &directory), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "80"));
    assert_non_null(strstr(status_last()->message, "TMPDIR"));
    assert_non_null(strstr(status_last()->message, "WEIR_JOB"));
}

static void test_a_name_that_is_no_file_name_is_refused(void **state)
{
    static const char *const names[] = {"../up", "a/b", ".hidden", "a b", "\xc3\xa4"};
    struct job_directory *directory = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(setenv("WEIR_JOB", names[i], 1), 0);
        assert_int_equal(open_rank(0, &directory), STATUS_ERR_REFUSED);
        assert_non_null(strstr(status_last()->message, "WEIR_JOB"));
    }
}

static void test_a_relative_temporary_directory_is_refused(void **state)
{
    struct job_directory *directory = NULL;

    (void)state;
    assert_int_equal(setenv("TMPDIR", "tmp", 1), 0);
    assert_int_equal(open_rank(0, &directory), STATUS_ERR_REFUSED);
}

static void test_without_a_name_address_and_port_decide(void **state)
{
    struct job_directory *first = NULL;
    struct job_directory *second = NULL;
    struct job_directory *third = NULL;

    (void)state;
    assert_int_equal(unsetenv("WEIR_JOB"), 0);
    assert_int_equal(setenv("MASTER_ADDR", "127.0.0.1", 1), 0);
    assert_int_equal(setenv("MASTER_PORT", "29500", 1), 0);
    assert_int_equal(open_rank(0, &first), STATUS_OK);
    assert_int_equal(open_rank(1, &second), STATUS_OK);
    assert_string_equal(job_directory_path(first), job_directory_path(second));
    assert_int_equal(setenv("MASTER_PORT", "29501", 1), 0);
    assert_int_equal(open_rank(0, &third), STATUS_OK);
    assert_string_not_equal(job_directory_path(first), job_directory_path(third));
    job_directory_remove(&second);
    job_directory_remove(&first);
    job_directory_remove(&third);
}

/* A job that was killed with its launcher has nobody who knows its name. */
static void test_the_next_job_of_any_name_sweeps_the_dead_and_spares_the_living(void **state)
{
    struct job_directory *living = NULL;
    struct job_directory *next = NULL;
    char dead_path[128];
    char living_path[128];
    int ended = 0;
    pid_t child = 0;

    (void)state;
    name_path(dead_path, sizeof(dead_path), "/dead");
    name_path(living_path, sizeof(living_path), "/living");
    child = fork();
    if (child == 0) {
        struct job_directory *dead = NULL;

        (void)setenv("WEIR_JOB", "dead", 1);
        _exit(open_rank(0, &dead) == STATUS_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    assert_int_equal(access(dead_path, F_OK), 0);
    assert_int_equal(setenv("WEIR_JOB", "living", 1), 0);
    assert_int_equal(open_rank(0, &living), STATUS_OK);
    assert_int_not_equal(access(dead_path, F_OK), 0);
    assert_int_equal(setenv("WEIR_JOB", "next", 1), 0);
    assert_int_equal(open_rank(0, &next), STATUS_OK);
    assert_int_equal(access(living_path, F_OK), 0);
    job_directory_remove(&next);
    job_directory_remove(&living);
}

int main(void)
{
#define IN_A_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)
    const struct CMUnitTest tests[] = {
        IN_A_PLACE(test_the_next_job_of_any_name_sweeps_the_dead_and_spares_the_living),
        IN_A_PLACE(test_rank_0_makes_a_private_directory_and_removes_it),
        IN_A_PLACE(test_other_ranks_wait_until_rank_0_has_made_it),
        IN_A_PLACE(test_a_rank_whose_rank_0_never_comes_is_told_where_it_waited),
        IN_A_PLACE(test_a_cancel_ends_the_wait),
        IN_A_PLACE(test_a_second_job_of_the_same_name_is_refused_with_directory_and_process),
        IN_A_PLACE(test_what_a_dead_job_left_is_swept_away),
        IN_A_PLACE(test_a_dead_jobs_directory_is_not_taken_for_a_living_one),
        IN_A_PLACE(test_the_last_rank_removes_it_where_rank_0_was_killed),
        IN_A_PLACE(test_a_level_that_others_may_enter_is_refused_by_name),
        IN_A_PLACE(test_a_link_in_its_place_is_refused),
        IN_A_PLACE(test_a_path_too_long_is_refused_with_both_that_make_it),
        IN_A_PLACE(test_a_name_that_is_no_file_name_is_refused),
        IN_A_PLACE(test_a_relative_temporary_directory_is_refused),
        IN_A_PLACE(test_without_a_name_address_and_port_decide),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

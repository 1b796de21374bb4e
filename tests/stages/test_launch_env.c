/* Who a process is, by the variables of each launcher, and which of them are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/launch_env.h"

/* Every variable of a launcher that the order asks for. */
static int clear_environment(void **state)
{
    static const char *const names[] = {
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "PMI_RANK",
        "OMPI_COMM_WORLD_RANK",
        "LOCAL_WORLD_SIZE",
        "PMI_SIZE",
        "OMPI_COMM_WORLD_SIZE",
        "SLURM_STEP_ID",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_LOCALID",
        "OMPI_COMM_WORLD_LOCAL_RANK",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (unsetenv(names[i]) != 0) {
            return -1;
        }
    }
    return 0;
}

static void set(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

static void assert_is(const char *launcher, int32_t rank, int32_t world, int32_t local_world)
{
    struct launch_env env = {.rank = -1};

    assert_int_equal(launch_env_read(&env), STATUS_OK);
    assert_string_equal(env.launcher, launcher);
    assert_int_equal(env.rank, rank);
    assert_int_equal(env.world, world);
    assert_int_equal(env.local_world, local_world);
}

static void assert_local(int32_t local_rank)
{
    struct launch_env env = {.local_rank = -1};

    assert_int_equal(launch_env_read(&env), STATUS_OK);
    assert_int_equal(env.local_rank, local_rank);
}

static void assert_refused(const char *words)
{
    struct launch_env env = {.rank = 77};

    assert_int_equal(launch_env_read(&env), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, words));
    assert_int_equal(env.rank, 77);
}

static void a_process_alone_is_a_world_of_one(void **state)
{
    (void)state;
    assert_is("none", 0, 1, 1);
}

static void torchrun_says_rank_world_and_how_many_share_the_host(void **state)
{
    (void)state;
    set("RANK", "5");
    set("WORLD_SIZE", "8");
    assert_is("torchrun", 5, 8, 8);
    set("LOCAL_WORLD_SIZE", "4");
    assert_is("torchrun", 5, 8, 4);
}

static void launchers_are_asked_in_the_order_of_the_header(void **state)
{
    (void)state;
    set("SLURM_STEP_ID", "0");
    set("SLURM_PROCID", "3");
    set("SLURM_NTASKS", "4");
    assert_is("Slurm", 3, 4, 4);
    set("PMI_RANK", "1");
    set("PMI_SIZE", "2");
    assert_is("PMI", 1, 2, 2);
    set("OMPI_COMM_WORLD_RANK", "6");
    set("OMPI_COMM_WORLD_SIZE", "7");
    assert_is("Open MPI", 6, 7, 7);
    set("RANK", "0");
    set("WORLD_SIZE", "3");
    assert_is("torchrun", 0, 3, 3);
}

/* A shell inside an allocation has the variables of the job, and is no step of it. */
static void a_slurm_allocation_without_a_step_is_a_process_alone(void **state)
{
    (void)state;
    set("SLURM_PROCID", "0");
    set("SLURM_NTASKS", "16");
    assert_is("none", 0, 1, 1);
}

static void what_is_no_number_is_refused_with_name_and_value(void **state)
{
    static const char *const wrong[] = {
        "one", "1x", "-1", "3000000000", "99999999999999999999", "0x10", "1 ", "+1", " 1",
    };
    char words[64];

    (void)state;
    set("WORLD_SIZE", "8");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        set("RANK", wrong[i]);
        (void)snprintf(words, sizeof(words), "RANK is \"%s\"", wrong[i]);
        assert_refused(words);
    }
}

static void half_a_launcher_is_refused_by_the_name_that_is_missing(void **state)
{
    (void)state;
    set("WORLD_SIZE", "2");
    assert_refused("WORLD_SIZE is \"2\" but RANK is not set");
    assert_int_equal(unsetenv("WORLD_SIZE"), 0);
    set("RANK", "1");
    assert_refused("RANK is \"1\" but WORLD_SIZE is not set");
    /* Another launcher's variables do not make up for it. */
    set("PMI_RANK", "0");
    set("PMI_SIZE", "2");
    assert_refused("RANK is \"1\" but WORLD_SIZE is not set");
}

static void a_rank_outside_its_world_is_refused_with_both(void **state)
{
    (void)state;
    set("OMPI_COMM_WORLD_RANK", "4");
    set("OMPI_COMM_WORLD_SIZE", "4");
    assert_refused("Open MPI: rank 4 of a world of 4");
    set("OMPI_COMM_WORLD_SIZE", "0");
    assert_refused("OMPI_COMM_WORLD_SIZE is \"0\"");
}

static void a_wrong_number_of_local_processes_is_refused(void **state)
{
    (void)state;
    set("RANK", "0");
    set("WORLD_SIZE", "2");
    set("LOCAL_WORLD_SIZE", "0");
    assert_refused("LOCAL_WORLD_SIZE is \"0\"");
}

static void the_place_on_the_host_is_the_launchers_word_or_follows_from_the_rank(void **state)
{
    (void)state;
    assert_local(0);
    set("SLURM_STEP_ID", "0");
    set("SLURM_PROCID", "6");
    set("SLURM_NTASKS", "8");
    set("LOCAL_WORLD_SIZE", "4");
    assert_local(2);
    set("SLURM_LOCALID", "3");
    assert_local(3);
    /* Of another launcher's variables none counts. */
    set("OMPI_COMM_WORLD_LOCAL_RANK", "1");
    assert_local(3);
    set("RANK", "5");
    set("WORLD_SIZE", "8");
    assert_local(1);
    set("LOCAL_RANK", "0");
    assert_local(0);
    set("LOCAL_RANK", "-1");
    assert_refused("LOCAL_RANK is \"-1\"");
}

#define CLEAN(test) cmocka_unit_test_setup_teardown(test, clear_environment, clear_environment)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLEAN(a_process_alone_is_a_world_of_one),
        CLEAN(torchrun_says_rank_world_and_how_many_share_the_host),
        CLEAN(launchers_are_asked_in_the_order_of_the_header),
        CLEAN(a_slurm_allocation_without_a_step_is_a_process_alone),
        CLEAN(what_is_no_number_is_refused_with_name_and_value),
        CLEAN(half_a_launcher_is_refused_by_the_name_that_is_missing),
        CLEAN(a_rank_outside_its_world_is_refused_with_both),
        CLEAN(the_place_on_the_host_is_the_launchers_word_or_follows_from_the_rank),
        CLEAN(a_wrong_number_of_local_processes_is_refused),
    };

    return cmocka_run_group_tests_name("launch_env", tests, NULL, NULL);
}

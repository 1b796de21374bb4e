/* A disk that takes longer than control.stall_after_s for a file, and never for a piece of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "stages/engine.h"
#include "tests/stages/base_run.h"
#include "tests/stages/checkpoint_folder.h"

#define STALL_AFTER_S 1.2

static int forget(void **state)
{
    (void)unsetenv("WEIR_FAULT");
    return checkpoint_folder_remove(state);
}

#ifdef WEIR_FAULTS

/* Two replicas: the first one's file has about everything, which the second one loads too. Of 50 tensors
 * with two moments each it writes at least 150 pieces and reads 50. */
static void train(int steps, bool resumes, const char *fault, struct rig_result *run)
{
    char directory[96];
    const struct base_run base = {
        .dp = 2,
        .steps = steps,
        .more = {directory, "checkpoint.every=1",
                 resumes ? "checkpoint.resume=must" : "checkpoint.resume=never",
                 "optimizer.decay_steps=8", "control.heartbeat_s=0.2",
                 "control.stall_after_s=1.2"}};

    (void)snprintf(directory, sizeof(directory), "checkpoint.dir=%s/c", checkpoint_folder());
    assert_int_equal(setenv("WEIR_FAULT", fault, 1), 0);
    base_try(&base, run);
}

static void assert_went_well(const struct rig_result *run, double seconds)
{
    if (run->status < 0) {
        fail_msg("%s", run->message);
    }
    /* It did take longer than a rank may stand still. */
    assert_true(seconds > 2.0 * STALL_AFTER_S);
}

static void a_slow_save_goes_well(void **state)
{
    static struct rig_result run;
    int64_t begin_ns = clock_now_ns();

    (void)state;
    /* 60 or more pieces of 50 ms. */
    train(1, false, "slow@0:1:piece+90", &run);
    assert_went_well(&run, (double)(clock_now_ns() - begin_ns) * 1e-9);
    rig_release(&run);
}

static void a_slow_load_goes_well(void **state)
{
    static struct rig_result run;
    int64_t begin_ns = 0;

    (void)state;
    train(1, false, "", &run);
    rig_release(&run);
    begin_ns = clock_now_ns();
    /* 51 or more pieces of 50 ms. */
    train(2, true, "slow@1:start:piece+1", &run);
    assert_went_well(&run, (double)(clock_now_ns() - begin_ns) * 1e-9);
    assert_int_equal(run.first, 1);
    rig_release(&run);
}

static void assert_hangs(const struct rig_result *run, const char *rank, const char *place)
{
    assert_true(run->status < 0);
    if (strstr(run->message, rank) == NULL || strstr(run->message, place) == NULL ||
        strstr(run->message, "hangs: no progress for ") == NULL) {
        fail_msg("expected %s to hang at %s: %s", rank, place, run->message);
    }
}

static void a_rank_that_stands_still_in_a_file_is_named_with_its_place(void **state)
{
    static struct rig_result run;

    (void)state;
    train(1, false, "stall@0:1:piece+5", &run);
    assert_hangs(&run, "rank 0",
                 "stage 0, replica 0, saving after step 1, 5 pieces of files moved");
    rig_release(&run);
    train(1, false, "", &run);
    rig_release(&run);
    train(2, true, "stall@1:start:piece+7", &run);
    assert_hangs(&run, "rank 1", "stage 0, replica 1, starting, 7 pieces of files moved");
    rig_release(&run);
}

#else

static void the_fault_switch_is_not_built_in(void **state)
{
    (void)state;
    skip();
}

#endif

#define FOLDER(test) cmocka_unit_test_setup_teardown(test, checkpoint_folder_make, forget)

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef WEIR_FAULTS
        FOLDER(a_slow_save_goes_well),
        FOLDER(a_slow_load_goes_well),
        FOLDER(a_rank_that_stands_still_in_a_file_is_named_with_its_place),
#else
        FOLDER(the_fault_switch_is_not_built_in),
#endif
    };

    return cmocka_run_group_tests_name("slow_disk", tests, base_make, base_remove);
}

/*
 * How whole trainings over NCCL end where it fails or hangs on one rank: on all of them, soon, and by name. Over the fakes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "collectives/cuda/comm_nccl.h"
#include "stages/engine.h"
#include "tests/base/capture.h"
#include "tests/emulated/fake_cuda.h"
#include "tests/emulated/fake_nccl.h"
#include "tests/emulated/nccl_job.h"
#include "tests/stages/base_run.h"

/* Small: what is looked at here is who says what. */
#define SMALL "model.num_layers=2", "model.seq_len=16"

/* A job in which rank 1's operation number `nth` is spoilt ends on all ranks, soon, with `words` among what they say. */
static void check_failure(const struct base_run *job, void (*spoil)(int rank, int nth), int nth,
                          const char *words)
{
    const struct rig_hooks hooks = nccl_job_hooks();
    static struct rig_result run;
    static char said[16384];
    struct capture capture;
    /* Short only where a stall is what is looked for: a busy machine has others. */
    struct base_run on = base_with(job, spoil == fake_nccl_hang ? "control.stall_after_s=5"
                                                                : "control.stall_after_s=60");
    int64_t began_ns = clock_now_ns();

    nccl_job_order(3);
    on.hooks = &hooks;
    spoil(1, nth);
    capture_begin(&capture);
    base_try(&on, &run);
    capture_end(&capture, said, sizeof(said));
    spoil(1, 0);
    assert_true(run.status < 0);
    assert_true(run.message[0] != '\0');
    if (strstr(said, words) == NULL) {
        (void)fprintf(stderr, "%s\n", said);
        fail_msg("\"%s\" is not in what was said", words);
    }
    assert_true(clock_now_ns() - began_ns < 40000 * CLOCK_MS);
    assert_int_equal(fake_nccl_left(), 0);
    rig_release(&run);
}

static const struct base_run replicas = {
    .pp = 2, .dp = 2, .steps = 20, .micro_batch = 2, .more = {SMALL}};

/* What rank 1 of two calls: at the start each of its four lanes once; in the first step it sends the gradient of the
 * tied embedding behind the receives of four activations and the sends of four gradients, or before some of these. */
static const struct base_run pair = {
    .pp = 2, .steps = 20, .micro_batch = 2, .more = {SMALL, "parallel.embedding_sync=data_plane"}};
#define PAIR_TIED 12

static void an_error_of_nccl_on_one_rank_ends_the_job_by_name(void **state)
{
    (void)state;
    check_failure(&replicas, fake_nccl_fail, 60, "rank 1 has failed");
    check_failure(&pair, fake_nccl_fail, PAIR_TIED, "lane E from rank 1 to rank 0");
}

/* Its peer says whom it waits for, and for which message. */
static void a_hang_of_nccl_on_one_rank_ends_the_job_by_name(void **state)
{
    (void)state;
    check_failure(&replicas, fake_nccl_hang, 60, "rank 3 waits for rank 1: message ");
    check_failure(&pair, fake_nccl_hang, PAIR_TIED,
                  "rank 0 waits for rank 1: message 1 of the lane E from rank 1 to rank 0");
}

/* Launches of a rank before the one that hangs. */
#define HUNG_KERNEL 500

static bool is_over(const void *context)
{
    return cancel_requested(context);
}

/* A kernel of rank 1, in the middle of a step, does not end before the job does. */
static void hang_second(void *context, struct engine_options *options)
{
    (void)context;
    options->plane = ENGINE_PLANE_NCCL;
    options->open_nccl = comm_nccl_open;
    if (options->rank == 1) {
        fake_cuda_hang_launch(HUNG_KERNEL, is_over, options->cancel);
    }
}

/* Every main thread waits for its own device then, and every device but one for another rank. */
static void a_device_that_hangs_is_named_whoever_waits_for_it(void **state)
{
    static const struct base_run layouts[] = {
        {.pp = 2, .dp = 2, .steps = 20, .micro_batch = 2, .more = {SMALL}},
        {.pp = 2, .tp = 2, .steps = 20, .micro_batch = 2, .more = {SMALL}},
    };
    static struct rig_result run;
    static char said[16384];

    (void)state;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        struct rig_hooks hooks = nccl_job_hooks();
        struct base_run on = base_with(&layouts[i], "control.stall_after_s=3");
        struct capture capture;

        hooks.on_open = hang_second;
        on.hooks = &hooks;
        nccl_job_order(3 + i);
        capture_begin(&capture);
        base_try(&on, &run);
        capture_end(&capture, said, sizeof(said));
        assert_true(run.status < 0);
        if (strstr(said, "rank 1 (") == NULL || strstr(said, ") hangs: no progress for") == NULL ||
            strstr(said, ", its device inside action ") == NULL) {
            (void)fprintf(stderr, "%s\n", said);
            fail_msg("rank 1's device is not said to hang");
        }
        rig_release(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_of_nccl_on_one_rank_ends_the_job_by_name),
        cmocka_unit_test(a_hang_of_nccl_on_one_rank_ends_the_job_by_name),
        cmocka_unit_test(a_device_that_hangs_is_named_whoever_waits_for_it),
    };

    return cmocka_run_group_tests_name("engine_nccl_ends", tests, base_make, base_remove);
}

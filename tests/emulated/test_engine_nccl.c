/*
 * Whole trainings over NCCL, between ranks that are threads with a GPU each, over the fakes of both: the numbers, the
 * order of streams, and how a job ends when the plane fails on one rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "collectives/cuda/comm_nccl.h"
#include "stages/engine.h"
#include "tensor/cuda/device_cuda.h"
#include "tests/base/capture.h"
#include "tests/emulated/fake_cuda.h"
#include "tests/emulated/fake_nccl.h"
#include "tests/emulated/gpu_order.h"
#include "tests/stages/base_run.h"
#include "tests/stages/oracle.h"

/* Of the job that runs: read by its ranks. */
static uint64_t order_seed;

static void begin_rank(void *context)
{
    (void)context;
    gpu_begin(order_seed);
    fake_cuda_share();
}

static void over_nccl(void *context, struct engine_options *options)
{
    (void)context;
    options->plane = ENGINE_PLANE_NCCL;
    options->open_nccl = comm_nccl_open;
}

static struct rig_hooks nccl_hooks(void)
{
    return (struct rig_hooks){
        .backend = device_cuda(), .on_begin = begin_rank, .on_open = over_nccl};
}

static struct rig_hooks staged_hooks(void)
{
    return (struct rig_hooks){.backend = device_cuda(), .on_begin = begin_rank};
}

static void train(const struct base_run *base, struct rig_hooks hooks, uint64_t seed,
                  struct rig_result *run)
{
    struct base_run on = *base;

    order_seed = seed;
    on.hooks = &hooks;
    base_train(&on, run);
    assert_int_equal(fake_nccl_left(), 0);
}

static void follow(const struct oracle *oracle, const char *type, int pp, int tp, int dp)
{
    const struct rig_hooks hooks = nccl_hooks();
    static struct rig_result run;
    char text[4][48];
    const char *overrides[] = {
        text[0], text[1], text[2], text[3], "train.micro_batch_size=4", "train.steps=3"};
    char what[96];

    (void)snprintf(text[0], sizeof(text[0]), "precision.dtype=%s", type);
    (void)snprintf(text[1], sizeof(text[1]), "parallel.pp=%d", pp);
    (void)snprintf(text[2], sizeof(text[2]), "parallel.tp=%d", tp);
    (void)snprintf(text[3], sizeof(text[3]), "parallel.dp=%d", dp);
    (void)snprintf(what, sizeof(what), "%s over NCCL, pp %d, tp %d, dp %d", type, pp, tp, dp);
    order_seed = 11;
    rig_run_watched(oracle->yaml, overrides, 6, &hooks, &run);
    if (run.status < 0) {
        fail_msg("%s: %s", what, run.message);
    }
    assert_int_equal(run.ranks_disagree + run.copies_disagree + run.holes, 0);
    if (strcmp(type, "fp32") == 0) {
        oracle_check(oracle, &run, what);
    } else {
        oracle_check_losses(oracle, &run, 2e-4, 2e-2, what);
    }
    rig_release(&run);
}

static void gpus_over_nccl_follow_the_oracles(void **state)
{
    static const char *const types[] = {"fp32", "bf16"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        follow(&oracle_plain, types[i], 2, 1, 1);
        follow(&oracle_masked, types[i], 1, 2, 1);
        follow(&oracle_plain, types[i], 2, 2, 2);
    }
}

/* The fake sums in the order of shared memory, so that nothing but a fault tells the planes apart; whatever the order of
 * streams. */
static void every_order_has_the_bits_of_the_plane_through_the_host(void **state)
{
    static const struct base_run jobs[] = {
        {.pp = 2, .steps = 2, .micro_batch = 2},
        {.pp = 2, .virtual_stages = 2, .steps = 2, .micro_batch = 4},
        {.pp = 2, .dp = 2, .steps = 2, .micro_batch = 2, .more = {"parallel.zero_stage=3"}},
        {.tp = 2, .steps = 2, .micro_batch = 4, .more = {"parallel.sequence_parallel=true"}},
    };
    static struct rig_result staged;
    static struct rig_result run;

    (void)state;
    for (size_t job = 0; job < sizeof(jobs) / sizeof(jobs[0]); job++) {
        train(&jobs[job], staged_hooks(), 1, &staged);
        for (uint64_t seed = 1; seed <= (job == 0 ? 5 : 2); seed++) {
            train(&jobs[job], nccl_hooks(), seed, &run);
            base_assert_same(&jobs[job], &run, &staged);
            rig_release(&run);
        }
        rig_release(&staged);
    }
}

/* Without the waits of streams for each other, messages leave before they are made, and under some order that shows. */
static void a_forgotten_wait_of_a_stream_is_caught(void **state)
{
    static const struct base_run job = {.pp = 2, .steps = 1, .micro_batch = 2};
    static struct rig_result right;
    static struct rig_result run;
    int caught = 0;

    (void)state;
    train(&job, staged_hooks(), 1, &right);
    for (uint64_t seed = 1; seed <= 5 && caught == 0; seed++) {
        const struct rig_hooks hooks = nccl_hooks();
        struct base_run on = job;
        char text[256];

        order_seed = seed;
        on.hooks = &hooks;
        fake_cuda_forget_waits(1);
        base_try(&on, &run);
        fake_cuda_forget_waits(0);
        caught += run.status < 0 || !rig_same(&right, &run, text, sizeof(text));
        rig_release(&run);
    }
    rig_release(&right);
    assert_true(caught > 0);
}

/* The job ends on all ranks, soon, with `words` among what they say. */
static void check_failure(void (*spoil)(int rank, int nth), const char *words)
{
    static const struct base_run job = {
        .pp = 2, .dp = 2, .steps = 20, .micro_batch = 2, .more = {"control.stall_after_s=5"}};
    const struct rig_hooks hooks = nccl_hooks();
    static struct rig_result run;
    static char said[16384];
    struct capture capture;
    struct base_run on = job;
    int64_t began_ns = clock_now_ns();

    order_seed = 3;
    on.hooks = &hooks;
    spoil(1, 60);
    capture_begin(&capture);
    base_try(&on, &run);
    capture_end(&capture, said, sizeof(said));
    spoil(1, 0);
    assert_true(run.status < 0);
    assert_true(run.message[0] != '\0');
    if (strstr(said, words) == NULL) {
        print_error("%s\n", said);
        fail_msg("\"%s\" is not in what was said", words);
    }
    assert_true(clock_now_ns() - began_ns < 40000 * CLOCK_MS);
    assert_int_equal(fake_nccl_left(), 0);
    rig_release(&run);
}

static void an_error_of_nccl_on_one_rank_ends_the_job_by_name(void **state)
{
    (void)state;
    check_failure(fake_nccl_fail, "rank 1 has failed");
}

/* Its peer says whom it waits for, and for which message. */
static void a_hang_of_nccl_on_one_rank_ends_the_job_by_name(void **state)
{
    (void)state;
    check_failure(fake_nccl_hang, "rank 3 waits for rank 1: message ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_over_nccl_follow_the_oracles),
        cmocka_unit_test(every_order_has_the_bits_of_the_plane_through_the_host),
        cmocka_unit_test(a_forgotten_wait_of_a_stream_is_caught),
        cmocka_unit_test(an_error_of_nccl_on_one_rank_ends_the_job_by_name),
        cmocka_unit_test(a_hang_of_nccl_on_one_rank_ends_the_job_by_name),
    };

    return cmocka_run_group_tests_name("engine_nccl", tests, base_make, base_remove);
}

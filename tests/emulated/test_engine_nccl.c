/*
 * Whole trainings over NCCL, between ranks that are threads with a GPU each, over the fakes of both: the numbers, and the
 * order of streams.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tests/emulated/nccl_job.h"
#include "tests/stages/base_run.h"
#include "tests/stages/oracle.h"

static void follow(const struct oracle *oracle, const char *type, int pp, int tp, int dp)
{
    const struct rig_hooks hooks = nccl_job_hooks();
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
    nccl_job_order(11);
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
        nccl_job_train(&jobs[job], nccl_job_staged_hooks(), 1, &staged);
        for (uint64_t seed = 1; seed <= (job == 0 ? 5 : 2); seed++) {
            nccl_job_train(&jobs[job], nccl_job_hooks(), seed, &run);
            base_assert_same(&jobs[job], &run, &staged);
            rig_release(&run);
        }
        rig_release(&staged);
    }
}

/* Without the waits of streams for each other, messages leave before they are made, and under some order that shows; so
 * does the tied embedding, which alone has a stream of its own where messages go through the host. */
static void a_forgotten_wait_of_a_stream_is_caught(void **state)
{
    static const struct base_run job = {.pp = 2, .steps = 2, .micro_batch = 2};

    (void)state;
    nccl_job_catch_forgotten_waits(&job, nccl_job_hooks());
    nccl_job_catch_forgotten_waits(&job, nccl_job_staged_hooks());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_over_nccl_follow_the_oracles),
        cmocka_unit_test(every_order_has_the_bits_of_the_plane_through_the_host),
        cmocka_unit_test(a_forgotten_wait_of_a_stream_is_caught),
    };

    return cmocka_run_group_tests_name("engine_nccl", tests, base_make, base_remove);
}

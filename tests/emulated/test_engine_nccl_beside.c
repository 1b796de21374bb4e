/*
 * What goes on beside compute where ranks talk by NCCL, in whole trainings over the fakes: the tied embedding on lanes of
 * its own, sums of gradients on a stream of their own. The numbers are those of the same work done in its turn.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "scheduler/prove.h"
#include "stages/engine.h"
#include "stages/engine_start.h"
#include "tensor/cuda/device_cuda.h"
#include "tests/emulated/nccl_job.h"
#include "tests/stages/base_run.h"

/* Small: what is looked at here is who waits for whom. */
#define SMALL "model.num_layers=2", "model.seq_len=16"

/* The lanes of the tied embedding, beside those of a pipeline whose ring closes at the same two ranks; slices of it, of
 * which the last is shorter; a held-out set between updates; steps that overflow, whose gradient goes and whose weights stay. Through the host too. */
static void the_data_plane_carries_the_tied_embedding_with_the_same_bits(void **state)
{
    static const struct base_run jobs[] = {
        {.pp = 2, .virtual_stages = 2, .steps = 3, .micro_batch = 4, .more = {SMALL}},
        {.pp = 3,
         .dp = 2,
         .steps = 2,
         .micro_batch = 4,
         .more = {SMALL, "model.hidden_size=36", "model.vocab_size=257"}},
        {.pp = 2,
         .tp = 2,
         .steps = 2,
         .micro_batch = 4,
         .more = {SMALL, "data.split=[0.7, 0.3, 0]", "train.eval_every=1"}},
        {.pp = 2,
         .steps = 4,
         .micro_batch = 4,
         .more = {SMALL, "precision.dtype=fp16", "precision.initial_scale=1.0e12",
                  "precision.hysteresis=1"}},
    };
    static struct rig_result zmq;
    static struct rig_result run;

    (void)state;
    for (size_t job = 0; job < sizeof(jobs) / sizeof(jobs[0]); job++) {
        const struct base_run over = base_with(&jobs[job], "parallel.embedding_sync=data_plane");

        nccl_job_train(&jobs[job], nccl_job_staged_hooks(), 1, &zmq);
        for (uint64_t seed = 1; seed <= (job == 0 ? 2 : 1); seed++) {
            nccl_job_train(&over, seed == 2 ? nccl_job_staged_hooks() : nccl_job_hooks(),
                           seed + job, &run);
            base_assert_same(&over, &run, &zmq);
            base_assert_copy(&run);
            rig_release(&run);
        }
        rig_release(&zmq);
    }
}

/* Of a table of `rows` rows of 4 KiB, cut into four. */
static bool goes_over_the_plane(const struct device_backend *backend, bool nccl, size_t rows)
{
    const struct plan_shape shape = {.schedule = SCHEDULE_1F1B,
                                     .ranks = 2,
                                     .microbatches = 2,
                                     .virtual_stages = 1,
                                     .lane_depth = 2,
                                     .embedding_sync = true};
    const struct config config = {.parallel = {.embedding_sync = EMBEDDING_SYNC_AUTO}};
    struct engine engine = {.config = &config,
                            .backend = backend,
                            .nccl = nccl,
                            .grid = {.shape = {.pp = 2, .tp = 2, .dp = 2}},
                            .shape = {.V = rows, .C = 1024, .shards = 2}};
    bool over = false;

    assert_int_equal(plan_prove(&shape, NULL, &engine.plan), STATUS_OK);
    over = engine_ties_over_plane(&engine);
    plan_destroy(&engine.plan);
    return over;
}

static void auto_is_the_data_plane_beyond_64_mib_a_slice(void **state)
{
    (void)state;
    assert_false(goes_over_the_plane(device_cuda(), true, (size_t)4 * 16384));
    assert_true(goes_over_the_plane(device_cuda(), true, (size_t)4 * 16384 + 1));
    assert_true(goes_over_the_plane(device_cpu(), false, (size_t)4 * 16384 + 1));
    assert_false(goes_over_the_plane(device_cpu(), false, (size_t)4 * 16384));
    assert_false(
        goes_over_the_plane(device_cuda(), false, (size_t)8 * 16384)); /* through the host anyway */
}

/* Layers that were given to a stream of their own, by all ranks in all steps. */
static void count_layers(void *context, const struct engine *engine)
{
    int64_t *layers = context;

    *layers += engine->buckets.queued ? engine->buckets.all_given : 0;
}

/* 36 columns: no slice is as large as the next. */
#define ODD "model.hidden_size=36", "model.vocab_size=257"

/* In place, slice by slice, and in buckets, which take a layer every other time. */
static void sums_beside_the_backward_have_the_bits_of_sums_behind_it(void **state)
{
    static const struct base_run jobs[] = {
        {.dp = 2, .steps = 2, .micro_batch = 2, .more = {SMALL, ODD, "parallel.zero_stage=1"}},
        {.dp = 2,
         .steps = 2,
         .micro_batch = 4,
         .more = {ODD, "model.seq_len=16", "model.num_layers=6", "parallel.zero_stage=2",
                  "precision.dtype=bf16"}},
        {.pp = 2, .dp = 2, .steps = 2, .micro_batch = 2, .more = {SMALL, "parallel.zero_stage=3"}},
    };
    static struct rig_result behind;
    static struct rig_result run;

    (void)state;
    for (size_t job = 0; job < sizeof(jobs) / sizeof(jobs[0]); job++) {
        const struct base_run off = base_with(&jobs[job], "parallel.overlap_grad_reduce=false");
        const struct base_run on = base_with(&jobs[job], "parallel.overlap_grad_reduce=true");
        struct rig_hooks hooks = nccl_job_hooks();
        int64_t layers = 0;

        hooks.context = &layers;
        hooks.on_step = count_layers;
        nccl_job_train(&off, hooks, 1, &behind);
        assert_int_equal(layers, 0);
        nccl_job_train(&on, hooks, 1 + job, &run);
        assert_true(layers > 0);
        base_assert_same(&on, &run, &behind);
        rig_release(&behind);
        rig_release(&run);
    }
}

/* Nothing else has a stream beside compute here. */
static void a_sum_that_forgets_the_backward_is_caught(void **state)
{
    static const struct base_run job = {
        .dp = 2, .steps = 1, .micro_batch = 2, .more = {SMALL, "parallel.zero_stage=1"}};

    (void)state;
    nccl_job_catch_forgotten_waits(&job, nccl_job_hooks());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_data_plane_carries_the_tied_embedding_with_the_same_bits),
        cmocka_unit_test(auto_is_the_data_plane_beyond_64_mib_a_slice),
        cmocka_unit_test(sums_beside_the_backward_have_the_bits_of_sums_behind_it),
        cmocka_unit_test(a_sum_that_forgets_the_backward_is_caught),
    };

    return cmocka_run_group_tests_name("engine_nccl_beside", tests, base_make, base_remove);
}

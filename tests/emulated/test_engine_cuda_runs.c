/*
 * Runs on the GPU as a device that do more than train: they stop and go on, evaluate, skip steps, hand messages
 * through stages without layers, and are close to the same runs on the CPU (gpu_run.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "stages/engine.h"
#include "tests/emulated/fake_nvtx.h"
#include "tests/emulated/gpu_run.h"
#include "tests/stages/base_run.h"
#include "tests/stages/checkpoint_folder.h"
#include "tests/stages/oracle.h"

static uint64_t order = 7;

static void train(const struct base_run *base, struct rig_result *run)
{
    gpu_run_train(base, order, run);
}

static void a_run_that_goes_on_has_the_bits_of_an_unbroken_one(void **state)
{
    static const struct base_run jobs[] = {
        {.pp = 2, .micro_batch = 4, .more = {"precision.dtype=fp16", "optimizer.decay_steps=4"}},
        {.dp = 2, .micro_batch = 4, .more = {"parallel.zero_stage=3", "optimizer.decay_steps=4"}},
    };
    static struct rig_result unbroken;
    static struct rig_result part;
    static struct rig_result run;
    char folder[96];
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        struct base_run base = jobs[i];

        assert_int_equal(checkpoint_folder_make(NULL), 0);
        (void)snprintf(folder, sizeof(folder), "checkpoint.dir=%s/c", checkpoint_folder());
        base.steps = 4;
        train(&base, &unbroken);
        base = base_with(&base, folder);
        base = base_with(&base, "checkpoint.every=2");
        base.steps = 2;
        train(&base, &part);
        base = base_with(&base, "checkpoint.resume=must");
        base.steps = 4;
        train(&base, &run);
        assert_int_equal(run.first, 2);
        if (!rig_same_end(&run, &unbroken, text, sizeof(text))) {
            fail_msg("resumed from step 2: %s", text);
        }
        rig_release(&unbroken);
        rig_release(&part);
        rig_release(&run);
        assert_int_equal(checkpoint_folder_remove(NULL), 0);
    }
}

/* Nothing that is held out changes the training, and every pipeline finds the same loss of it. */
static void evaluations_between_steps_have_the_bits_of_one_stage(void **state)
{
    const struct base_run plain = {
        .steps = 2, .micro_batch = 4, .more = {"data.split=[0.7, 0.3, 0]"}};
    const struct base_run one = base_with(&plain, "train.eval_every=1");
    struct base_run two = one;
    static struct rig_result trained;
    static struct rig_result alone;
    static struct rig_result run;

    (void)state;
    two.pp = 2;
    train(&plain, &trained);
    train(&one, &alone);
    train(&two, &run);
    base_assert_same(&one, &alone, &trained);
    base_assert_same(&two, &run, &alone);
    for (int step = 0; step < 2; step++) {
        assert_true(alone.valid_loss[step] > 1.0);
        assert_int_equal(rig_bits(run.valid_loss[step]), rig_bits(alone.valid_loss[step]));
    }
    rig_release(&trained);
    rig_release(&alone);
    rig_release(&run);
}

/* Kinds of runs that take other ways through the engine; each is what the CPU makes of it, but for rounding. */
static void runs_of_all_kinds_are_close_to_the_cpus(void **state)
{
    static const struct base_run jobs[] = {
        {.pp = 4, .steps = 2, .micro_batch = 4, .more = {"parallel.layers_per_stage=[0, 2, 2, 0]"}},
        {.pp = 2, .steps = 2, .micro_batch = 4, .more = {"model.tied_embeddings=false"}},
        {.tp = 2, .steps = 2, .micro_batch = 4, .more = {"parallel.sequence_parallel=true"}},
        {.steps = 2,
         .micro_batch = 4,
         .more = {"optimizer.name=sgd", "train.log_num_zeros=true", "train.log_params_norm=true"}},
        {.dp = 2, .steps = 2, .micro_batch = 4, .more = {"parallel.zero_stage=2"}},
        {.tp = 2, .dp = 2, .steps = 2, .micro_batch = 4, .more = {"parallel.zero_stage=3"}},
    };
    static struct rig_result gpu;
    static struct rig_result cpu;

    (void)state;
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        train(&jobs[i], &gpu);
        base_train(&jobs[i], &cpu);
        base_assert_close(&jobs[i], &gpu, &cpu);
        rig_release(&gpu);
        rig_release(&cpu);
    }
}

/* A scale under which gradients overflow: the same steps are skipped as on the CPU, on all ranks. */
static void steps_that_overflow_are_skipped(void **state)
{
    const struct base_run base = {.pp = 2,
                                  .steps = 4,
                                  .micro_batch = 4,
                                  .more = {"precision.dtype=fp16", "precision.initial_scale=1.0e12",
                                           "precision.hysteresis=1"}};
    static struct rig_result gpu;
    static struct rig_result cpu;

    (void)state;
    train(&base, &gpu);
    base_train(&base, &cpu);
    assert_int_equal(cpu.skipped[0], 1);
    for (int step = 0; step < 4; step++) {
        assert_int_equal(gpu.skipped[step], cpu.skipped[step]);
        assert_true(gpu.scale[step] == cpu.scale[step]);
    }
    rig_release(&gpu);
    rig_release(&cpu);
}

/* With TF32 a product of fp32 has other bits, and about the same loss; a run on CPUs has no such products. */
static void tf32_is_for_runs_that_ask_for_it(void **state)
{
    static const struct base_run exact = {.steps = 2, .micro_batch = 4};
    const struct base_run rounded = base_with(&exact, "precision.tf32=true");
    static struct rig_result run;
    static struct rig_result other;

    (void)state;
    train(&exact, &run);
    train(&rounded, &other);
    for (int step = 0; step < 2; step++) {
        const double apart = oracle_relative(other.loss[step], run.loss[step]);

        assert_true(apart > 0.0 && apart < 1e-3);
    }
    rig_release(&run);
    rig_release(&other);
    base_try(&rounded, &run);
    assert_int_equal(run.status, STATUS_ERR_REFUSED);
    assert_non_null(strstr(run.message, "precision.tf32: true: CPUs"));
    rig_release(&run);
}

static void what_a_gpu_is_not_made_for_is_refused_by_its_key(void **state)
{
    static const struct {
        struct base_run base;
        const char *words;
    } jobs[] = {
        {{.steps = 1, .more = {"model.hidden_size=512", "model.num_heads=1"}},
         "model.num_heads: 1: heads of 512, on a GPU they have at most 256"},
        {{.schedule = "seq1f1b", .steps = 1, .more = {"parallel.sequence_slices=2"}},
         "parallel.sequence_slices: 2: on a GPU sequences are whole"},
    };
    const struct rig_hooks hooks = gpu_run_hooks(&order);
    static struct rig_result run;

    (void)state;
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        struct base_run on = jobs[i].base;

        on.hooks = &hooks;
        base_try(&on, &run);
        assert_int_equal(run.status, STATUS_ERR_REFUSED);
        assert_non_null(strstr(run.message, jobs[i].words));
        rig_release(&run);
    }
}

#define RANGES_BYTES 1024

static char ranges[2][RANGES_BYTES]; /* by rank */

static void write_ranges(void *context, struct engine_options *options)
{
    (void)context;
    fake_nvtx_write_to(ranges[options->rank], RANGES_BYTES);
}

/* Each action of a line is one range, with its name in plans; without the key there is none, and a run on CPUs is refused. */
static void actions_are_ranges_of_a_profiler_where_asked_for(void **state)
{
    static const struct base_run quiet = {.pp = 2, .steps = 1, .micro_batch = 4};
    struct rig_hooks hooks = gpu_run_hooks(&order);
    struct base_run loud = base_with(&quiet, "trace.nvtx=true");
    static struct rig_result run;
    const size_t before = fake_nvtx_begun();

    (void)state;
    train(&quiet, &run);
    rig_release(&run);
    assert_int_equal(fake_nvtx_begun(), before);
    base_try(&loud, &run);
    assert_int_equal(run.status, STATUS_ERR_REFUSED);
    assert_non_null(strstr(run.message, "trace.nvtx: true"));
    rig_release(&run);
    hooks.on_open = write_ranges;
    loud.hooks = &hooks;
    base_train(&loud, &run);
    rig_release(&run);
    assert_int_equal(fake_nvtx_open(), 0);
    /* As `weir plan --pp 2 --num-microbatches 2 --schedule 1f1b` has them. */
    assert_string_equal(ranges[0],
                        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,SYNC,STEP,");
    assert_string_equal(ranges[1], "1RECV_F0,1F0,1I0,1SEND_B0,1W0,1RECV_F1,1F1,SYNC,1I1,1SEND_B1,"
                                   "1W1,STEP,");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_goes_on_has_the_bits_of_an_unbroken_one),
        cmocka_unit_test(evaluations_between_steps_have_the_bits_of_one_stage),
        cmocka_unit_test(runs_of_all_kinds_are_close_to_the_cpus),
        cmocka_unit_test(steps_that_overflow_are_skipped),
        cmocka_unit_test(actions_are_ranges_of_a_profiler_where_asked_for),
        cmocka_unit_test(tf32_is_for_runs_that_ask_for_it),
        cmocka_unit_test(what_a_gpu_is_not_made_for_is_refused_by_its_key),
    };

    return cmocka_run_group_tests_name("engine_cuda_runs", tests, base_make, base_remove);
}

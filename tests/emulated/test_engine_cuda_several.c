/*
 * Trainings on several GPUs (gpu_run.h) beside independent trajectories, and dropout beside the CPU's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/emulated/gpu_oracle.h"
#include "tests/emulated/gpu_run.h"

static void several_gpus_follow_the_oracles(void **state)
{
    static const struct gpu_layout layouts[] = {
        {2, 1, 1, 4, 3}, {1, 2, 1, 4, 3}, {1, 1, 2, 4, 3}, {2, 2, 2, 4, 3}};
    static const enum dtype types[] = {DTYPE_FP32, DTYPE_BF16};

    (void)state;
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
            gpu_oracle_follow(i % 2 == 0 ? &oracle_plain : &oracle_masked, types[t], &layouts[i],
                              2);
        }
    }
}

/* The masks of dropout are the CPU's, to the bit, so that the training is close to the CPU's; another seed's is not. */
static void dropout_is_that_of_the_cpu(void **state)
{
    const struct base_run dropped = {.steps = 3, .micro_batch = 4, .more = {"model.dropout=0.1"}};
    const struct base_run other = base_with(&dropped, "train.seed=4321");
    static struct rig_result gpu;
    static struct rig_result cpu;

    (void)state;
    gpu_run_train(&dropped, 5, &gpu);
    base_train(&dropped, &cpu);
    base_assert_close(&dropped, &gpu, &cpu);
    rig_release(&cpu);
    base_train(&other, &cpu);
    assert_true(oracle_relative(gpu.loss[0], cpu.loss[0]) > 1e-4);
    rig_release(&cpu);
    rig_release(&gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_gpus_follow_the_oracles),
        cmocka_unit_test(dropout_is_that_of_the_cpu),
    };

    return cmocka_run_group_tests_name("engine_cuda_several", tests, base_make, base_remove);
}

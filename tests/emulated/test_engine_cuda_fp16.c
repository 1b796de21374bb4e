/*
 * Whole trainings on one GPU (gpu_run.h) beside independent trajectories, to their end, in fp16.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/emulated/gpu_oracle.h"

static const struct gpu_layout alone = {1, 1, 1, 8, 0};

static void one_gpu_follows_the_oracles_in_fp16(void **state)
{
    (void)state;
    gpu_oracle_follow(&oracle_plain, DTYPE_FP16, &alone, 1);
    gpu_oracle_follow(&oracle_masked, DTYPE_FP16, &alone, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_gpu_follows_the_oracles_in_fp16),
    };

    return cmocka_run_group_tests_name("engine_cuda_fp16", tests, NULL, NULL);
}

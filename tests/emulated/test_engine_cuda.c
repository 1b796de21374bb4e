/*
 * Whole trainings on one GPU (gpu_run.h) beside independent trajectories, to their end, in fp32 and bf16. The same program over the real runtime
 * is gpu.test_engine (tests/on_gpu), and likewise its neighbours: _fp16, _several, _orders, _layouts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/emulated/gpu_oracle.h"

static const struct gpu_layout alone = {1, 1, 1, 8, 0};

static void one_gpu_follows_the_oracles_in_fp32(void **state)
{
    (void)state;
    gpu_oracle_follow(&oracle_plain, DTYPE_FP32, &alone, 1);
    gpu_oracle_follow(&oracle_masked, DTYPE_FP32, &alone, 1);
}

static void one_gpu_follows_the_oracles_in_bf16(void **state)
{
    (void)state;
    gpu_oracle_follow(&oracle_plain, DTYPE_BF16, &alone, 1);
    gpu_oracle_follow(&oracle_masked, DTYPE_BF16, &alone, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_gpu_follows_the_oracles_in_fp32),
        cmocka_unit_test(one_gpu_follows_the_oracles_in_bf16),
    };

    return cmocka_run_group_tests_name("engine_cuda", tests, NULL, NULL);
}

/*
 * Trainings on GPUs (gpu_run.h) have the same bits in every order of streams and kernels.
 *
 * `test_engine_cuda_orders --seeds N` compares N orders in place of a few.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulated/gpu_run.h"

#define SEEDS       5
#define ORDERS_MOST 1000

static int orders = SEEDS;

/* Whatever order the streams run in, and the threads of a kernel. */
static void every_order_gives_the_same_bits(void **state)
{
    static const struct base_run jobs[] = {
        {.steps = 2, .micro_batch = 4},
        {.pp = 2, .steps = 2, .micro_batch = 4, .more = {"precision.dtype=bf16"}},
    };
    static struct rig_result first;
    static struct rig_result run;

    (void)state;
    for (size_t job = 0; job < sizeof(jobs) / sizeof(jobs[0]); job++) {
        gpu_run_train(&jobs[job], 1, &first);
        for (int seed = 2; seed <= orders; seed++) {
            gpu_run_train(&jobs[job], (uint64_t)seed, &run);
            base_assert_same(&jobs[job], &run, &first);
            rig_release(&run);
        }
        rig_release(&first);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_gives_the_same_bits),
    };

    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) {
        orders = atoi(argv[2]);
    }
    if (orders < 2 || orders > ORDERS_MOST) {
        (void)fprintf(stderr, "test_engine_cuda_orders: --seeds N, of 2 to %d\n", ORDERS_MOST);
        return 1;
    }
    return cmocka_run_group_tests_name("engine_cuda_orders", tests, base_make, base_remove);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "philox_loops.h"
#include "tensor/kernels_cpu.h"
#include "tensor/rng.h"

enum {
    MOST = 400
};

typedef void (*loop_fn)(uint16_t *numbers, struct rng_mask mask, uint64_t first, size_t count);

static const uint64_t keys[] = {0, UINT64_MAX, UINT64_C(0x0123456789ABCDEF),
                                UINT64_C(0x00000000FFFFFFFF), UINT64_C(0x80000000)};

/* Counters are eighths of these: a carry into their upper half, and the last of all. */
static const uint64_t firsts[] = {
    0, 1, 7, 8, 13, 64, (UINT64_C(1) << 35) - 100, (UINT64_C(1) << 50) + 3, UINT64_MAX - MOST};

static void check_range(loop_fn loop, struct rng_mask mask, uint64_t first, size_t count)
{
    uint16_t numbers[MOST + 1];

    memset(numbers, 0xA5, sizeof(numbers));
    loop(numbers, mask, first, count);
    for (size_t i = 0; i < count; i++) {
        if (numbers[i] != rng_mask_number(mask, first + i)) {
            fail_msg("key %llx, %zu of %zu from %llu: expected %u, found %u",
                     (unsigned long long)mask.key, i, count, (unsigned long long)first,
                     rng_mask_number(mask, first + i), numbers[i]);
        }
    }
    assert_int_equal(numbers[count], 0xA5A5);
}

static void check_loop(loop_fn loop)
{
    const size_t counts[] = {0, 1, 3, 8, 31, 32, 33, 63, 64, 65, 71, 128, 250, MOST};

    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
        for (size_t f = 0; f < sizeof(firsts) / sizeof(firsts[0]); f++) {
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
                check_range(loop, (struct rng_mask){keys[k]}, firsts[f], counts[c]);
            }
        }
    }
}

static void many_numbers_at_once_are_those_one_by_one(void **state)
{
    (void)state;
    check_loop(philox_loop_base);
#ifdef WEIR_KERNELS_V3
    if (kernels_cpu_find("cpu-v3") != NULL) {
        check_loop(philox_loop_v3);
    }
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_numbers_at_once_are_those_one_by_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

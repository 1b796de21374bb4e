#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "math_loops.h"
#include "tensor/kernels_cpu.h"

enum {
    BATCH = 1024
};

/* The loops of each variant of this build that the processor runs. */
static const struct math_loops *loops_of(int variant)
{
#ifdef WEIR_KERNELS_V3
    if (variant == 1) {
        return kernels_cpu_find("cpu-v3") != NULL ? &math_loops_v3 : NULL;
    }
#endif
    return variant == 0 ? &math_loops_base : NULL;
}

static float from_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint32_t to_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* |got - want| in units of the last place of a float near `want`; 1e9 where one of them is
 * special and the other is not the same. */
static double error_ulps(float got, double want)
{
    int exponent = 0;

    if (isnan(want) || isnan(got)) {
        return isnan(want) && isnan(got) ? 0.0 : 1e9;
    }
    if (isinf((float)want) || isinf(got)) {
        return (float)want == got ? 0.0 : 1e9;
    }
    (void)frexp(want, &exponent);
    if (exponent < FLT_MIN_EXP) {
        exponent = FLT_MIN_EXP;
    }
    return fabs((double)got - want) / ldexp(1.0, exponent - FLT_MANT_DIG);
}

static void check_result(float in, float out, double want, double bound)
{
    double error = error_ulps(out, want);

    if (!(error <= bound)) {
        fail_msg("at %a (0x%08x): expected %.9g, found %.9g, off by %.2f ulp", (double)in,
                 (unsigned)to_bits(in), want, (double)out, error);
    }
}

/* All bit patterns from `first` to `last` in steps of `step`, against libm in double. */
static void check_range(math_loop_fn loop, double (*exact)(double), uint32_t first, uint32_t last,
                        uint32_t step, double bound)
{
    uint64_t bits = first;

    while (bits <= last) {
        float in[BATCH];
        float out[BATCH];
        size_t elems = 0;

        for (; elems < BATCH && bits <= last; bits += step) {
            in[elems++] = from_bits((uint32_t)bits);
        }
        loop(out, in, elems);
        for (size_t i = 0; i < elems; i++) {
            check_result(in[i], out[i], exact((double)in[i]), bound);
        }
    }
}

/* Every sign and exponent, NaN and infinity with them; 9973 is prime, so that low bits vary. */
static void check_everywhere(math_loop_fn loop, double (*exact)(double), double bound)
{
    check_range(loop, exact, 0, UINT32_MAX, 9973, bound);
}

static void test_exp_is_within_its_bound(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        const struct math_loops *loops = loops_of(variant);

        if (loops == NULL) {
            continue;
        }
        check_everywhere(loops->exp, exp, 1.5);
        check_range(loops->exp, exp, to_bits(0.0625F), to_bits(88.0F), 211, 1.5);
        check_range(loops->exp, exp, to_bits(-0.0625F), to_bits(-88.0F), 211, 1.5);
        /* Where it overflows, and where results become subnormal and then zero. */
        check_range(loops->exp, exp, to_bits(88.7F), to_bits(88.75F), 1, 1.5);
        check_range(loops->exp, exp, to_bits(-87.0F), to_bits(-104.5F), 13, 1.5);
    }
}

static void test_the_flushed_exp_is_within_its_bound_and_zero_below(void **state)
{
    const float in[] = {-87.5F, -104.0F, -1e4F, -3e38F, -INFINITY, NAN, 0.0F, -0.0F};
    enum {
        ELEMS = sizeof(in) / sizeof(*in)
    };

    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        const struct math_loops *loops = loops_of(variant);
        float out[ELEMS];

        if (loops == NULL) {
            continue;
        }
        check_range(loops->exp_flushed, exp, to_bits(-0.0F), to_bits(-87.0F), 4001, 1.5);
        check_range(loops->exp_flushed, exp, to_bits(-0.0625F), to_bits(-87.0F), 97, 1.5);
        check_range(loops->exp_flushed, exp, to_bits(0.0F), to_bits(88.0F), 4001, 1.5);
        loops->exp_flushed(out, in, ELEMS);
        for (size_t i = 0; i < 5; i++) {
            assert_true(out[i] == 0.0F);
        }
        assert_true(isnan(out[5]) && out[6] == 1.0F && out[7] == 1.0F);
    }
}

static void test_log_is_within_its_bound(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        const struct math_loops *loops = loops_of(variant);

        if (loops == NULL) {
            continue;
        }
        check_everywhere(loops->log, log, 1.5);
        check_range(loops->log, log, to_bits(0.25F), to_bits(4.0F), 97, 1.5);
        /* Around 1, where the result goes through zero, and all small subnormal arguments. */
        check_range(loops->log, log, to_bits(0.999F), to_bits(1.001F), 1, 1.5);
        check_range(loops->log, log, 0, 20000, 1, 1.5);
    }
}

static void test_tanh_is_within_its_bound(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        const struct math_loops *loops = loops_of(variant);

        if (loops == NULL) {
            continue;
        }
        check_everywhere(loops->tanh, tanh, 2.0);
        check_range(loops->tanh, tanh, to_bits(0.01F), to_bits(10.0F), 97, 2.0);
        /* Where the polynomial hands over. */
        check_range(loops->tanh, tanh, to_bits(0.599F), to_bits(0.601F), 1, 2.0);
    }
}

static void test_special_arguments_give_the_limits(void **state)
{
    const float in[] = {INFINITY, -INFINITY, NAN, -NAN, 0.0F, -0.0F, FLT_MAX, -FLT_MAX};
    enum {
        ELEMS = sizeof(in) / sizeof(*in)
    };

    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        const struct math_loops *loops = loops_of(variant);
        float out[ELEMS];

        if (loops == NULL) {
            continue;
        }
        loops->exp(out, in, ELEMS);
        assert_true(out[0] == INFINITY && out[1] == 0.0F && isnan(out[2]) && isnan(out[3]));
        assert_true(out[4] == 1.0F && out[5] == 1.0F && out[6] == INFINITY && out[7] == 0.0F);
        loops->log(out, in, ELEMS);
        assert_true(out[0] == INFINITY && isnan(out[1]) && isnan(out[2]) && isnan(out[3]));
        assert_true(out[4] == -INFINITY && out[5] == -INFINITY && isnan(out[7]));
        loops->tanh(out, in, ELEMS);
        assert_true(out[0] == 1.0F && out[1] == -1.0F && isnan(out[2]) && isnan(out[3]));
        assert_true(to_bits(out[4]) == 0 && to_bits(out[5]) == 0x80000000U);
        assert_true(out[6] == 1.0F && out[7] == -1.0F);
    }
}

/* An element in the vector body, in the tail of a loop, and alone. */
static void check_places(math_loop_fn loop)
{
    float in[67];
    float all[67];

    for (size_t i = 0; i < 67; i++) {
        in[i] = (float)i * 1.31F + 0.011F;
    }
    loop(all, in, 67);
    for (size_t begin = 0; begin < 67; begin++) {
        for (size_t elems = 1; begin + elems <= 67; elems++) {
            float out[67];

            loop(out, in + begin, elems);
            assert_memory_equal(out, all + begin, elems * sizeof(*out));
        }
    }
}

static void test_the_bits_do_not_depend_on_the_place_in_the_array(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        const struct math_loops *loops = loops_of(variant);

        if (loops != NULL) {
            check_places(loops->exp);
            check_places(loops->exp_flushed);
            check_places(loops->log);
            check_places(loops->tanh);
        }
    }
}

static void test_tanh_is_odd_to_the_bit(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        const struct math_loops *loops = loops_of(variant);

        for (uint32_t bits = 0; loops != NULL && bits < 0x7F800000U; bits += 99991) {
            float pair[2] = {from_bits(bits), from_bits(bits | 0x80000000U)};
            float out[2];

            loops->tanh(out, pair, 2);
            assert_true((to_bits(out[0]) | 0x80000000U) == to_bits(out[1]));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp_is_within_its_bound),
        cmocka_unit_test(test_the_flushed_exp_is_within_its_bound_and_zero_below),
        cmocka_unit_test(test_log_is_within_its_bound),
        cmocka_unit_test(test_tanh_is_within_its_bound),
        cmocka_unit_test(test_special_arguments_give_the_limits),
        cmocka_unit_test(test_the_bits_do_not_depend_on_the_place_in_the_array),
        cmocka_unit_test(test_tanh_is_odd_to_the_bit),
    };

    return cmocka_run_group_tests_name("math", tests, NULL, NULL);
}

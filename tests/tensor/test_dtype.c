#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "tensor/dtype.h"

#define PATTERNS 0x10000U

/* A format by its definition: value of a pattern in double, by exponent and fraction. */
struct format {
    enum dtype type;
    int exponent_bits;
    int fraction_bits;
    float (*widen)(uint16_t bits);
    uint16_t (*narrow)(float number);
};

static const struct format formats[] = {
    {DTYPE_BF16, 8, 7, dtype_from_bf16, dtype_to_bf16},
    {DTYPE_FP16, 5, 10, dtype_from_fp16, dtype_to_fp16},
};

#define FORMATS (sizeof(formats) / sizeof(formats[0]))

static uint32_t bits_of(float number)
{
    uint32_t bits = 0;

    memcpy(&bits, &number, sizeof(bits));
    return bits;
}

/* The pattern of positive infinity; what is larger, without the sign, is a NaN. */
static uint32_t infinity_of(const struct format *f)
{
    return ((1U << f->exponent_bits) - 1U) << f->fraction_bits;
}

/* Of a finite pattern, or of infinity, which counts as the power of two that comes next. */
static double value_of(const struct format *f, uint32_t pattern)
{
    const uint32_t magnitude = pattern & 0x7FFFU;
    const int exponent = (int)(magnitude >> f->fraction_bits);
    const double fraction = (double)(magnitude & ((1U << f->fraction_bits) - 1U));
    const int bias = (1 << (f->exponent_bits - 1)) - 1;
    const double steps = exponent == 0 ? fraction : fraction + (double)(1U << f->fraction_bits);
    const double value = ldexp(steps, (exponent == 0 ? 1 : exponent) - bias - f->fraction_bits);

    return (pattern & 0x8000U) != 0 ? -value : value;
}

static void every_pattern_widens_to_its_value_and_comes_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORMATS; i++) {
        const struct format *f = &formats[i];
        size_t finite = 0;
        for (uint32_t pattern = 0; pattern < PATTERNS; pattern++) {
            const float wide = f->widen((uint16_t)pattern);
            const uint32_t magnitude = pattern & 0x7FFFU;
            assert_int_equal(bits_of(wide) >> 31, pattern >> 15);
            if (magnitude > infinity_of(f)) {
                assert_true(isnan(wide));
                continue;
            }
            if (magnitude == infinity_of(f)) {
                assert_true(isinf(wide));
            } else {
                assert_true((double)wide == value_of(f, pattern));
                finite++;
            }
            assert_int_equal(f->narrow(wide), pattern);
        }
        assert_int_equal(finite, 2 * infinity_of(f));
    }
}

/* The quiet bit is the fraction's upper one; sign and the other bits stay. */
static void every_nan_stays_a_nan_and_becomes_quiet(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORMATS; i++) {
        const struct format *f = &formats[i];
        const uint32_t quiet = 1U << (f->fraction_bits - 1);
        for (uint32_t pattern = 0; pattern < PATTERNS; pattern++) {
            if ((pattern & 0x7FFFU) > infinity_of(f)) {
                assert_int_equal(f->narrow(f->widen((uint16_t)pattern)), pattern | quiet);
            }
        }
        /* fp32 NaNs whose fraction lies below what is kept: all of them, one bit at a time. */
        for (uint32_t bit = 0; bit < 23; bit++) {
            for (uint32_t sign = 0; sign < 2; sign++) {
                const uint32_t bits = sign << 31 | 0x7F800000U | 1U << bit;
                float number = 0.0F;
                memcpy(&number, &bits, sizeof(number));
                const uint32_t kept = (1U << bit) >> (23 - f->fraction_bits);
                assert_int_equal(f->narrow(number), sign << 15 | infinity_of(f) | quiet | kept);
            }
        }
    }
}

/* `number` and its negative. */
static void check_narrow(const struct format *f, float number, uint32_t want)
{
    if (f->narrow(number) != want || f->narrow(-number) != (want | 0x8000U)) {
        fail_msg("%s of %a: expected 0x%04x, found 0x%04x and, negative, 0x%04x",
                 dtype_text(f->type), (double)number, want, f->narrow(number), f->narrow(-number));
    }
}

/* Between two neighbours their middle decides; it goes to the even one. The middle above the largest
 * number, with the power of two that comes next, decides on infinity. */
static void the_middle_of_two_neighbours_goes_to_the_even_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORMATS; i++) {
        const struct format *f = &formats[i];
        for (uint32_t low = 0; low < infinity_of(f); low++) {
            const double middle = (value_of(f, low) + value_of(f, low + 1)) / 2.0;
            const float exact = (float)middle;
            assert_true((double)exact == middle);
            check_narrow(f, exact, low % 2 == 0 ? low : low + 1);
            check_narrow(f, nextafterf(exact, 0.0F), low);
            check_narrow(f, nextafterf(exact, INFINITY), low + 1);
            check_narrow(f, nextafterf((float)value_of(f, low), INFINITY), low);
        }
    }
}

static void what_is_too_large_becomes_an_infinity(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORMATS; i++) {
        const struct format *f = &formats[i];
        check_narrow(f, INFINITY, infinity_of(f));
        check_narrow(f, 0x1.fffffep127F, infinity_of(f));
        check_narrow(f, (float)dtype_largest(f->type), infinity_of(f) - 1);
        assert_true(value_of(f, infinity_of(f) - 1) == dtype_largest(f->type));
    }
    check_narrow(&formats[1], 65519.996F, 0x7BFFU);
    check_narrow(&formats[1], 65520.0F, 0x7C00U);
    assert_true(dtype_largest(DTYPE_FP32) == 0x1.fffffep127);
}

static void zeros_keep_their_sign_and_small_numbers_become_zero(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORMATS; i++) {
        check_narrow(&formats[i], 0.0F, 0);
    }
    check_narrow(&formats[1], 0x1p-25F, 0); /* the middle of 0 and the smallest */
    check_narrow(&formats[1], 0x1.000002p-25F, 1);
    check_narrow(&formats[1], 0x1p-149F, 0);
    check_narrow(&formats[0], 0x1p-149F, 0);
}

/* The compiler's own binary16, where it has one. */
#ifdef __FLT16_MAX__
__extension__ typedef _Float16 compiler_fp16;

static void fp16_is_what_the_compiler_calls_it(void **state)
{
    uint32_t bits = 0;

    (void)state;
    for (uint32_t pattern = 0; pattern < PATTERNS; pattern++) {
        const uint16_t half = (uint16_t)pattern;
        compiler_fp16 number;
        memcpy(&number, &half, sizeof(number));
        const float wide = (float)number;
        if (!isnan(wide)) {
            assert_int_equal(bits_of(dtype_from_fp16(half)), bits_of(wide));
        }
    }
    /* Steps of an odd number of about 2^12 go through all exponents and many fractions. */
    for (uint32_t step = 0; step < 1U << 20; step++) {
        float wide = 0.0F;
        uint16_t half = 0;
        memcpy(&wide, &bits, sizeof(wide));
        const compiler_fp16 number = (compiler_fp16)wide;
        memcpy(&half, &number, sizeof(half));
        if (!isnan(wide)) {
            assert_int_equal(dtype_to_fp16(wide), half);
        }
        bits += 4099U;
    }
}
#endif

static void a_rounded_number_is_one_of_the_format(void **state)
{
    (void)state;
    assert_true(dtype_round(DTYPE_FP32, 0.1F) == 0.1F);
    assert_true(dtype_round(DTYPE_BF16, 0.1F) == 0x1.9ap-4F);
    assert_true(dtype_round(DTYPE_FP16, 0.1F) == 0x1.998p-4F);
    assert_true(dtype_round(DTYPE_BF16, 1e6F) == 999424.0F);
    assert_true(dtype_round(DTYPE_FP16, 1e6F) == INFINITY);
}

static void formats_have_a_size_and_a_name(void **state)
{
    const uint16_t halves[3] = {1, 2, 3};
    uint16_t changed[3] = {1, 2, 3};

    (void)state;
    assert_int_equal(dtype_bytes(DTYPE_FP32), 4);
    assert_int_equal(dtype_bytes(DTYPE_BF16), 2);
    assert_int_equal(dtype_bytes(DTYPE_FP16), 2);
    assert_string_equal(dtype_text(DTYPE_FP32), "fp32");
    assert_string_equal(dtype_text(DTYPE_BF16), "bf16");
    assert_string_equal(dtype_text(DTYPE_FP16), "fp16");
    assert_ptr_equal(dtype_const_at(halves, DTYPE_BF16, 2), halves + 2);
    assert_ptr_equal(dtype_at(changed, DTYPE_FP32, 1), changed + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_widens_to_its_value_and_comes_back),
        cmocka_unit_test(every_nan_stays_a_nan_and_becomes_quiet),
        cmocka_unit_test(the_middle_of_two_neighbours_goes_to_the_even_one),
        cmocka_unit_test(what_is_too_large_becomes_an_infinity),
        cmocka_unit_test(zeros_keep_their_sign_and_small_numbers_become_zero),
#ifdef __FLT16_MAX__
        cmocka_unit_test(fp16_is_what_the_compiler_calls_it),
#endif
        cmocka_unit_test(a_rounded_number_is_one_of_the_format),
        cmocka_unit_test(formats_have_a_size_and_a_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "on_each.h"
#include "tensor/kernels.h"
#include "typed.h"

enum {
    PATTERNS = 0x10000,
    LOWS = 18
};

/* A block of conversions must give the bits of the functions for one number, which test_dtype holds
 * to the formats' definitions. */
static uint16_t narrowed(enum dtype type, float number)
{
    return type == DTYPE_BF16 ? dtype_to_bf16(number) : dtype_to_fp16(number);
}

static void check_widening(const struct kernel_ops *ops, struct stream *stream, int threads,
                           void *context)
{
    const enum dtype type = *(const enum dtype *)context;
    struct typed in;
    struct typed out;

    (void)threads;
    typed_make(&in, type, PATTERNS);
    typed_make(&out, DTYPE_FP32, PATTERNS);
    for (uint32_t i = 0; i < PATTERNS; i++) {
        ((uint16_t *)in.data)[i] = (uint16_t)i;
    }
    assert_int_equal(ops->convert(out.data, DTYPE_FP32, in.data, type, PATTERNS, stream),
                     STATUS_OK);
    for (uint32_t i = 0; i < PATTERNS; i++) {
        const float want = typed_at(&in, i);
        assert_memory_equal(&want, (const float *)out.data + i, sizeof(want));
    }
    typed_free(&in);
    typed_free(&out);
}

static void all_patterns_are_widened_as_one_by_one(void **state)
{
    enum dtype types[] = {DTYPE_BF16, DTYPE_FP16};

    (void)state;
    on_each_variant_and_team(check_widening, &types[0]);
    on_each_variant_and_team(check_widening, &types[1]);
}

/* Lower halves around every place where a rounding turns: of bf16 the middle of 16 bits; of fp16 that
 * of 13, whatever the three bits above are. Subnormals of fp16 round elsewhere: one bit a place. */
static const uint16_t lows[LOWS] = {0x0000, 0x0001, 0x0002, 0x0010, 0x0100, 0x0FFF,
                                    0x1000, 0x1001, 0x1FFF, 0x2000, 0x3000, 0x4000,
                                    0x7FFF, 0x8000, 0x8001, 0xEFFF, 0xF001, 0xFFFF};

static void check_narrowed(const struct typed *in, const struct typed *out)
{
    for (size_t i = 0; i < in->elems; i++) {
        const float number = ((const float *)in->data)[i];
        const uint16_t found = ((const uint16_t *)out->data)[i];
        if (found != narrowed(out->type, number)) {
            fail_msg("%a to %s: expected 0x%04x, found 0x%04x", (double)number,
                     dtype_text(out->type), narrowed(out->type, number), found);
        }
    }
}

static void check_narrowing(const struct kernel_ops *ops, struct stream *stream, int threads,
                            void *context)
{
    const enum dtype type = *(const enum dtype *)context;
    struct typed in;
    struct typed out;

    (void)threads;
    typed_make(&in, DTYPE_FP32, PATTERNS);
    typed_make(&out, type, PATTERNS);
    for (size_t low = 0; low < LOWS; low++) {
        for (uint32_t high = 0; high < PATTERNS; high++) {
            const uint32_t bits = high << 16 | lows[low];
            memcpy((float *)in.data + high, &bits, sizeof(bits));
        }
        assert_int_equal(ops->convert(out.data, type, in.data, DTYPE_FP32, PATTERNS, stream),
                         STATUS_OK);
        check_narrowed(&in, &out);
    }
    typed_free(&in);
    typed_free(&out);
}

static void numbers_of_all_kinds_are_rounded_as_one_by_one(void **state)
{
    enum dtype types[] = {DTYPE_BF16, DTYPE_FP16};

    (void)state;
    on_each_variant_and_team(check_narrowing, &types[0]);
    on_each_variant_and_team(check_narrowing, &types[1]);
}

static void check_pair(const struct kernel_ops *ops, struct stream *stream, enum dtype in_type,
                       enum dtype out_type, size_t elems)
{
    struct typed in;
    struct typed out;

    typed_make(&in, in_type, elems);
    typed_make(&out, out_type, elems);
    typed_fill(&in, 1, 3.0F);
    assert_int_equal(ops->convert(out.data, out_type, in.data, in_type, elems, stream), STATUS_OK);
    for (size_t at = 0; at < elems; at++) {
        assert_true(typed_at(&out, at) == dtype_round(out_type, typed_at(&in, at)));
    }
    typed_free(&in);
    typed_free(&out);
}

/* Sizes around a vector and a block; without a team too. */
static void check_sizes(const struct kernel_ops *ops, struct stream *stream, int threads,
                        void *context)
{
    const size_t sizes[] = {0, 1, 7, 8, 9, 31, 1023, 1024, 1025, 5000};

    (void)threads;
    (void)context;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int pair = 0; pair < DTYPES * DTYPES; pair++) {
            const enum dtype in_type = (enum dtype)(pair % DTYPES);
            const enum dtype out_type = (enum dtype)(pair / DTYPES);
            check_pair(ops, stream, in_type, out_type, sizes[i]);
            check_pair(ops, NULL, in_type, out_type, sizes[i]);
        }
    }
}

static void every_pair_of_formats_and_any_size(void **state)
{
    (void)state;
    on_each_variant_and_team(check_sizes, NULL);
}

static void check_in_place(const struct kernel_ops *ops, struct stream *stream, int threads,
                           void *context)
{
    (void)threads;
    (void)context;
    for (int type = 0; type < DTYPES; type++) {
        struct typed tensor;
        struct typed was;
        typed_make(&tensor, (enum dtype)type, 100);
        typed_fill(&tensor, 1, 3.0F);
        typed_copy(&was, &tensor);
        assert_int_equal(
            ops->convert(tensor.data, tensor.type, tensor.data, tensor.type, 100, stream),
            STATUS_OK);
        typed_equal(&tensor, &was);
        typed_free(&tensor);
        typed_free(&was);
    }
}

static void equal_formats_in_place_stay_as_they_are(void **state)
{
    (void)state;
    on_each_variant_and_team(check_in_place, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_patterns_are_widened_as_one_by_one),
        cmocka_unit_test(numbers_of_all_kinds_are_rounded_as_one_by_one),
        cmocka_unit_test(every_pair_of_formats_and_any_size),
        cmocka_unit_test(equal_formats_in_place_stay_as_they_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

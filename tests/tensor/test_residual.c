#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "on_each.h"
#include "tensor/kernels.h"
#include "typed.h"

/* Additions in a promised order, so the naive loop gives the same bits in fp32; rounded once. The
 * last shape has more columns than a block of a 16-bit format. */

static const size_t shapes[][2] = {{1, 1}, {3, 5}, {17, 33}, {4, 768}, {0, 4}, {2, 2051}};

#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

enum target {
    TARGET_OWN,
    TARGET_IN,
    TARGET_RESIDUAL
};

struct residual_case {
    enum target target;
    enum dtype type;
};

static void check_shape(const struct kernel_ops *ops, struct stream *stream,
                        const struct residual_case *test, size_t rows, size_t C)
{
    struct typed own;
    struct typed in;
    struct typed residual;
    struct typed bias;
    struct typed want;

    typed_make(&own, test->type, rows * C);
    typed_make(&in, DTYPE_FP32, rows * C);
    typed_make(&residual, test->type, rows * C);
    typed_make(&bias, test->type, C);
    typed_make(&want, test->type, rows * C);
    typed_fill(&in, 1, 1.0F);
    typed_fill(&residual, 2, 1.0F);
    typed_fill(&bias, 3, 1.0F);
    for (size_t at = 0; at < rows * C; at++) {
        const float sum = typed_at(&in, at) + typed_at(&bias, at % C);
        typed_set(&want, at, typed_at(&residual, at) + sum);
    }
    struct typed *out = &own;
    if (test->target != TARGET_OWN) {
        out = test->target == TARGET_IN ? &in : &residual;
    }
    assert_int_equal(ops->bias_residual_forward(out->data, in.data, bias.data, residual.data, rows,
                                                C, test->type, stream),
                     STATUS_OK);
    typed_equal(out, &want);
    typed_free(&own);
    typed_free(&in);
    typed_free(&residual);
    typed_free(&bias);
    typed_free(&want);
}

static void check_residual(const struct kernel_ops *ops, struct stream *stream, int threads,
                           void *context)
{
    (void)threads;
    for (size_t i = 0; i < SHAPES; i++) {
        check_shape(ops, stream, context, shapes[i][0], shapes[i][1]);
    }
}

static void the_output_is_residual_plus_input_and_bias(void **state)
{
    struct residual_case test = {.target = TARGET_OWN};

    (void)state;
    for (int type = 0; type < DTYPES; type++) {
        test.type = (enum dtype)type;
        on_each_variant_and_team(check_residual, &test);
    }
}

static void the_output_may_be_the_residual(void **state)
{
    struct residual_case test = {.target = TARGET_RESIDUAL};

    (void)state;
    for (int type = 0; type < DTYPES; type++) {
        test.type = (enum dtype)type;
        on_each_variant_and_team(check_residual, &test);
    }
}

static void the_output_may_be_the_input_in_fp32(void **state)
{
    struct residual_case test = {.target = TARGET_IN, .type = DTYPE_FP32};

    (void)state;
    on_each_variant_and_team(check_residual, &test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_output_is_residual_plus_input_and_bias),
        cmocka_unit_test(the_output_may_be_the_residual),
        cmocka_unit_test(the_output_may_be_the_input_in_fp32),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

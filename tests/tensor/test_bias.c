#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "on_each.h"
#include "tensor/kernels.h"
#include "tolerance.h"
#include "typed.h"

struct shape {
    size_t rows;
    size_t K;
};

/* More rows than a block, more columns than a tile, fewer than a vector. */
static const struct shape shapes[] = {{1, 1},    {3, 5},    {67, 33}, {130, 64},
                                      {5, 1100}, {3, 1112}, {0, 4}};

#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static void check_forward(const struct kernel_ops *ops, struct stream *stream, int threads,
                          void *context)
{
    const enum dtype type = *(const enum dtype *)context;

    (void)threads;
    for (size_t i = 0; i < SHAPES; i++) {
        const struct shape s = shapes[i];
        struct typed inout;
        struct typed want;
        struct typed bias;
        typed_make(&inout, type, s.rows * s.K);
        typed_make(&bias, type, s.K);
        typed_fill(&inout, 1, 1.0F);
        typed_fill(&bias, 2, 1.0F);
        typed_copy(&want, &inout);
        assert_int_equal(ops->bias_forward(inout.data, bias.data, s.rows, s.K, type, stream),
                         STATUS_OK);
        for (size_t at = 0; at < s.rows * s.K; at++) {
            typed_set(&want, at, typed_at(&want, at) + typed_at(&bias, at % s.K));
        }
        typed_equal(&inout, &want);
        typed_free(&inout);
        typed_free(&want);
        typed_free(&bias);
    }
}

static void the_bias_is_added_to_every_row(void **state)
{
    (void)state;
    for (int type = 0; type < DTYPES; type++) {
        enum dtype context = (enum dtype)type;
        on_each_variant_and_team(check_forward, &context);
    }
}

static void check_column(const struct guarded *dbias, const struct guarded *was,
                         const struct typed *dout, const struct shape *s, size_t k)
{
    double want = was->floats[k];
    double magnitude = fabs(want);

    for (size_t row = 0; row < s->rows; row++) {
        want += (double)typed_at(dout, row * s->K + k);
        magnitude += fabs((double)typed_at(dout, row * s->K + k));
    }
    const double error = fabs((double)dbias->floats[k] - want);
    const double allowed = tolerance_fp32(magnitude, s->rows + 1, 0);
    if (!(error <= allowed)) {
        fail_msg("column %zu of %zu rows: off by %g, allowed %g", k, s->rows, error, allowed);
    }
}

struct backward_case {
    enum dtype type;
    struct guarded first[SHAPES]; /* one result a shape, of the team of one */
};

static void check_backward(const struct kernel_ops *ops, struct stream *stream, int threads,
                           void *context)
{
    struct backward_case *test = context;

    for (size_t i = 0; i < SHAPES; i++) {
        const struct shape s = shapes[i];
        struct typed dout;
        struct guarded dbias;
        struct guarded was;
        typed_make(&dout, test->type, s.rows * s.K);
        guarded_make(&dbias, s.K);
        typed_fill(&dout, 1, 1.0F);
        guarded_fill(&dbias, 2, 1.0F);
        guarded_copy(&was, &dbias);
        assert_int_equal(
            ops->bias_backward(dbias.floats, dout.data, s.rows, s.K, test->type, stream),
            STATUS_OK);
        for (size_t k = 0; k < s.K; k++) {
            check_column(&dbias, &was, &dout, &s, k);
        }
        if (threads == 1) {
            guarded_copy(&test->first[i], &dbias);
        } else {
            guarded_equal(&dbias, &test->first[i]);
        }
        if (threads == ON_EACH_MOST_THREADS) {
            guarded_free(&test->first[i]);
        }
        typed_free(&dout);
        guarded_free(&dbias);
        guarded_free(&was);
    }
}

static void the_gradient_is_the_sum_of_each_column_whatever_the_team(void **state)
{
    struct backward_case test;

    (void)state;
    for (int type = 0; type < DTYPES; type++) {
        test.type = (enum dtype)type;
        on_each_variant_and_team(check_backward, &test);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bias_is_added_to_every_row),
        cmocka_unit_test(the_gradient_is_the_sum_of_each_column_whatever_the_team),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

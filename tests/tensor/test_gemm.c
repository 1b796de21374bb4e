#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "gemm_problem.h"
#include "guarded.h"
#include "product.h"
#include "tensor/gemm.h"
#include "tensor/stream.h"

static const size_t shapes[][3] = {{1, 1, 1},     {1, 100, 7},   {100, 1, 7},    {3, 5, 2},
                                   {17, 31, 9},   {64, 64, 64},  {129, 97, 101}, {200, 65, 33},
                                   {20, 401, 80}, {201, 300, 37}};

static void check_all_shapes(enum gemm_op op_a, enum gemm_op op_b, struct stream *stream)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct problem p;
        struct guarded before;
        problem_make(&p, op_a, op_b, shapes[i][0], shapes[i][1], shapes[i][2], i % 2 * 3);
        /* C is full of NaN here. */
        assert_int_equal(product_run(&p.gemm, stream), STATUS_OK);
        assert_product(&p, NULL);
        guarded_fill(&p.c, 3, 1.0F);
        guarded_copy(&before, &p.c);
        p.gemm.alpha = 0.5F;
        p.gemm.beta = 1.0F;
        assert_int_equal(product_run(&p.gemm, stream), STATUS_OK);
        assert_product(&p, before.floats);
        guarded_free(&before);
        problem_free(&p);
    }
}

static void products_are_right_for_all_transposes_and_teams(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        struct stream *stream = NULL;
        assert_int_equal(stream_create(threads, &stream), STATUS_OK);
        for (int ops = 0; ops < 4; ops++) {
            check_all_shapes(ops % 2 == 0 ? GEMM_PLAIN : GEMM_TRANSPOSED,
                             ops / 2 == 0 ? GEMM_PLAIN : GEMM_TRANSPOSED, stream);
        }
        stream_destroy(&stream);
    }
}

static void rows_apart_keep_what_lies_between_them(void **state)
{
    struct stream *stream = NULL;
    struct problem p;

    (void)state;
    assert_int_equal(stream_create(3, &stream), STATUS_OK);
    problem_make(&p, GEMM_PLAIN, GEMM_PLAIN, 150, 130, 70, 5);
    guarded_fill(&p.c, 3, 1.0F);
    for (size_t row = 0; row < 150; row++) {
        for (size_t column = 130; column < 135; column++) {
            p.c.floats[row * p.gemm.ldc + column] = 77.0F;
        }
    }
    assert_int_equal(product_run(&p.gemm, stream), STATUS_OK);
    assert_product(&p, NULL);
    for (size_t row = 0; row < 150; row++) {
        for (size_t column = 130; column < 135; column++) {
            assert_true(p.c.floats[row * p.gemm.ldc + column] == 77.0F);
        }
    }
    problem_free(&p);
    stream_destroy(&stream);
}

static void empty_products_scale_what_is_there(void **state)
{
    struct stream *stream = NULL;
    struct problem p;

    (void)state;
    assert_int_equal(stream_create(2, &stream), STATUS_OK);
    problem_make(&p, GEMM_PLAIN, GEMM_PLAIN, 0, 5, 3, 1);
    assert_int_equal(product_run(&p.gemm, stream), STATUS_OK);
    problem_free(&p);
    problem_make(&p, GEMM_PLAIN, GEMM_PLAIN, 5, 0, 3, 1);
    assert_int_equal(product_run(&p.gemm, stream), STATUS_OK);
    problem_free(&p);
    problem_make(&p, GEMM_PLAIN, GEMM_PLAIN, 3, 5, 0, 0);
    assert_int_equal(product_run(&p.gemm, stream), STATUS_OK);
    for (size_t i = 0; i < 15; i++) {
        assert_true(p.c.floats[i] == 0.0F);
        p.c.floats[i] = (float)i;
    }
    p.gemm.beta = 2.0F;
    assert_int_equal(product_run(&p.gemm, stream), STATUS_OK);
    for (size_t i = 0; i < 15; i++) {
        assert_true(p.c.floats[i] == 2.0F * (float)i);
    }
    problem_free(&p);
    stream_destroy(&stream);
}

static void rows_that_overlap_are_refused_with_the_shape(void **state)
{
    struct stream *stream = NULL;
    struct problem p;

    (void)state;
    assert_int_equal(stream_create(2, &stream), STATUS_OK);
    problem_make(&p, GEMM_PLAIN, GEMM_PLAIN, 150, 130, 70, 0);
    p.gemm.lda = 3;
    assert_int_equal(product_run(&p.gemm, stream), STATUS_ERR_INVALID);
    assert_non_null(strstr(status_last()->message, "150 x 130 x 70"));
    problem_free(&p);
    stream_destroy(&stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right_for_all_transposes_and_teams),
        cmocka_unit_test(rows_apart_keep_what_lies_between_them),
        cmocka_unit_test(empty_products_scale_what_is_there),
        cmocka_unit_test(rows_that_overlap_are_refused_with_the_shape),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "attention_case.h"
#include "guarded.h"
#include "tensor/kernels.h"
#include "tensor/kernels_cpu.h"
#include "typed.h"

static void test_both_directions_equal_the_double_precision_loops(void **state)
{
    (void)state;
    for (size_t v = 0; v < ATTENTION_CASE_VARIANTS; v++) {
        const struct kernel_ops *ops = kernels_cpu_find(attention_case_variants[v]);

        for (size_t s = 0; ops != NULL && s < ATTENTION_CASE_SHAPES; s++) {
            for (int type = 0; type < DTYPES; type++) {
                struct attention_case c;

                attention_case_make(&c, &attention_case_shapes[s], (enum dtype)type, NULL, 1.0F);
                attention_case_check(ops, &c, 1e-6);
                attention_case_free(&c);
            }
        }
    }
}

static void test_a_team_of_any_size_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t v = 0; v < ATTENTION_CASE_VARIANTS; v++) {
        const struct kernel_ops *ops = kernels_cpu_find(attention_case_variants[v]);

        for (size_t i = 0; ops != NULL && i < (size_t)ATTENTION_CASE_SHAPES * DTYPES; i++) {
            const struct attention_shape *shape = &attention_case_shapes[i / DTYPES];
            const enum dtype type = (enum dtype)(i % DTYPES);
            struct attention_case alone;

            attention_case_make(&alone, shape, type, NULL, 1.0F);
            attention_case_run(ops, &alone, 1);
            for (int threads = 2; threads <= 3; threads++) {
                struct attention_case team;

                attention_case_make(&team, shape, type, NULL, 1.0F);
                attention_case_run(ops, &team, threads);
                attention_case_equal(&team, &alone);
                attention_case_free(&team);
            }
            attention_case_free(&alone);
        }
    }
}

/* Scores of ten thousands, of both signs, far enough apart that one key takes all the weight. */
static void test_huge_scores_give_the_value_of_the_largest(void **state)
{
    const struct attention_shape shape = {1, 60, 1, 1};

    (void)state;
    for (size_t v = 0; v < ATTENTION_CASE_VARIANTS; v++) {
        const struct kernel_ops *ops = kernels_cpu_find(attention_case_variants[v]);
        struct attention_case c;

        if (ops == NULL) {
            continue;
        }
        attention_case_make(&c, &shape, DTYPE_FP32, NULL, 1.0F);
        for (size_t t = 0; t < 60; t++) {
            typed_set(&c.qkv, t * 3, t % 2 == 0 ? 100.0F : -100.0F);
            typed_set(&c.qkv, t * 3 + 1, (float)((t * 37) % 60) * 4.0F - 120.0F);
        }
        attention_case_check(ops, &c, 2e-6);
        attention_case_free(&c);
    }
}

static void test_what_comes_later_changes_no_bit_of_what_came_before(void **state)
{
    const struct attention_shape shape = {1, 120, 2, 20};
    const size_t C = 40;
    const size_t seen = 61;

    (void)state;
    for (size_t v = 0; v < ATTENTION_CASE_VARIANTS; v++) {
        const struct kernel_ops *ops = kernels_cpu_find(attention_case_variants[v]);
        struct attention_case a;
        struct attention_case b;

        if (ops == NULL) {
            continue;
        }
        attention_case_make(&a, &shape, DTYPE_FP32, NULL, 1.0F);
        attention_case_make(&b, &shape, DTYPE_FP32, NULL, 1.0F);
        for (size_t i = seen * 3 * C; i < b.qkv.elems; i++) {
            typed_set(&b.qkv, i, -3.0F * typed_at(&b.qkv, i));
        }
        attention_case_run(ops, &a, 1);
        attention_case_run(ops, &b, 1);
        assert_memory_equal(a.out.data, b.out.data, seen * C * sizeof(float));
        assert_memory_equal(a.lse.floats, b.lse.floats, seen * sizeof(float));
        assert_memory_not_equal(a.out.data, b.out.data, a.out.elems * sizeof(float));
        attention_case_free(&a);
        attention_case_free(&b);
    }
}

static void test_a_sequence_has_the_same_bits_in_every_batch(void **state)
{
    const struct attention_shape two = {2, 50, 2, 10};
    const struct attention_shape one = {1, 50, 2, 10};
    const size_t elems = (size_t)50 * 20;

    (void)state;
    for (size_t v = 0; v < ATTENTION_CASE_VARIANTS; v++) {
        const struct kernel_ops *ops = kernels_cpu_find(attention_case_variants[v]);
        struct attention_case both;
        struct attention_case last;

        if (ops == NULL) {
            continue;
        }
        attention_case_make(&both, &two, DTYPE_FP32, NULL, 1.0F);
        attention_case_make(&last, &one, DTYPE_FP32, NULL, 1.0F);
        memcpy(last.qkv.data, dtype_at(both.qkv.data, DTYPE_FP32, 3 * elems),
               3 * elems * sizeof(float));
        memcpy(last.dout.floats, both.dout.floats + elems, elems * sizeof(float));
        attention_case_run(ops, &both, 2);
        attention_case_run(ops, &last, 1);
        assert_memory_equal(last.out.data, dtype_at(both.out.data, DTYPE_FP32, elems),
                            elems * sizeof(float));
        assert_memory_equal(last.dqkv.data, dtype_at(both.dqkv.data, DTYPE_FP32, 3 * elems),
                            3 * elems * sizeof(float));
        attention_case_free(&both);
        attention_case_free(&last);
    }
}

static void test_what_is_not_finite_stays_visible(void **state)
{
    const struct attention_shape shape = {1, 30, 1, 4};

    (void)state;
    for (size_t v = 0; v < ATTENTION_CASE_VARIANTS; v++) {
        const struct kernel_ops *ops = kernels_cpu_find(attention_case_variants[v]);

        for (size_t i = 0; ops != NULL && i < (size_t)3 * DTYPES; i++) {
            const size_t place = i % 3;
            struct attention_case c;

            attention_case_make(&c, &shape, (enum dtype)(i / 3), NULL, 1.0F);
            typed_set(&c.qkv, 240 + place * 4, NAN);
            attention_case_run(ops, &c, 1);
            assert_true(!isfinite(typed_at(&c.out, 80)));
            /* A value meets the zero weights of earlier queries in its block. */
            assert_true(place == 2 || isfinite(typed_at(&c.out, 76)));
            assert_true(!isfinite(typed_at(&c.dqkv, 240)));
            attention_case_free(&c);
        }
    }
}

static void test_the_workspace_grows_with_positions_and_not_with_their_square(void **state)
{
    const struct attention_shape small = {1, 4800, 12, 64};
    const struct attention_shape large = {1, 9600, 12, 64};

    (void)state;
    assert_true(attention_workspace_floats(&large, 1) < 2 * attention_workspace_floats(&small, 1));
    assert_int_equal(attention_workspace_floats(&large, 3),
                     3 * attention_workspace_floats(&large, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_directions_equal_the_double_precision_loops),
        cmocka_unit_test(test_a_team_of_any_size_gives_the_same_bits),
        cmocka_unit_test(test_huge_scores_give_the_value_of_the_largest),
        cmocka_unit_test(test_what_comes_later_changes_no_bit_of_what_came_before),
        cmocka_unit_test(test_a_sequence_has_the_same_bits_in_every_batch),
        cmocka_unit_test(test_what_is_not_finite_stays_visible),
        cmocka_unit_test(test_the_workspace_grows_with_positions_and_not_with_their_square),
    };

    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}

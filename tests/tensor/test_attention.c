#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "attention_case.h"
#include "guarded.h"
#include "on_each.h"
#include "tensor/kernels.h"
#include "typed.h"

static void test_both_directions_equal_the_double_precision_loops_by_any_team(void **state)
{
    (void)state;
    attention_case_check_shapes(NULL, 1e-6);
}

/* Scores of ten thousands, of both signs, far enough apart that one key takes all the weight. */
static void check_huge(const struct kernel_ops *ops, struct stream *stream, int threads,
                       void *context)
{
    const struct attention_shape shape = {1, 60, 1, 1};
    struct attention_case c;

    (void)threads;
    (void)context;
    attention_case_make(&c, &shape, DTYPE_FP32, NULL, 1.0F);
    for (size_t t = 0; t < 60; t++) {
        typed_set(&c.qkv, t * 3, t % 2 == 0 ? 100.0F : -100.0F);
        typed_set(&c.qkv, t * 3 + 1, (float)((t * 37) % 60) * 4.0F - 120.0F);
    }
    attention_case_check(ops, &c, stream, 2e-6);
    attention_case_free(&c);
}

static void test_huge_scores_give_the_value_of_the_largest(void **state)
{
    (void)state;
    on_each_variant_and_team(check_huge, NULL);
}

static void check_later(const struct kernel_ops *ops, struct stream *stream, int threads,
                        void *context)
{
    const struct attention_shape shape = {1, 150, 2, 20};
    const size_t C = 40;
    const size_t seen = 61;

    (void)context;
    for (int type = 0; threads == 1 && type < DTYPES; type++) {
        const size_t bytes = dtype_bytes((enum dtype)type);
        struct attention_case a;
        struct attention_case b;

        attention_case_make(&a, &shape, (enum dtype)type, NULL, 1.0F);
        attention_case_make(&b, &shape, (enum dtype)type, NULL, 1.0F);
        for (size_t i = seen * 3 * C; i < b.qkv.elems; i++) {
            typed_set(&b.qkv, i, -3.0F * typed_at(&b.qkv, i));
        }
        attention_case_run(ops, &a, stream);
        attention_case_run(ops, &b, stream);
        assert_memory_equal(a.out.data, b.out.data, seen * C * bytes);
        assert_memory_equal(a.lse.floats, b.lse.floats, seen * sizeof(float));
        assert_memory_not_equal(a.out.data, b.out.data, a.out.elems * bytes);
        attention_case_free(&a);
        attention_case_free(&b);
    }
}

static void test_what_comes_later_changes_no_bit_of_what_came_before(void **state)
{
    (void)state;
    on_each_variant_and_team(check_later, NULL);
}

static void check_batch(const struct kernel_ops *ops, struct stream *stream, int threads,
                        void *context)
{
    const struct attention_shape two = {2, 50, 2, 10};
    const struct attention_shape one = {1, 50, 2, 10};
    const size_t elems = (size_t)50 * 20;

    (void)context;
    for (int type = 0; threads == 2 && type < DTYPES; type++) {
        const size_t bytes = dtype_bytes((enum dtype)type);
        struct attention_case both;
        struct attention_case last;

        attention_case_make(&both, &two, (enum dtype)type, NULL, 1.0F);
        attention_case_make(&last, &one, (enum dtype)type, NULL, 1.0F);
        memcpy(last.qkv.data, dtype_at(both.qkv.data, (enum dtype)type, 3 * elems),
               3 * elems * bytes);
        memcpy(last.dout.floats, both.dout.floats + elems, elems * sizeof(float));
        attention_case_run(ops, &both, stream);
        attention_case_run(ops, &last, stream);
        assert_memory_equal(last.out.data, dtype_at(both.out.data, (enum dtype)type, elems),
                            elems * bytes);
        assert_memory_equal(last.dqkv.data, dtype_at(both.dqkv.data, (enum dtype)type, 3 * elems),
                            3 * elems * bytes);
        attention_case_free(&both);
        attention_case_free(&last);
    }
}

static void test_a_sequence_has_the_same_bits_in_every_batch(void **state)
{
    (void)state;
    on_each_variant_and_team(check_batch, NULL);
}

static void check_not_finite(const struct kernel_ops *ops, struct stream *stream, int threads,
                             void *context)
{
    const struct attention_shape shape = {1, 30, 1, 4};

    (void)context;
    for (size_t i = 0; threads == 1 && i < (size_t)3 * DTYPES; i++) {
        const size_t place = i % 3;
        struct attention_case c;

        attention_case_make(&c, &shape, (enum dtype)(i / 3), NULL, 1.0F);
        typed_set(&c.qkv, 240 + place * 4, NAN);
        attention_case_run(ops, &c, stream);
        assert_true(!isfinite(typed_at(&c.out, 80)));
        /* A value meets the zero weights of earlier queries in its block. */
        assert_true(place == 2 || isfinite(typed_at(&c.out, 76)));
        assert_true(!isfinite(typed_at(&c.dqkv, 240)));
        attention_case_free(&c);
    }
}

static void test_what_is_not_finite_stays_visible(void **state)
{
    (void)state;
    on_each_variant_and_team(check_not_finite, NULL);
}

static void check_workspace(const struct kernel_ops *ops, struct stream *stream, int threads,
                            void *context)
{
    const struct attention_shape small = {1, 4800, 12, 64};
    const struct attention_shape large = {1, 9600, 12, 64};

    (void)stream;
    (void)context;
    assert_true(ops->attention_workspace(&large, threads) <=
                2 * ops->attention_workspace(&small, threads));
}

static void test_the_workspace_grows_with_positions_and_not_with_their_square(void **state)
{
    (void)state;
    on_each_variant_and_team(check_workspace, NULL);
}

/* A GPU's tiles end at 256 columns, which it says; everything narrower is in the shapes. */
static void check_widest(const struct kernel_ops *ops, struct stream *stream, int threads,
                         void *context)
{
    const struct attention_shape shape = {1, 3, 1, 257};
    const bool narrow = strcmp(ops->variant, "cuda") == 0;

    (void)threads;
    (void)context;
    for (int type = 0; type < DTYPES; type++) {
        struct attention_case c;

        attention_case_make(&c, &shape, (enum dtype)type, NULL, 1.0F);
        if (narrow) {
            assert_int_equal(ops->attention_forward(c.out.data, c.lse.floats, c.qkv.data, &shape,
                                                    NULL, NULL, (enum dtype)type, stream),
                             STATUS_ERR_UNSUPPORTED);
            assert_non_null(strstr(status_last()->message, "257 numbers a head, at most 256"));
        } else {
            attention_case_check(ops, &c, stream, 1e-6);
        }
        attention_case_free(&c);
    }
}

static void test_a_head_may_be_as_wide_as_the_contract_says(void **state)
{
    (void)state;
    on_each_variant_and_team(check_widest, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_directions_equal_the_double_precision_loops_by_any_team),
        cmocka_unit_test(test_huge_scores_give_the_value_of_the_largest),
        cmocka_unit_test(test_what_comes_later_changes_no_bit_of_what_came_before),
        cmocka_unit_test(test_a_sequence_has_the_same_bits_in_every_batch),
        cmocka_unit_test(test_what_is_not_finite_stays_visible),
        cmocka_unit_test(test_a_head_may_be_as_wide_as_the_contract_says),
        cmocka_unit_test(test_the_workspace_grows_with_positions_and_not_with_their_square),
    };

    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}

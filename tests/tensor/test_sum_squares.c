#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "buffer.h"
#include "guarded.h"
#include "on_each.h"
#include "tensor/kernels.h"

static const size_t sizes[] = {0, 1, 15, 17, 64, 1000, 16384, 16385, 40001, 600001};

#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void check_sum(const struct kernel_ops *ops, struct stream *stream, int threads,
                      void *context)
{
    double *first = context;
    double *sum = buffer_take(sizeof(*sum));

    for (size_t i = 0; i < SIZES; i++) {
        struct guarded in;
        long double want = 0.0L;
        *sum = NAN;
        guarded_make(&in, sizes[i]);
        guarded_fill(&in, 1, 1.0F);
        for (size_t at = 0; at < sizes[i]; at++) {
            want += (long double)in.floats[at] * (long double)in.floats[at];
        }
        assert_int_equal(ops->sum_squares(sum, in.floats, sizes[i], stream), STATUS_OK);
        /* Squares are exact; each of the additions rounds by 2^-53 of the sum at most. */
        assert_true(fabsl((long double)*sum - want) <= (long double)sizes[i] * 0x1p-53L * want);
        if (threads == 1) {
            first[i] = *sum;
        }
        assert_true(*sum == first[i]);
        guarded_free(&in);
    }
    buffer_give(sum);
}

static void the_sum_is_that_of_the_squares_whatever_the_team(void **state)
{
    double first[SIZES];

    (void)state;
    on_each_variant_and_team(check_sum, first);
}

/* The same numbers at a multiple of 64 bytes and one to three floats behind it. */
static void check_places(const struct kernel_ops *ops, struct stream *stream, int threads,
                         void *context)
{
    struct guarded in;
    struct guarded moved;
    double *sum = buffer_take(2 * sizeof(*sum));
    double *again = sum + 1;

    (void)threads;
    (void)context;
    guarded_make(&in, 5003);
    guarded_fill(&in, 1, 1.0F);
    assert_int_equal(ops->sum_squares(sum, in.floats, 5003, stream), STATUS_OK);
    for (size_t place = 1; place < 4; place++) {
        *again = NAN;
        guarded_make(&moved, 5003 + place);
        memcpy(moved.floats + place, in.floats, 5003 * sizeof(float));
        assert_int_equal(ops->sum_squares(again, moved.floats + place, 5003, stream), STATUS_OK);
        assert_true(*again == *sum);
        guarded_free(&moved);
    }
    guarded_free(&in);
    buffer_give(sum);
}

static void the_bits_do_not_depend_on_where_the_elements_lie(void **state)
{
    (void)state;
    on_each_variant_and_team(check_places, NULL);
}

static void check_finite(const struct kernel_ops *ops, struct stream *stream, int threads,
                         void *context)
{
    const float poison[] = {INFINITY, -INFINITY, NAN};
    const size_t places[] = {0, 77, 999, 1000};
    struct guarded in;
    double *sum = buffer_take(sizeof(*sum));

    (void)threads;
    (void)context;
    guarded_make(&in, 1001);
    for (size_t at = 0; at < 1001; at++) {
        in.floats[at] = at % 2 == 0 ? FLT_MAX : -FLT_MAX;
    }
    assert_int_equal(ops->sum_squares(sum, in.floats, 1001, stream), STATUS_OK);
    assert_true(isfinite(*sum) != 0);
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < 4; k++) {
            const float was = in.floats[places[k]];
            in.floats[places[k]] = poison[i];
            assert_int_equal(ops->sum_squares(sum, in.floats, 1001, stream), STATUS_OK);
            assert_true(isfinite(*sum) == 0);
            in.floats[places[k]] = was;
        }
    }
    guarded_free(&in);
    buffer_give(sum);
}

static void the_sum_is_finite_exactly_when_every_element_is(void **state)
{
    (void)state;
    on_each_variant_and_team(check_finite, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sum_is_that_of_the_squares_whatever_the_team),
        cmocka_unit_test(the_bits_do_not_depend_on_where_the_elements_lie),
        cmocka_unit_test(the_sum_is_finite_exactly_when_every_element_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "guarded.h"
#include "on_each.h"
#include "tensor/kernels.h"

#define MOST 9

static const size_t sizes[] = {0, 1, 7, 64, 511, 512, 513, 1025, 5001};

/* What the outputs are: tensors of their own, all inputs, or one of the inputs. */
struct plan {
    size_t in_count;
    size_t out_count;
    bool in_place;
    size_t first_out; /* in place: outs[k] is ins[first_out + k] */
};

static const struct plan plans[] = {
    {.in_count = 1, .out_count = 1},
    {.in_count = 1, .out_count = 1, .in_place = true},
    {.in_count = 2, .out_count = 1},
    {.in_count = 2, .out_count = 1, .in_place = true, .first_out = 1},
    {.in_count = 2, .out_count = 2},
    {.in_count = 2, .out_count = 2, .in_place = true},
    {.in_count = 3, .out_count = 3, .in_place = true},
    {.in_count = 5, .out_count = 1, .in_place = true, .first_out = 3},
    {.in_count = 8, .out_count = 8, .in_place = true},
    {.in_count = 9, .out_count = 2},
};

struct case_buffers {
    struct guarded ins[MOST];
    struct guarded own[MOST];
    struct guarded want;
    const float *in_floats[MOST];
    float *out_floats[MOST];
};

static float naive(enum combine_op op, float a, float b)
{
    if (op == COMBINE_SUM) {
        return a + b;
    }
    return a < b ? b : a;
}

/* Magnitudes differ by 2^20, so that another order of the sums gives other bits. */
static void fill(struct case_buffers *buffers, const struct plan *plan, enum combine_op op,
                 size_t elems)
{
    guarded_make(&buffers->want, elems);
    for (size_t k = 0; k < MOST; k++) {
        guarded_make(&buffers->ins[k], elems);
        guarded_make(&buffers->own[k], elems);
        guarded_fill(&buffers->ins[k], (uint32_t)(k + 1), k % 2 == 0 ? 1.0F : 0x1p20F);
    }
    for (size_t k = 0; k < MOST; k++) {
        buffers->in_floats[k] = buffers->ins[k].floats;
        buffers->out_floats[k] = plan->in_place && plan->first_out + k < MOST
                                     ? buffers->ins[plan->first_out + k].floats
                                     : buffers->own[k].floats;
    }
    for (size_t i = 0; i < elems; i++) {
        float folded = buffers->ins[0].floats[i];

        for (size_t k = 1; k < plan->in_count; k++) {
            folded = naive(op, folded, buffers->ins[k].floats[i]);
        }
        buffers->want.floats[i] = folded;
    }
}

static void check_plan(const struct kernel_ops *ops, const struct plan *plan, enum combine_op op,
                       size_t elems)
{
    struct case_buffers buffers;

    fill(&buffers, plan, op, elems);
    assert_int_equal(ops->combine(buffers.out_floats, plan->out_count, buffers.in_floats,
                                  plan->in_count, elems, op),
                     STATUS_OK);
    for (size_t k = 0; k < plan->out_count; k++) {
        const float *out = buffers.out_floats[k];

        assert_memory_equal(out, buffers.want.floats, elems * sizeof(float));
    }
    guarded_free(&buffers.want);
    for (size_t k = 0; k < MOST; k++) {
        guarded_free(&buffers.ins[k]);
        guarded_free(&buffers.own[k]);
    }
}

static void check_all(const struct kernel_ops *ops, struct stream *stream, int threads,
                      void *context)
{
    (void)stream;
    (void)context;
    for (size_t p = 0; threads == 1 && p < sizeof(plans) / sizeof(plans[0]); p++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            check_plan(ops, &plans[p], COMBINE_SUM, sizes[i]);
            check_plan(ops, &plans[p], COMBINE_MAX, sizes[i]);
        }
    }
}

static void every_output_has_the_bits_of_the_loop_from_the_left(void **state)
{
    (void)state;
    on_each_variant_and_team(check_all, NULL);
}

/* One element of one input is NaN; 40 elements reach vector body and tail. */
static void check_nan(const struct kernel_ops *ops, size_t in_count, size_t which, size_t at,
                      enum combine_op op)
{
    float data[4][40];
    float out[40];
    const float *ins[4];
    float *outs[] = {out};

    for (size_t k = 0; k < 4; k++) {
        ins[k] = data[k];
        for (size_t i = 0; i < 40; i++) {
            data[k][i] = (float)(k * 40 + i);
        }
    }
    data[which][at] = NAN;
    assert_int_equal(ops->combine(outs, 1, ins, in_count, 40, op), STATUS_OK);
    for (size_t i = 0; i < 40; i++) {
        assert_int_equal(isnan(out[i]) != 0, i == at);
    }
}

static void check_nans(const struct kernel_ops *ops, struct stream *stream, int threads,
                       void *context)
{
    (void)stream;
    (void)threads;
    (void)context;
    for (size_t in_count = 2; in_count <= 4; in_count++) {
        for (size_t which = 0; which < in_count; which++) {
            for (size_t at = 3; at < 40; at += 36) {
                check_nan(ops, in_count, which, at, COMBINE_SUM);
                check_nan(ops, in_count, which, at, COMBINE_MAX);
            }
        }
    }
}

static void a_nan_anywhere_gives_nan_there_and_nowhere_else(void **state)
{
    (void)state;
    on_each_variant_and_team(check_nans, NULL);
}

static void check_ends(const struct kernel_ops *ops, struct stream *stream, int threads,
                       void *context)
{
    const float first[] = {-0.0F, 0.0F, INFINITY, -INFINITY, INFINITY};
    const float second[] = {0.0F, -0.0F, 1.0F, -1.0F, -INFINITY};
    const float want[] = {-0.0F, 0.0F, INFINITY, -1.0F, INFINITY};
    const float *ins[] = {first, second};
    float out[5];
    float *outs[] = {out};

    (void)stream;
    (void)threads;
    (void)context;
    assert_int_equal(ops->combine(outs, 1, ins, 2, 5, COMBINE_MAX), STATUS_OK);
    assert_memory_equal(out, want, sizeof(want));
    assert_int_equal(ops->combine(outs, 1, ins, 2, 5, COMBINE_SUM), STATUS_OK);
    assert_true(out[2] == INFINITY && out[3] == -INFINITY && isnan(out[4]));
}

static void the_first_of_two_zeros_is_the_largest_and_infinities_are_numbers(void **state)
{
    (void)state;
    on_each_variant_and_team(check_ends, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_output_has_the_bits_of_the_loop_from_the_left),
        cmocka_unit_test(a_nan_anywhere_gives_nan_there_and_nowhere_else),
        cmocka_unit_test(the_first_of_two_zeros_is_the_largest_and_infinities_are_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"
#include "naive_attention.h"
#include "tensor/kernels.h"
#include "tensor/kernels_cpu.h"
#include "tensor/stream.h"

static const char *const variants[] = {"cpu-v3", "cpu-base"};

/* B, T, H, D: around the edges of panels, blocks and tiles. */
static const struct attention_shape shapes[] = {
    {1, 1, 1, 1},  {2, 5, 3, 7},    {1, 23, 2, 16}, {1, 24, 1, 64},  {1, 25, 2, 33},  {2, 48, 1, 8},
    {1, 49, 2, 5}, {1, 96, 1, 128}, {3, 97, 1, 17}, {1, 130, 2, 80}, {1, 256, 1, 64},
};

struct attention_case {
    struct attention_shape shape;
    struct guarded qkv;
    struct guarded out;
    struct guarded lse;
    struct guarded dout;
    struct guarded dqkv;
};

static void case_make(struct attention_case *c, const struct attention_shape *shape, float range)
{
    size_t rows = shape->batch * shape->positions;
    size_t C = shape->heads * shape->head_size;

    c->shape = *shape;
    guarded_make(&c->qkv, rows * 3 * C);
    guarded_make(&c->out, rows * C);
    guarded_make(&c->lse, rows * shape->heads);
    guarded_make(&c->dout, rows * C);
    guarded_make(&c->dqkv, rows * 3 * C);
    guarded_fill(&c->qkv, 11, range);
    guarded_fill(&c->dout, 12, 1.0F);
}

static void case_free(struct attention_case *c)
{
    guarded_free(&c->qkv);
    guarded_free(&c->out);
    guarded_free(&c->lse);
    guarded_free(&c->dout);
    guarded_free(&c->dqkv);
}

static void run_case(const struct kernel_ops *ops, struct attention_case *c, int threads)
{
    struct guarded workspace;
    struct stream *stream = NULL;

    assert_int_equal(stream_create(threads, &stream), STATUS_OK);
    guarded_make(&workspace, attention_workspace_floats(&c->shape, threads));
    assert_int_equal(ops->attention_forward(c->out.floats, c->lse.floats, c->qkv.floats, &c->shape,
                                            workspace.floats, stream),
                     STATUS_OK);
    assert_int_equal(ops->attention_backward(c->dqkv.floats, c->dout.floats, c->out.floats,
                                             c->qkv.floats, c->lse.floats, &c->shape,
                                             workspace.floats, stream),
                     STATUS_OK);
    guarded_free(&workspace);
    stream_destroy(&stream);
}

static double *doubles(size_t elems)
{
    double *memory = calloc(elems, sizeof(*memory));

    assert_non_null(memory);
    return memory;
}

/* Moves one head between (T,D) and its place in rows that are `stride` long. */
static void gather(double *head, const float *from, size_t stride, size_t T, size_t D)
{
    for (size_t i = 0; i < T * D; i++) {
        head[i] = (double)from[i / D * stride + i % D];
    }
}

static void scatter(double *to, size_t stride, const double *head, size_t T, size_t D)
{
    for (size_t i = 0; i < T * D; i++) {
        to[i / D * stride + i % D] = head[i];
    }
}

struct expected {
    double *out;
    double *lse;
    double *dqkv;
};

static void expect_head(const struct attention_case *c, struct expected *want, size_t b, size_t h)
{
    size_t T = c->shape.positions;
    size_t D = c->shape.head_size;
    size_t C = c->shape.heads * D;
    size_t at = b * T * C + h * D;
    size_t at_qkv = b * T * 3 * C + h * D;
    double *head = doubles(8 * T * D);
    double *q = head;
    double *k = head + T * D;
    double *v = head + 2 * T * D;
    double *out = head + 3 * T * D;
    double *dout = head + 4 * T * D;
    double *dq = head + 5 * T * D;
    double *dk = head + 6 * T * D;
    double *dv = head + 7 * T * D;

    gather(q, c->qkv.floats + at_qkv, 3 * C, T, D);
    gather(k, c->qkv.floats + at_qkv + C, 3 * C, T, D);
    gather(v, c->qkv.floats + at_qkv + 2 * C, 3 * C, T, D);
    gather(dout, c->dout.floats + at, C, T, D);
    naive_attention_forward(out, want->lse + (b * c->shape.heads + h) * T, q, k, v, T, D);
    naive_attention_backward(dq, dk, dv, dout, q, k, v, T, D);
    scatter(want->out + at, C, out, T, D);
    scatter(want->dqkv + at_qkv, 3 * C, dq, T, D);
    scatter(want->dqkv + at_qkv + C, 3 * C, dk, T, D);
    scatter(want->dqkv + at_qkv + 2 * C, 3 * C, dv, T, D);
    free(head);
}

/* `unit` is the rounding error that a term of order one may carry; sums of up to T such terms
 * (dK, dV) may carry that many. */
static void check_case(const struct kernel_ops *ops, struct attention_case *c, double unit)
{
    struct expected want = {
        .out = doubles(c->out.elems),
        .lse = doubles(c->lse.elems),
        .dqkv = doubles(c->dqkv.elems),
    };

    for (size_t b = 0; b < c->shape.batch; b++) {
        for (size_t h = 0; h < c->shape.heads; h++) {
            expect_head(c, &want, b, h);
        }
    }
    run_case(ops, c, 1);
    guarded_close(&c->out, want.out, unit, "out");
    guarded_close(&c->lse, want.lse, 2.0 * unit, "lse");
    guarded_close(&c->dqkv, want.dqkv, unit * (4.0 + sqrt((double)c->shape.positions)), "dqkv");
    free(want.out);
    free(want.lse);
    free(want.dqkv);
}

static void test_both_directions_equal_the_double_precision_loops(void **state)
{
    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);

        for (size_t s = 0; ops != NULL && s < sizeof(shapes) / sizeof(*shapes); s++) {
            struct attention_case c;

            case_make(&c, &shapes[s], 1.0F);
            check_case(ops, &c, 1e-6);
            case_free(&c);
        }
    }
}

/* Sum of out · dout of one head: the number whose gradient the backward is. */
static double objective(const double *dout, const double *q, const double *k, const double *v,
                        size_t T, size_t D)
{
    double *out = doubles(T * D + T);
    double sum = 0.0;

    naive_attention_forward(out, out + T * D, q, k, v, T, D);
    for (size_t i = 0; i < T * D; i++) {
        sum += out[i] * dout[i];
    }
    free(out);
    return sum;
}

static void test_the_expected_gradients_are_difference_quotients(void **state)
{
    enum {
        T = 7,
        D = 3,
        ELEMS = T * D
    };
    double in[4][ELEMS];
    double gradients[3][ELEMS];

    (void)state;
    for (int i = 0; i < 4 * ELEMS; i++) {
        in[i / ELEMS][i % ELEMS] = sin(1.7 * i + 0.3);
    }
    naive_attention_backward(gradients[0], gradients[1], gradients[2], in[3], in[0], in[1], in[2],
                             T, D);
    for (int i = 0; i < 3 * ELEMS; i++) {
        double *place = &in[i / ELEMS][i % ELEMS];
        double kept = *place;
        double above;
        double below;

        *place = kept + 1e-5;
        above = objective(in[3], in[0], in[1], in[2], T, D);
        *place = kept - 1e-5;
        below = objective(in[3], in[0], in[1], in[2], T, D);
        *place = kept;
        assert_true(fabs((above - below) / 2e-5 - gradients[i / ELEMS][i % ELEMS]) < 1e-8);
    }
}

static void test_a_team_of_any_size_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);

        for (size_t s = 0; ops != NULL && s < sizeof(shapes) / sizeof(*shapes); s++) {
            struct attention_case alone;

            case_make(&alone, &shapes[s], 1.0F);
            run_case(ops, &alone, 1);
            for (int threads = 2; threads <= 3; threads++) {
                struct attention_case team;

                case_make(&team, &shapes[s], 1.0F);
                run_case(ops, &team, threads);
                guarded_equal(&team.out, &alone.out);
                guarded_equal(&team.lse, &alone.lse);
                guarded_equal(&team.dqkv, &alone.dqkv);
                case_free(&team);
            }
            case_free(&alone);
        }
    }
}

/* Scores of ten thousands, of both signs, far enough apart that one key takes all the weight. */
static void test_huge_scores_give_the_value_of_the_largest(void **state)
{
    const struct attention_shape shape = {1, 60, 1, 1};

    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);
        struct attention_case c;

        if (ops == NULL) {
            continue;
        }
        case_make(&c, &shape, 1.0F);
        for (size_t t = 0; t < 60; t++) {
            c.qkv.floats[t * 3] = t % 2 == 0 ? 100.0F : -100.0F;
            c.qkv.floats[t * 3 + 1] = (float)((t * 37) % 60) * 4.0F - 120.0F;
        }
        check_case(ops, &c, 2e-6);
        case_free(&c);
    }
}

static void test_what_comes_later_changes_no_bit_of_what_came_before(void **state)
{
    const struct attention_shape shape = {1, 120, 2, 20};
    const size_t C = 40;
    const size_t seen = 61;

    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);
        struct attention_case a;
        struct attention_case b;

        if (ops == NULL) {
            continue;
        }
        case_make(&a, &shape, 1.0F);
        case_make(&b, &shape, 1.0F);
        for (size_t i = seen * 3 * C; i < b.qkv.elems; i++) {
            b.qkv.floats[i] = -3.0F * b.qkv.floats[i];
        }
        run_case(ops, &a, 1);
        run_case(ops, &b, 1);
        assert_memory_equal(a.out.floats, b.out.floats, seen * C * sizeof(float));
        assert_memory_equal(a.lse.floats, b.lse.floats, seen * sizeof(float));
        assert_memory_not_equal(a.out.floats, b.out.floats, a.out.elems * sizeof(float));
        case_free(&a);
        case_free(&b);
    }
}

static void test_a_sequence_has_the_same_bits_in_every_batch(void **state)
{
    const struct attention_shape two = {2, 50, 2, 10};
    const struct attention_shape one = {1, 50, 2, 10};
    const size_t elems = (size_t)50 * 20;

    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);
        struct attention_case both;
        struct attention_case last;

        if (ops == NULL) {
            continue;
        }
        case_make(&both, &two, 1.0F);
        case_make(&last, &one, 1.0F);
        memcpy(last.qkv.floats, both.qkv.floats + 3 * elems, 3 * elems * sizeof(float));
        memcpy(last.dout.floats, both.dout.floats + elems, elems * sizeof(float));
        run_case(ops, &both, 2);
        run_case(ops, &last, 1);
        assert_memory_equal(last.out.floats, both.out.floats + elems, elems * sizeof(float));
        assert_memory_equal(last.dqkv.floats, both.dqkv.floats + 3 * elems,
                            3 * elems * sizeof(float));
        case_free(&both);
        case_free(&last);
    }
}

static void test_what_is_not_finite_stays_visible(void **state)
{
    const struct attention_shape shape = {1, 30, 1, 4};

    (void)state;
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);

        for (size_t place = 0; ops != NULL && place < 3; place++) {
            struct attention_case c;

            case_make(&c, &shape, 1.0F);
            c.qkv.floats[240 + place * 4] = NAN;
            run_case(ops, &c, 1);
            assert_true(!isfinite(c.out.floats[80]));
            /* A value meets the zero weights of earlier queries in its block. */
            assert_true(place == 2 || isfinite(c.out.floats[76]));
            assert_true(!isfinite(c.dqkv.floats[240]));
            case_free(&c);
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
        cmocka_unit_test(test_the_expected_gradients_are_difference_quotients),
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

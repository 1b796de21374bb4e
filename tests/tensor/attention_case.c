#include "attention_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "naive_attention.h"
#include "on_each.h"
#include "tensor/rng.h"
#include "tensor/stream.h"
#include "tolerance.h"

enum {
    SHAPES = 13
};

/* B, T, H, D: around the edges of panels, blocks and tiles. */
static const struct attention_shape shapes[SHAPES] = {
    {1, 1, 1, 1},    {2, 5, 3, 7},   {1, 23, 2, 16},  {1, 24, 1, 64}, {1, 25, 2, 33},
    {2, 48, 1, 8},   {1, 49, 2, 5},  {1, 96, 1, 128}, {3, 97, 1, 17}, {1, 130, 2, 80},
    {1, 256, 1, 64}, {2, 75, 1, 40}, {1, 70, 1, 200},
};

void attention_case_make(struct attention_case *c, const struct attention_shape *shape,
                         enum dtype type, const struct attention_dropout *dropout, float range)
{
    size_t rows = shape->batch * shape->positions;
    size_t C = shape->heads * shape->head_size;

    c->shape = *shape;
    c->dropout = dropout;
    typed_make(&c->qkv, type, rows * 3 * C);
    typed_make(&c->out, type, rows * C);
    typed_make(&c->dqkv, type, rows * 3 * C);
    guarded_make(&c->lse, rows * shape->heads);
    guarded_make(&c->dout, rows * C);
    typed_fill(&c->qkv, 11, range);
    guarded_fill(&c->dout, 12, 1.0F);
}

void attention_case_free(struct attention_case *c)
{
    typed_free(&c->qkv);
    typed_free(&c->out);
    typed_free(&c->dqkv);
    guarded_free(&c->lse);
    guarded_free(&c->dout);
}

void attention_case_run(const struct kernel_ops *ops, struct attention_case *c,
                        struct stream *stream)
{
    struct guarded workspace;

    guarded_make(&workspace, ops->attention_workspace(&c->shape, stream_threads(stream)));
    assert_int_equal(ops->attention_forward(c->out.data, c->lse.floats, c->qkv.data, &c->shape,
                                            c->dropout, workspace.floats, c->qkv.type, stream),
                     STATUS_OK);
    assert_int_equal(ops->attention_backward(c->dqkv.data, c->dout.floats, c->out.data, c->qkv.data,
                                             c->lse.floats, &c->shape, c->dropout, workspace.floats,
                                             c->qkv.type, stream),
                     STATUS_OK);
    guarded_free(&workspace);
}

double attention_case_factor(const struct attention_dropout *dropout,
                             const struct attention_shape *shape, size_t batch, size_t head,
                             size_t q, size_t k)
{
    uint64_t squares = (shape->positions + 7) / 8;
    uint64_t square = ((dropout->first_head + head) * squares + k / 8) * squares + q / 8;
    struct rng_mask mask =
        rng_mask_of(dropout->seed, dropout->site, dropout->layer, dropout->first_sample + batch);
    uint16_t number = rng_mask_number(mask, square * 64 + k % 8 * 8 + q % 8);

    return number >= dropout->threshold ? 1.0 / (1.0 - (double)dropout->threshold / 65536.0) : 0.0;
}

static double *doubles(size_t elems)
{
    double *memory = calloc(elems, sizeof(*memory));

    assert_non_null(memory);
    return memory;
}

/* Moves one head between (T,D) and its place in rows that are `stride` long. */
static void gather(double *head, const struct typed *from, size_t at, size_t stride, size_t T,
                   size_t D)
{
    for (size_t i = 0; i < T * D; i++) {
        head[i] = (double)typed_at(from, at + i / D * stride + i % D);
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
    double *out_rounding; /* of the terms, by naive_attention_rounding() */
    double *dqkv_rounding;
    bool rounds;
};

/* (T,T), NULL without dropout. */
static double *factors_of(const struct attention_case *c, size_t b, size_t h)
{
    size_t T = c->shape.positions;
    double *factors = c->dropout != NULL ? doubles(T * T) : NULL;

    for (size_t i = 0; factors != NULL && i < T * T; i++) {
        factors[i] = attention_case_factor(c->dropout, &c->shape, b, h, i / T, i % T);
    }
    return factors;
}

/* In a 16-bit format the backward is expected to take the out that was kept. */
static void expect_head(const struct attention_case *c, struct expected *want, size_t b, size_t h)
{
    size_t T = c->shape.positions;
    size_t D = c->shape.head_size;
    size_t C = c->shape.heads * D;
    size_t at = b * T * C + h * D;
    size_t at_qkv = b * T * 3 * C + h * D;
    double *head = doubles(13 * T * D);
    double *q = head;
    double *k = head + T * D;
    double *v = head + 2 * T * D;
    double *out = head + 3 * T * D;
    double *dout = head + 4 * T * D;
    double *dq = head + 5 * T * D;
    double *dk = head + 6 * T * D;
    double *dv = head + 7 * T * D;
    double *kept = head + 8 * T * D;
    double *rounding = head + 9 * T * D;
    double *factors = factors_of(c, b, h);

    gather(q, &c->qkv, at_qkv, 3 * C, T, D);
    gather(k, &c->qkv, at_qkv + C, 3 * C, T, D);
    gather(v, &c->qkv, at_qkv + 2 * C, 3 * C, T, D);
    gather(kept, &c->out, at, C, T, D);
    for (size_t i = 0; i < T * D; i++) {
        dout[i] = (double)c->dout.floats[at + i / D * C + i % D];
    }
    naive_attention_forward(out, want->lse + (b * c->shape.heads + h) * T, q, k, v, factors, T, D);
    naive_attention_backward(dq, dk, dv, dout, c->out.type == DTYPE_FP32 ? NULL : kept, q, k, v,
                             factors, T, D);
    if (want->rounds) {
        naive_attention_rounding(rounding, dout, kept, q, k, v, factors, T, D,
                                 c->out.type == DTYPE_BF16 ? 0x1p-8 : 0x1p-11,
                                 c->out.type == DTYPE_BF16 ? 0x1p-134 : 0x1p-25);
    }
    scatter(want->out_rounding + at, C, rounding, T, D);
    for (size_t part = 0; part < 3; part++) {
        scatter(want->dqkv_rounding + at_qkv + part * C, 3 * C, rounding + (1 + part) * T * D, T,
                D);
    }
    scatter(want->out + at, C, out, T, D);
    scatter(want->dqkv + at_qkv, 3 * C, dq, T, D);
    scatter(want->dqkv + at_qkv + C, 3 * C, dk, T, D);
    scatter(want->dqkv + at_qkv + 2 * C, 3 * C, dv, T, D);
    free(factors);
    free(head);
}

static void typed_close(const struct typed *found, const double *want, const double *rounding,
                        double allowed, const char *what)
{
    for (size_t i = 0; i < found->elems; i++) {
        double error = fabs((double)typed_at(found, i) - want[i]);
        double most = tolerance_kept(found->type, want[i], allowed + rounding[i]);

        if (!(error <= most)) {
            fail_msg("%s %s[%zu of %zu]: expected %.9g, found %.9g, off by %.3g, allowed %.3g",
                     dtype_text(found->type), what, i, found->elems, want[i],
                     (double)typed_at(found, i), error, most);
        }
    }
}

/* The matrix units of a GPU multiply 16-bit numbers. */
static bool rounds_weights(const struct kernel_ops *ops, enum dtype type)
{
    return strcmp(ops->variant, "cuda") == 0 && type != DTYPE_FP32;
}

void attention_case_compare(const struct kernel_ops *ops, struct attention_case *c, double unit)
{
    struct expected want = {
        .out = doubles(c->out.elems),
        .lse = doubles(c->lse.elems),
        .dqkv = doubles(c->dqkv.elems),
        .out_rounding = doubles(c->out.elems),
        .dqkv_rounding = doubles(c->dqkv.elems),
        .rounds = rounds_weights(ops, c->out.type),
    };

    for (size_t b = 0; b < c->shape.batch; b++) {
        for (size_t h = 0; h < c->shape.heads; h++) {
            expect_head(c, &want, b, h);
        }
    }
    typed_close(&c->out, want.out, want.out_rounding, unit, "out");
    guarded_close(&c->lse, want.lse, 2.0 * unit, "lse");
    typed_close(&c->dqkv, want.dqkv, want.dqkv_rounding,
                unit * (4.0 + sqrt((double)c->shape.positions)), "dqkv");
    free(want.out);
    free(want.lse);
    free(want.dqkv);
    free(want.out_rounding);
    free(want.dqkv_rounding);
}

void attention_case_check(const struct kernel_ops *ops, struct attention_case *c,
                          struct stream *stream, double unit)
{
    attention_case_run(ops, c, stream);
    attention_case_compare(ops, c, unit);
}

struct shapes_check {
    const struct attention_dropout *dropout;
    double unit;
    struct attention_case first[SHAPES * DTYPES]; /* of a variant's first team */
};

static void check_shapes(const struct kernel_ops *ops, struct stream *stream, int threads,
                         void *context)
{
    struct shapes_check *check = context;

    for (size_t i = 0; i < (size_t)SHAPES * DTYPES; i++) {
        struct attention_case *first = &check->first[i];
        struct attention_case other;

        attention_case_make(threads == 1 ? first : &other, &shapes[i / DTYPES],
                            (enum dtype)(i % DTYPES), check->dropout, 1.0F);
        if (threads == 1) {
            attention_case_check(ops, first, stream, check->unit);
            continue;
        }
        attention_case_run(ops, &other, stream);
        attention_case_equal(&other, first);
        attention_case_free(&other);
        if (threads == ON_EACH_MOST_THREADS) {
            attention_case_free(first);
        }
    }
}

void attention_case_check_shapes(const struct attention_dropout *dropout, double unit)
{
    struct shapes_check check = {.dropout = dropout, .unit = unit};

    on_each_variant_and_team(check_shapes, &check);
}

void attention_case_equal(const struct attention_case *a, const struct attention_case *b)
{
    typed_equal(&a->out, &b->out);
    guarded_equal(&a->lse, &b->lse);
    typed_equal(&a->dqkv, &b->dqkv);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "on_each.h"
#include "tensor/kernels.h"
#include "tensor/rng.h"
#include "tolerance.h"
#include "typed.h"

struct shape {
    size_t samples;
    size_t positions;
    size_t C;
};

/* Rows that begin inside a counter's numbers, that are groups of them, that are longer than a
 * block. */
static const struct shape shapes[] = {{1, 1, 1},    {2, 3, 5},  {3, 7, 33},  {2, 5, 64}, {0, 4, 8},
                                      {2, 2, 2051}, {4, 9, 72}, {1, 4, 768}, {5, 1, 130}};

#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

#define SEED  UINT64_C(0x123456789ABCDEF0)
#define SITE  0x64726F70U
#define LAYER 3U

static struct dropout dropout_of(const struct shape *s, double p)
{
    return (struct dropout){.seed = SEED,
                            .site = SITE,
                            .layer = LAYER,
                            .threshold = rng_mask_threshold(p),
                            .first_sample = 1000,
                            .positions = s->positions,
                            .first_position = 2};
}

/* The factor of an element, from the numbers one by one. */
static double factor_at(const struct dropout *d, size_t row, size_t c, size_t C)
{
    const uint64_t sample = d->first_sample + row / d->positions;
    const uint64_t element = (d->first_position + row % d->positions) * C + c;
    const struct rng_mask mask = rng_mask_of(d->seed, d->site, d->layer, sample);

    if (rng_mask_number(mask, element) < d->threshold) {
        return 0.0;
    }
    return 65536.0 / (65536.0 - (double)d->threshold);
}

enum op {
    OP_FORWARD,
    OP_BACKWARD,
    OP_RESIDUAL
};

struct tensors {
    struct shape shape;
    enum dtype type;
    struct typed in; /* fp32 but of OP_BACKWARD */
    struct typed bias;
    struct typed residual;
    struct typed out;
};

static void tensors_make(struct tensors *t, const struct shape *s, enum dtype type, enum op op)
{
    const size_t elems = s->samples * s->positions * s->C;

    t->shape = *s;
    t->type = type;
    typed_make(&t->in, op == OP_BACKWARD ? type : DTYPE_FP32, elems);
    typed_make(&t->bias, type, s->C);
    typed_make(&t->residual, type, elems);
    typed_make(&t->out, type, elems);
    typed_fill(&t->in, 1, 1.0F);
    typed_fill(&t->bias, 2, 1.0F);
    typed_fill(&t->residual, 3, 1.0F);
}

static void tensors_free(struct tensors *t)
{
    typed_free(&t->in);
    typed_free(&t->bias);
    typed_free(&t->residual);
    typed_free(&t->out);
}

static void run(const struct kernel_ops *ops, struct tensors *t, enum op op, void *out,
                const struct dropout *d, struct stream *stream)
{
    const size_t rows = t->shape.samples * t->shape.positions;
    const size_t C = t->shape.C;
    enum status status = STATUS_OK;

    if (op == OP_FORWARD) {
        status = ops->dropout_forward(out, t->in.data, rows, C, d, t->type, stream);
    } else if (op == OP_BACKWARD) {
        status = ops->dropout_backward(out, t->in.data, rows, C, d, t->type, stream);
    } else {
        status = ops->bias_residual_dropout_forward(out, t->in.data, t->bias.data, t->residual.data,
                                                    rows, C, d, t->type, stream);
    }
    assert_int_equal(status, STATUS_OK);
}

/* What the operation must give, in double. */
static void want_make(double *want, const struct tensors *t, enum op op, const struct dropout *d)
{
    for (size_t at = 0; at < t->out.elems; at++) {
        const size_t c = at % t->shape.C;
        const double k = factor_at(d, at / t->shape.C, c, t->shape.C);
        want[at] = k * (double)typed_at(&t->in, at);
        if (op == OP_RESIDUAL) {
            want[at] += (double)typed_at(&t->residual, at) + k * (double)typed_at(&t->bias, c);
        }
    }
}

/* Scale, product and two sums of numbers up to 1. */
static void check_out(const struct typed *out, const double *want, const struct dropout *d)
{
    const double scale = 65536.0 / (65536.0 - (double)d->threshold);

    for (size_t at = 0; at < out->elems; at++) {
        const double found = typed_at(out, at);
        const double allowed = tolerance_fp32(1.0 + 2.0 * scale, 3, 1);
        if (!(fabs(found - want[at]) <= tolerance_kept(out->type, want[at], allowed))) {
            fail_msg("[%zu of %zu] in %s: expected %.9g, found %.9g", at, out->elems,
                     dtype_text(out->type), want[at], found);
        }
    }
}

enum target {
    TARGET_OWN,
    TARGET_IN,
    TARGET_RESIDUAL
};

struct drop_case {
    enum op op;
    enum dtype type;
    enum target target;
    double p;
    struct typed first[SHAPES];
};

static void check_drop(const struct kernel_ops *ops, struct stream *stream, int threads,
                       void *context)
{
    struct drop_case *test = context;

    for (size_t i = 0; i < SHAPES; i++) {
        const struct dropout d = dropout_of(&shapes[i], test->p);
        struct tensors t;
        tensors_make(&t, &shapes[i], test->type, test->op);
        struct typed *out = &t.out;
        double *want = calloc(out->elems + 1, sizeof(*want));
        assert_non_null(want);
        want_make(want, &t, test->op, &d);
        if (test->target != TARGET_OWN) {
            out = test->target == TARGET_IN ? &t.in : &t.residual;
        }
        run(ops, &t, test->op, out->data, &d, stream);
        check_out(out, want, &d);
        if (threads == 1) {
            typed_copy(&test->first[i], out);
        }
        typed_equal(&test->first[i], out);
        if (threads == ON_EACH_MOST_THREADS) {
            typed_free(&test->first[i]);
        }
        free(want);
        tensors_free(&t);
    }
}

static void check_op(enum op op, enum target target, int types)
{
    const double probabilities[] = {0.1, 0.5, 0.999};

    for (int type = 0; type < types; type++) {
        for (size_t i = 0; i < sizeof(probabilities) / sizeof(probabilities[0]); i++) {
            struct drop_case test = {
                .op = op, .type = (enum dtype)type, .target = target, .p = probabilities[i]};
            on_each_variant_and_team(check_drop, &test);
        }
    }
}

static void elements_are_dropped_or_scaled_by_their_number_alone(void **state)
{
    (void)state;
    check_op(OP_FORWARD, TARGET_OWN, DTYPES);
    check_op(OP_FORWARD, TARGET_IN, 1);
}

static void the_gradient_goes_through_the_same_mask(void **state)
{
    (void)state;
    check_op(OP_BACKWARD, TARGET_OWN, DTYPES);
    check_op(OP_BACKWARD, TARGET_IN, DTYPES);
}

static void the_residual_is_not_dropped(void **state)
{
    (void)state;
    check_op(OP_RESIDUAL, TARGET_OWN, DTYPES);
    check_op(OP_RESIDUAL, TARGET_RESIDUAL, DTYPES);
    check_op(OP_RESIDUAL, TARGET_IN, 1);
}

/* Samples one by one and positions in two slices give the bits of the whole. */
static void check_parts(const struct kernel_ops *ops, struct stream *stream, int threads,
                        void *context)
{
    const struct shape s = {3, 7, 33};
    const size_t cut = 3;
    const struct dropout all = dropout_of(&s, 0.3);
    struct tensors t;
    struct typed whole;

    (void)threads;
    (void)context;
    tensors_make(&t, &s, DTYPE_FP32, OP_FORWARD);
    typed_make(&whole, DTYPE_FP32, t.out.elems);
    run(ops, &t, OP_FORWARD, whole.data, &all, stream);
    for (size_t part = 0; part < 2 * s.samples; part++) {
        struct dropout d = all;
        const size_t begin = part % 2 == 0 ? 0 : cut;
        const size_t at = (part / 2 * s.positions + begin) * s.C;
        d.first_sample += part / 2;
        d.first_position += begin;
        d.positions = part % 2 == 0 ? cut : s.positions - cut;
        assert_int_equal(ops->dropout_forward((float *)t.out.data + at,
                                              (const float *)t.in.data + at, d.positions, s.C, &d,
                                              DTYPE_FP32, stream),
                         STATUS_OK);
    }
    typed_equal(&t.out, &whole);
    typed_free(&whole);
    tensors_free(&t);
}

static void parts_of_the_rows_get_the_masks_of_the_whole(void **state)
{
    (void)state;
    on_each_variant_and_team(check_parts, NULL);
}

/* 21 rows in parts of 5, 5, 5, 5 and 1, which begin and end inside of samples. */
static void check_own_rows(const struct kernel_ops *ops, struct stream *stream, int threads,
                           void *context)
{
    const struct shape s = {3, 7, 33};
    const size_t rows = s.samples * s.positions;
    const struct dropout all = dropout_of(&s, 0.3);
    struct tensors t;
    struct typed whole;

    (void)threads;
    (void)context;
    tensors_make(&t, &s, DTYPE_FP32, OP_FORWARD);
    typed_make(&whole, DTYPE_FP32, t.out.elems);
    run(ops, &t, OP_FORWARD, whole.data, &all, stream);
    for (size_t first = 0; first < rows; first += 5) {
        struct dropout d = all;
        d.first_row = first;
        assert_int_equal(ops->dropout_forward((float *)t.out.data + first * s.C,
                                              (const float *)t.in.data + first * s.C,
                                              rows - first < 5 ? rows - first : 5, s.C, &d,
                                              DTYPE_FP32, stream),
                         STATUS_OK);
    }
    typed_equal(&t.out, &whole);
    typed_free(&whole);
    tensors_free(&t);
}

static void rows_from_any_row_get_the_masks_of_the_whole(void **state)
{
    (void)state;
    on_each_variant_and_team(check_own_rows, NULL);
}

/* An element whose number is the threshold is kept; with a threshold of one more it is dropped. */
static void check_edge(const struct kernel_ops *ops, struct stream *stream, int threads,
                       void *context)
{
    const struct shape s = {1, 2, 40};

    (void)threads;
    (void)context;
    for (size_t at = 0; at < 2 * s.C; at++) {
        struct dropout d = dropout_of(&s, 0.5);
        const struct rng_mask mask = rng_mask_of(SEED, SITE, LAYER, d.first_sample);
        struct tensors t;
        tensors_make(&t, &s, DTYPE_FP32, OP_FORWARD);
        d.threshold = rng_mask_number(mask, d.first_position * s.C + at);
        run(ops, &t, OP_FORWARD, t.out.data, &d, stream);
        assert_true(typed_at(&t.out, at) != 0.0F);
        d.threshold++;
        run(ops, &t, OP_FORWARD, t.out.data, &d, stream);
        assert_true(typed_at(&t.out, at) == 0.0F);
        tensors_free(&t);
    }
}

static void the_threshold_itself_is_kept(void **state)
{
    (void)state;
    on_each_variant_and_team(check_edge, NULL);
}

static void check_seen(const struct kernel_ops *ops, struct stream *stream, int threads,
                       void *context)
{
    const struct shape s = {1, 4, 768};
    const struct dropout d = dropout_of(&s, 0.5);
    const float bad[] = {NAN, INFINITY, -INFINITY};

    (void)threads;
    (void)context;
    for (size_t i = 0; i < 3; i++) {
        struct tensors t;
        tensors_make(&t, &s, DTYPE_BF16, OP_RESIDUAL);
        for (size_t at = 0; at < t.in.elems; at++) {
            typed_set(&t.in, at, bad[i]);
        }
        run(ops, &t, OP_RESIDUAL, t.out.data, &d, stream);
        for (size_t at = 0; at < t.out.elems; at++) {
            assert_true(!isfinite(typed_at(&t.out, at)));
        }
        tensors_free(&t);
    }
}

static void what_is_not_finite_stays_visible(void **state)
{
    (void)state;
    on_each_variant_and_team(check_seen, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_dropped_or_scaled_by_their_number_alone),
        cmocka_unit_test(the_gradient_goes_through_the_same_mask),
        cmocka_unit_test(the_residual_is_not_dropped),
        cmocka_unit_test(parts_of_the_rows_get_the_masks_of_the_whole),
        cmocka_unit_test(rows_from_any_row_get_the_masks_of_the_whole),
        cmocka_unit_test(the_threshold_itself_is_kept),
        cmocka_unit_test(what_is_not_finite_stays_visible),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

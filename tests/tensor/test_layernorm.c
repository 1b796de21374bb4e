#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "on_each.h"
#include "tensor/kernels.h"
#include "tolerance.h"
#include "typed.h"

#define EPS 1e-5

struct shape {
    size_t rows;
    size_t C;
};

/* Fewer columns than lanes, more than lanes and odd; more rows than a block, and more than the
 * most blocks have at their least size; a row that is a block of a 16-bit format, and longer ones, which on CUDA
 * several warps have, or have not whole. */
static const struct shape shapes[] = {{1, 2}, {3, 5},    {5, 67},   {70, 33},  {2, 768}, {2100, 3},
                                      {0, 4}, {2, 1024}, {3, 2500}, {9, 2504}, {2, 8200}};

#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

enum target {
    TARGET_OWN,
    TARGET_DOUT,
    TARGET_RESIDUAL
};

/* Of a typed tensor, `in` is what the kernel reads and `in_wide` the same numbers. */
struct tensors {
    struct shape shape;
    enum dtype type;
    struct typed in;
    struct guarded in_wide;
    struct guarded weight;
    struct guarded bias;
    struct typed out;
    struct guarded mean;
    struct guarded rstd;
    struct typed dout; /* fp32 always */
    struct typed dresidual;
    struct typed din;
    struct typed dweight;
    struct typed dbias;
    struct guarded partials;
};

static void tensors_make(struct tensors *t, const struct shape *s, enum dtype type,
                         const struct kernel_ops *ops, int threads)
{
    t->shape = *s;
    t->type = type;
    typed_make(&t->in, type, s->rows * s->C);
    guarded_make(&t->weight, s->C);
    guarded_make(&t->bias, s->C);
    typed_make(&t->out, type, s->rows * s->C);
    guarded_make(&t->mean, s->rows);
    guarded_make(&t->rstd, s->rows);
    typed_make(&t->dout, DTYPE_FP32, s->rows * s->C);
    typed_make(&t->dresidual, type, s->rows * s->C);
    typed_make(&t->din, type, s->rows * s->C);
    typed_make(&t->dweight, DTYPE_FP32, s->C);
    typed_make(&t->dbias, DTYPE_FP32, s->C);
    guarded_make(&t->partials, ops->layernorm_partials(s->C, threads));
    typed_fill(&t->in, 1, 2.0F);
    guarded_fill(&t->weight, 2, 1.0F);
    guarded_fill(&t->bias, 3, 1.0F);
    typed_fill(&t->dout, 4, 1.0F);
    typed_fill(&t->dresidual, 5, 1.0F);
    typed_fill(&t->dweight, 6, 1.0F);
    typed_fill(&t->dbias, 7, 1.0F);
    for (size_t i = 0; i < s->rows * s->C; i++) {
        typed_set(&t->in, i, typed_at(&t->in, i) + 0.5F);
    }
    typed_widen(&t->in_wide, &t->in);
}

static void tensors_free(struct tensors *t)
{
    typed_free(&t->in);
    guarded_free(&t->in_wide);
    guarded_free(&t->weight);
    guarded_free(&t->bias);
    typed_free(&t->out);
    guarded_free(&t->mean);
    guarded_free(&t->rstd);
    typed_free(&t->dout);
    typed_free(&t->dresidual);
    typed_free(&t->din);
    typed_free(&t->dweight);
    typed_free(&t->dbias);
    guarded_free(&t->partials);
}

static enum status run_forward(const struct kernel_ops *ops, struct tensors *t, void *out,
                               struct stream *stream)
{
    return ops->layernorm_forward(out, t->mean.floats, t->rstd.floats, t->in.data, t->weight.floats,
                                  t->bias.floats, t->shape.rows, t->shape.C, (float)EPS, t->type,
                                  stream);
}

static void run_backward(const struct kernel_ops *ops, struct tensors *t, void *din,
                         const void *dresidual, struct stream *stream)
{
    assert_int_equal(ops->layernorm_backward(din, t->dweight.data, t->dbias.data, t->dout.data,
                                             dresidual, t->in.data, t->weight.floats,
                                             t->mean.floats, t->rstd.floats, t->shape.rows,
                                             t->shape.C, t->partials.floats, t->type, stream),
                     STATUS_OK);
}

struct row_stats {
    double mean;
    double rstd;
    double spread; /* largest |in - mean| · rstd */
};

static struct row_stats naive_stats(const float *in, size_t C)
{
    struct row_stats stats = {.mean = 0.0};
    double variance = 0.0;

    for (size_t c = 0; c < C; c++) {
        stats.mean += (double)in[c] / (double)C;
    }
    for (size_t c = 0; c < C; c++) {
        variance += pow((double)in[c] - stats.mean, 2.0) / (double)C;
    }
    stats.rstd = 1.0 / sqrt(variance + (double)(float)EPS);
    for (size_t c = 0; c < C; c++) {
        stats.spread = fmax(stats.spread, fabs((double)in[c] - stats.mean) * stats.rstd);
    }
    return stats;
}

/* Inputs are at most 2.5. The mean is off by `mean_error`; that moves a normed value by rstd times
 * it, and the relative error of rstd is half of the variance's. */
static double mean_error(size_t C)
{
    return tolerance_fp32(2.5, C, 1);
}

static double normed_error(const struct row_stats *stats, size_t C)
{
    return stats->rstd * (mean_error(C) + tolerance_fp32(2.5, 1, 0)) +
           stats->spread * (tolerance_fp32(1.0, C, 6) +
                            stats->rstd * stats->rstd * mean_error(C) * mean_error(C));
}

static void check_forward_row(const struct tensors *t, size_t row)
{
    const size_t C = t->shape.C;
    const float *in = t->in_wide.floats;
    const struct row_stats stats = naive_stats(in + row * C, C);

    assert_true(fabs((double)t->mean.floats[row] - stats.mean) <= mean_error(C));
    assert_true(fabs((double)t->rstd.floats[row] / stats.rstd - 1.0) <=
                tolerance_fp32(1.0, C, 6) + stats.rstd * mean_error(C));
    for (size_t c = 0; c < C; c++) {
        const double normed = ((double)in[row * C + c] - stats.mean) * stats.rstd;
        const double weight = t->weight.floats[c];
        const double want = normed * weight + (double)t->bias.floats[c];
        const double allowed = fabs(weight) * normed_error(&stats, C) +
                               tolerance_fp32(fabs(want) + fabs(weight * normed), 2, 1);
        const double out = typed_at(&t->out, row * C + c);
        if (!(fabs(out - want) <= tolerance_kept(t->type, want, allowed))) {
            fail_msg("(%zu,%zu) of width %zu in %s: expected %.9g, found %.9g", row, c, C,
                     dtype_text(t->type), want, out);
        }
    }
}

static void keep_or_compare(struct typed *first, const struct typed *result, int threads)
{
    if (threads == 1) {
        typed_copy(first, result);
    }
    typed_equal(first, result);
    if (threads == ON_EACH_MOST_THREADS) {
        typed_free(first);
    }
}

struct forward_case {
    enum dtype type;
    struct typed first[SHAPES];
};

static void check_forward(const struct kernel_ops *ops, struct stream *stream, int threads,
                          void *context)
{
    struct forward_case *test = context;

    for (size_t i = 0; i < SHAPES; i++) {
        struct tensors t;
        tensors_make(&t, &shapes[i], test->type, ops, threads);
        assert_int_equal(run_forward(ops, &t, t.out.data, stream), STATUS_OK);
        for (size_t row = 0; row < t.shape.rows; row++) {
            check_forward_row(&t, row);
        }
        keep_or_compare(&test->first[i], &t.out, threads);
        assert_int_equal(run_forward(ops, &t, t.in.data, stream), STATUS_OK);
        typed_equal(&t.in, &t.out);
        tensors_free(&t);
    }
}

static void rows_are_normed_scaled_and_shifted_whatever_the_team(void **state)
{
    (void)state;
    for (int type = 0; type < DTYPES; type++) {
        struct forward_case test = {.type = (enum dtype)type};
        on_each_variant_and_team(check_forward, &test);
    }
}

/* A row of equal numbers has no variance: eps decides, the output is the bias. */
static void check_constant_row(const struct kernel_ops *ops, struct stream *stream, int threads,
                               void *context)
{
    const struct shape s = {2, 40};
    struct tensors t;

    tensors_make(&t, &s, *(const enum dtype *)context, ops, threads);
    for (size_t i = 0; i < 80; i++) {
        typed_set(&t.in, i, 3.0F);
    }
    assert_int_equal(run_forward(ops, &t, t.out.data, stream), STATUS_OK);
    for (size_t i = 0; i < 80; i++) {
        assert_true(typed_at(&t.out, i) == dtype_round(t.type, t.bias.floats[i % 40]));
    }
    assert_true(fabs((double)t.rstd.floats[1] * sqrt(EPS) - 1.0) < 1e-6);
    tensors_free(&t);
}

static void check_types(on_each_fn check)
{
    for (int type = 0; type < DTYPES; type++) {
        enum dtype context = (enum dtype)type;
        on_each_variant_and_team(check, &context);
    }
}

static void a_constant_row_gives_the_bias(void **state)
{
    (void)state;
    check_types(check_constant_row);
}

/* What the gradients must be: input's (rows,C), then weight's and bias's with the magnitudes of
 * what was added to them. In double, from the row statistics in double. */
struct naive {
    double *din;
    double *dweight;
    double *dbias;
    double *dweight_magnitude;
    double *dbias_magnitude;
    double *allowed; /* for din, a row */
};

static double *doubles(size_t count)
{
    double *made = calloc(count + 1, sizeof(*made));

    assert_non_null(made);
    return made;
}

static void naive_row(struct naive *n, const struct tensors *t, size_t row)
{
    const size_t C = t->shape.C;
    const float *in = t->in_wide.floats + row * C;
    const float *dout = (const float *)t->dout.data + row * C;
    const struct row_stats stats = naive_stats(in, C);
    double g_mean = 0.0;
    double g_normed_mean = 0.0;

    for (size_t c = 0; c < C; c++) {
        const double normed = ((double)in[c] - stats.mean) * stats.rstd;
        const double g = (double)dout[c] * (double)t->weight.floats[c];
        g_mean += g / (double)C;
        g_normed_mean += g * normed / (double)C;
        n->dweight[c] += (double)dout[c] * normed;
        n->dbias[c] += (double)dout[c];
        n->dweight_magnitude[c] += fabs((double)dout[c]) * (1.0 + fabs(normed));
        n->dbias_magnitude[c] += fabs((double)dout[c]);
    }
    for (size_t c = 0; c < C; c++) {
        const double normed = ((double)in[c] - stats.mean) * stats.rstd;
        const double g = (double)dout[c] * (double)t->weight.floats[c];
        n->din[row * C + c] = stats.rstd * (g - g_mean - normed * g_normed_mean);
    }
    /* g and its mean are at most 1, the mean of g · n at most `spread`; each is a sum of C terms,
     * and normed values carry their own error into two factors. */
    const double width = 2.0 + stats.spread * stats.spread;
    n->allowed[row] = stats.rstd * (tolerance_fp32(width, C, 12) +
                                    3.0 * (1.0 + stats.spread) * normed_error(&stats, C)) +
                      tolerance_fp32(1.0, 1, 1);
}

static void naive_make(struct naive *n, const struct tensors *t)
{
    n->din = doubles(t->shape.rows * t->shape.C);
    n->dweight = doubles(t->shape.C);
    n->dbias = doubles(t->shape.C);
    n->dweight_magnitude = doubles(t->shape.C);
    n->dbias_magnitude = doubles(t->shape.C);
    n->allowed = doubles(t->shape.rows);
    for (size_t c = 0; c < t->shape.C; c++) {
        n->dweight[c] = typed_at(&t->dweight, c);
        n->dbias[c] = typed_at(&t->dbias, c);
        n->dweight_magnitude[c] = 1.0;
        n->dbias_magnitude[c] = 1.0;
    }
    for (size_t row = 0; row < t->shape.rows; row++) {
        naive_row(n, t, row);
    }
}

static void naive_free(struct naive *n)
{
    free(n->din);
    free(n->dweight);
    free(n->dbias);
    free(n->dweight_magnitude);
    free(n->dbias_magnitude);
    free(n->allowed);
}

/* `residual`: what must have been added to din, NULL for nothing. */
static void check_din(const struct tensors *t, const struct naive *n, const struct typed *din,
                      const struct typed *residual)
{
    const size_t C = t->shape.C;

    for (size_t at = 0; at < t->shape.rows * C; at++) {
        const double found = typed_at(din, at);
        const double want = n->din[at] + (residual != NULL ? (double)typed_at(residual, at) : 0.0);
        const double allowed = tolerance_kept(t->type, want, n->allowed[at / C]);
        if (!(fabs(found - want) <= allowed)) {
            fail_msg("din (%zu,%zu) of width %zu in %s: expected %.9g, found %.9g, allowed %.3g",
                     at / C, at % C, C, dtype_text(t->type), want, found, allowed);
        }
    }
}

static void check_column_sums(const struct tensors *t, const struct naive *n)
{
    const size_t terms = t->shape.rows + 1;
    double worst = 0.0; /* the largest error of a normed value in any row */

    for (size_t row = 0; row < t->shape.rows; row++) {
        const struct row_stats stats =
            naive_stats(t->in_wide.floats + row * t->shape.C, t->shape.C);
        worst = fmax(worst, normed_error(&stats, t->shape.C));
    }
    for (size_t c = 0; c < t->shape.C; c++) {
        const double dweight_error = fabs((double)typed_at(&t->dweight, c) - n->dweight[c]);
        const double dbias_error = fabs((double)typed_at(&t->dbias, c) - n->dbias[c]);
        assert_true(dweight_error <= tolerance_fp32(n->dweight_magnitude[c], terms, 3) +
                                         worst * n->dbias_magnitude[c]);
        assert_true(dbias_error <= tolerance_fp32(n->dbias_magnitude[c], terms, 0));
    }
}

struct backward_case {
    enum dtype type;
    enum target target;
    int with_residual;
    struct typed first[SHAPES];
    struct typed first_sums[SHAPES][2];
};

static void check_backward(const struct kernel_ops *ops, struct stream *stream, int threads,
                           void *context)
{
    struct backward_case *test = context;

    for (size_t i = 0; i < SHAPES; i++) {
        struct tensors t;
        struct naive n;
        struct typed residual;
        struct typed *din = &t.din;
        tensors_make(&t, &shapes[i], test->type, ops, threads);
        if (test->target != TARGET_OWN) {
            din = test->target == TARGET_DOUT ? &t.dout : &t.dresidual;
        }
        naive_make(&n, &t);
        typed_copy(&residual, &t.dresidual);
        assert_int_equal(run_forward(ops, &t, t.out.data, stream), STATUS_OK);
        run_backward(ops, &t, din->data, test->with_residual ? t.dresidual.data : NULL, stream);
        check_din(&t, &n, din, test->with_residual ? &residual : NULL);
        check_column_sums(&t, &n);
        keep_or_compare(&test->first[i], din, threads);
        keep_or_compare(&test->first_sums[i][0], &t.dweight, threads);
        keep_or_compare(&test->first_sums[i][1], &t.dbias, threads);
        naive_free(&n);
        typed_free(&residual);
        tensors_free(&t);
    }
}

/* Without a residual, where it is not the target, and with one; in the first `types` formats. */
static void check_targets(enum target target, int types)
{
    for (int type = 0; type < types; type++) {
        struct backward_case test = {.type = (enum dtype)type, .target = target};

        if (target != TARGET_RESIDUAL) {
            on_each_variant_and_team(check_backward, &test);
        }
        test.with_residual = 1;
        on_each_variant_and_team(check_backward, &test);
    }
}

static void gradients_follow_the_formula_whatever_the_team(void **state)
{
    (void)state;
    check_targets(TARGET_OWN, DTYPES);
}

static void the_input_gradient_may_replace_what_it_is_made_of(void **state)
{
    (void)state;
    check_targets(TARGET_RESIDUAL, DTYPES);
    check_targets(TARGET_DOUT, DTYPE_FP32 + 1);
}

/* The same numbers in fp32 take the same way, so only the last rounding tells the formats apart;
 * the sums over rows have the same bits. */
static void check_against_fp32(const struct kernel_ops *ops, struct stream *stream, int threads,
                               void *context)
{
    for (size_t i = 0; i < SHAPES; i++) {
        struct tensors t;
        struct tensors wide;
        tensors_make(&t, &shapes[i], *(const enum dtype *)context, ops, threads);
        tensors_make(&wide, &shapes[i], DTYPE_FP32, ops, threads);
        for (size_t at = 0; at < t.in.elems; at++) {
            typed_set(&wide.in, at, typed_at(&t.in, at));
            typed_set(&wide.dresidual, at, typed_at(&t.dresidual, at));
        }
        for (int side = 0; side < 2; side++) {
            struct tensors *one = side == 0 ? &t : &wide;
            assert_int_equal(run_forward(ops, one, one->out.data, stream), STATUS_OK);
            run_backward(ops, one, one->din.data, one->dresidual.data, stream);
        }
        for (size_t at = 0; at < t.in.elems; at++) {
            assert_true(typed_at(&t.out, at) == dtype_round(t.type, typed_at(&wide.out, at)));
            assert_true(typed_at(&t.din, at) == dtype_round(t.type, typed_at(&wide.din, at)));
        }
        guarded_equal(&t.mean, &wide.mean);
        guarded_equal(&t.rstd, &wide.rstd);
        typed_equal(&t.dweight, &wide.dweight);
        typed_equal(&t.dbias, &wide.dbias);
        tensors_free(&t);
        tensors_free(&wide);
    }
}

static void sixteen_bits_are_fp32_rounded_once(void **state)
{
    (void)state;
    check_types(check_against_fp32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_normed_scaled_and_shifted_whatever_the_team),
        cmocka_unit_test(a_constant_row_gives_the_bias),
        cmocka_unit_test(gradients_follow_the_formula_whatever_the_team),
        cmocka_unit_test(the_input_gradient_may_replace_what_it_is_made_of),
        cmocka_unit_test(sixteen_bits_are_fp32_rounded_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

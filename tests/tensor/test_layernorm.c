#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"
#include "on_each.h"
#include "tensor/kernels.h"
#include "tolerance.h"

#define EPS 1e-5

struct shape {
    size_t rows;
    size_t C;
};

/* Fewer columns than lanes, more than lanes and odd; more rows than a block, and more than the
 * most blocks have at their least size. */
static const struct shape shapes[] = {{1, 2},   {3, 5},    {5, 67}, {70, 33},
                                      {2, 768}, {2100, 3}, {0, 4}};

#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

enum target {
    TARGET_OWN,
    TARGET_DOUT,
    TARGET_RESIDUAL
};

struct tensors {
    struct shape shape;
    struct guarded in;
    struct guarded weight;
    struct guarded bias;
    struct guarded out;
    struct guarded mean;
    struct guarded rstd;
    struct guarded dout;
    struct guarded dresidual;
    struct guarded din;
    struct guarded dweight;
    struct guarded dbias;
    struct guarded partials;
};

static void tensors_make(struct tensors *t, const struct shape *s, int threads)
{
    t->shape = *s;
    guarded_make(&t->in, s->rows * s->C);
    guarded_make(&t->weight, s->C);
    guarded_make(&t->bias, s->C);
    guarded_make(&t->out, s->rows * s->C);
    guarded_make(&t->mean, s->rows);
    guarded_make(&t->rstd, s->rows);
    guarded_make(&t->dout, s->rows * s->C);
    guarded_make(&t->dresidual, s->rows * s->C);
    guarded_make(&t->din, s->rows * s->C);
    guarded_make(&t->dweight, s->C);
    guarded_make(&t->dbias, s->C);
    guarded_make(&t->partials, layernorm_partials_floats(s->C, threads));
    guarded_fill(&t->in, 1, 2.0F);
    guarded_fill(&t->weight, 2, 1.0F);
    guarded_fill(&t->bias, 3, 1.0F);
    guarded_fill(&t->dout, 4, 1.0F);
    guarded_fill(&t->dresidual, 5, 1.0F);
    guarded_fill(&t->dweight, 6, 1.0F);
    guarded_fill(&t->dbias, 7, 1.0F);
    for (size_t i = 0; i < s->rows * s->C; i++) {
        t->in.floats[i] += 0.5F;
    }
}

static void tensors_free(struct tensors *t)
{
    guarded_free(&t->in);
    guarded_free(&t->weight);
    guarded_free(&t->bias);
    guarded_free(&t->out);
    guarded_free(&t->mean);
    guarded_free(&t->rstd);
    guarded_free(&t->dout);
    guarded_free(&t->dresidual);
    guarded_free(&t->din);
    guarded_free(&t->dweight);
    guarded_free(&t->dbias);
    guarded_free(&t->partials);
}

static enum status run_forward(const struct kernel_ops *ops, struct tensors *t, float *out,
                               struct stream *stream)
{
    return ops->layernorm_forward(out, t->mean.floats, t->rstd.floats, t->in.floats,
                                  t->weight.floats, t->bias.floats, t->shape.rows, t->shape.C,
                                  (float)EPS, stream);
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

static void check_forward_row(const struct tensors *t, const float *in, const float *out,
                              size_t row)
{
    const size_t C = t->shape.C;
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
        if (!(fabs((double)out[row * C + c] - want) <= allowed)) {
            fail_msg("(%zu,%zu) of width %zu: expected %.9g, found %.9g", row, c, C, want,
                     (double)out[row * C + c]);
        }
    }
}

static void check_forward(const struct kernel_ops *ops, struct stream *stream, int threads,
                          void *context)
{
    struct guarded *first = context;

    for (size_t i = 0; i < SHAPES; i++) {
        struct tensors t;
        tensors_make(&t, &shapes[i], threads);
        assert_int_equal(run_forward(ops, &t, t.out.floats, stream), STATUS_OK);
        for (size_t row = 0; row < t.shape.rows; row++) {
            check_forward_row(&t, t.in.floats, t.out.floats, row);
        }
        if (threads == 1) {
            guarded_copy(&first[i], &t.out);
        }
        guarded_equal(&t.out, &first[i]);
        if (threads == ON_EACH_MOST_THREADS) {
            guarded_free(&first[i]);
        }
        assert_int_equal(run_forward(ops, &t, t.in.floats, stream), STATUS_OK);
        guarded_equal(&t.in, &t.out);
        tensors_free(&t);
    }
}

static void rows_are_normed_scaled_and_shifted_whatever_the_team(void **state)
{
    struct guarded first[SHAPES];

    (void)state;
    on_each_variant_and_team(check_forward, first);
}

/* A row of equal numbers has no variance: eps decides, the output is the bias. */
static void check_constant_row(const struct kernel_ops *ops, struct stream *stream, int threads,
                               void *context)
{
    const struct shape s = {2, 40};
    struct tensors t;

    (void)context;
    tensors_make(&t, &s, threads);
    for (size_t i = 0; i < 80; i++) {
        t.in.floats[i] = 3.0F;
    }
    assert_int_equal(run_forward(ops, &t, t.out.floats, stream), STATUS_OK);
    for (size_t i = 0; i < 80; i++) {
        assert_true(t.out.floats[i] == t.bias.floats[i % 40]);
    }
    assert_true(fabs((double)t.rstd.floats[1] * sqrt(EPS) - 1.0) < 1e-6);
    tensors_free(&t);
}

static void a_constant_row_gives_the_bias(void **state)
{
    (void)state;
    on_each_variant_and_team(check_constant_row, NULL);
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
    const float *in = t->in.floats + row * C;
    const float *dout = t->dout.floats + row * C;
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
        n->dweight[c] = t->dweight.floats[c];
        n->dbias[c] = t->dbias.floats[c];
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
static void check_din(const struct tensors *t, const struct naive *n, const float *din,
                      const float *residual)
{
    const size_t C = t->shape.C;

    for (size_t at = 0; at < t->shape.rows * C; at++) {
        const double want = n->din[at] + (residual != NULL ? (double)residual[at] : 0.0);
        if (!(fabs((double)din[at] - want) <= n->allowed[at / C])) {
            fail_msg("din (%zu,%zu) of width %zu: expected %.9g, found %.9g, allowed %.3g", at / C,
                     at % C, C, want, (double)din[at], n->allowed[at / C]);
        }
    }
}

static void check_column_sums(const struct tensors *t, const struct naive *n)
{
    const size_t terms = t->shape.rows + 1;
    double worst = 0.0; /* the largest error of a normed value in any row */

    for (size_t row = 0; row < t->shape.rows; row++) {
        const struct row_stats stats = naive_stats(t->in.floats + row * t->shape.C, t->shape.C);
        worst = fmax(worst, normed_error(&stats, t->shape.C));
    }
    for (size_t c = 0; c < t->shape.C; c++) {
        const double dweight_error = fabs((double)t->dweight.floats[c] - n->dweight[c]);
        const double dbias_error = fabs((double)t->dbias.floats[c] - n->dbias[c]);
        assert_true(dweight_error <= tolerance_fp32(n->dweight_magnitude[c], terms, 3) +
                                         worst * n->dbias_magnitude[c]);
        assert_true(dbias_error <= tolerance_fp32(n->dbias_magnitude[c], terms, 0));
    }
}

struct backward_case {
    enum target target;
    int with_residual;
    struct guarded first[SHAPES][3];
};

static void keep_or_compare(struct guarded *first, const struct guarded *result, int threads)
{
    if (threads == 1) {
        guarded_copy(first, result);
    }
    guarded_equal(first, result);
    if (threads == ON_EACH_MOST_THREADS) {
        guarded_free(first);
    }
}

static void check_backward(const struct kernel_ops *ops, struct stream *stream, int threads,
                           void *context)
{
    struct backward_case *test = context;

    for (size_t i = 0; i < SHAPES; i++) {
        struct tensors t;
        struct naive n;
        struct guarded residual;
        struct guarded *din = &t.din;
        tensors_make(&t, &shapes[i], threads);
        if (test->target != TARGET_OWN) {
            din = test->target == TARGET_DOUT ? &t.dout : &t.dresidual;
        }
        naive_make(&n, &t);
        guarded_copy(&residual, &t.dresidual);
        assert_int_equal(run_forward(ops, &t, t.out.floats, stream), STATUS_OK);
        assert_int_equal(
            ops->layernorm_backward(din->floats, t.dweight.floats, t.dbias.floats, t.dout.floats,
                                    test->with_residual ? t.dresidual.floats : NULL, t.in.floats,
                                    t.weight.floats, t.mean.floats, t.rstd.floats, t.shape.rows,
                                    t.shape.C, t.partials.floats, stream),
            STATUS_OK);
        check_din(&t, &n, din->floats, test->with_residual ? residual.floats : NULL);
        check_column_sums(&t, &n);
        keep_or_compare(&test->first[i][0], din, threads);
        keep_or_compare(&test->first[i][1], &t.dweight, threads);
        keep_or_compare(&test->first[i][2], &t.dbias, threads);
        naive_free(&n);
        guarded_free(&residual);
        tensors_free(&t);
    }
}

static void gradients_follow_the_formula_whatever_the_team(void **state)
{
    struct backward_case test = {.target = TARGET_OWN};

    (void)state;
    on_each_variant_and_team(check_backward, &test);
    test.with_residual = 1;
    on_each_variant_and_team(check_backward, &test);
}

static void the_input_gradient_may_replace_an_operand(void **state)
{
    struct backward_case test = {.target = TARGET_DOUT};

    (void)state;
    on_each_variant_and_team(check_backward, &test);
    test.with_residual = 1;
    on_each_variant_and_team(check_backward, &test);
    test.target = TARGET_RESIDUAL;
    on_each_variant_and_team(check_backward, &test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_normed_scaled_and_shifted_whatever_the_team),
        cmocka_unit_test(a_constant_row_gives_the_bias),
        cmocka_unit_test(gradients_follow_the_formula_whatever_the_team),
        cmocka_unit_test(the_input_gradient_may_replace_an_operand),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "gemm_problem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tolerance.h"

void problem_make(struct problem *p, enum gemm_op op_a, enum gemm_op op_b, size_t M, size_t N,
                  size_t K, size_t pad)
{
    const size_t a_rows = op_a == GEMM_PLAIN ? M : K;
    const size_t b_rows = op_b == GEMM_PLAIN ? K : N;

    memset(p, 0, sizeof(*p));
    p->pad = pad;
    p->gemm = (struct gemm){.op_a = op_a, .op_b = op_b, .M = M, .N = N, .K = K, .alpha = 1.0F};
    p->gemm.lda = (op_a == GEMM_PLAIN ? K : M) + pad;
    p->gemm.ldb = (op_b == GEMM_PLAIN ? N : K) + pad;
    p->gemm.ldc = N + pad;
    guarded_make(&p->a, a_rows * p->gemm.lda);
    guarded_make(&p->b, b_rows * p->gemm.ldb);
    guarded_make(&p->c, M * p->gemm.ldc);
    guarded_fill(&p->a, 1, 1.0F);
    guarded_fill(&p->b, 2, 1.0F);
    p->gemm.a = p->a.floats;
    p->gemm.b = p->b.floats;
    p->gemm.c = p->c.floats;
}

void problem_free(struct problem *p)
{
    guarded_free(&p->a);
    guarded_free(&p->b);
    guarded_free(&p->c);
}

/* The element of op(A)·op(B), and the sum of the magnitudes of its terms. */
static double naive_element(const struct gemm *g, size_t row, size_t column, double *magnitude)
{
    double sum = 0.0;

    *magnitude = 0.0;
    for (size_t k = 0; k < g->K; k++) {
        const size_t at_a = g->op_a == GEMM_PLAIN ? row * g->lda + k : k * g->lda + row;
        const size_t at_b = g->op_b == GEMM_PLAIN ? k * g->ldb + column : column * g->ldb + k;
        const double term =
            (double)((const float *)g->a)[at_a] * (double)((const float *)g->b)[at_b];
        sum += term;
        *magnitude += fabs(term);
    }
    return sum;
}

/* `before`: what C was, NULL where it is not read. */
static void assert_element(const struct gemm *g, const float *before, size_t row, size_t column)
{
    const size_t at = row * g->ldc + column;
    double magnitude = 0.0;
    double want = (double)g->alpha * naive_element(g, row, column, &magnitude);

    magnitude *= fabs((double)g->alpha);
    if (before != NULL) {
        want += (double)g->beta * (double)before[at];
        magnitude += fabs((double)g->beta * (double)before[at]);
    }
    const double found = (double)((const float *)g->c)[at];
    const double error = fabs(found - want);
    if (!(error <= tolerance_fp32(magnitude, g->K, 3))) {
        fail_msg("%zux%zux%zu ops %d %d, element (%zu,%zu): expected %.9g, found %.9g", g->M, g->N,
                 g->K, (int)g->op_a, (int)g->op_b, row, column, want, found);
    }
}

void assert_product(const struct problem *p, const float *before)
{
    for (size_t row = 0; row < p->gemm.M; row++) {
        for (size_t column = 0; column < p->gemm.N; column++) {
            assert_element(&p->gemm, before, row, column);
        }
    }
}

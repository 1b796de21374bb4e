#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "head_stream.h"
#include "tensor/gemm.h"
#include "tensor/kernels.h"
#include "tolerance.h"
#include "typed.h"

#define TEAMS 3

/* M, N, K: rows that are whole packs and rows that are not, one element, no row, no column, nothing to sum. */
static const size_t shapes[][3] = {{1, 1, 1},    {3, 7, 5}, {5, 16, 9}, {33, 40, 24}, {70, 64, 8},
                                   {2, 257, 12}, {0, 8, 4}, {4, 0, 3},  {6, 24, 0},   {9, 12, 31}};

#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static double gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(0.79788456 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double u = 0.79788456 * (x + 0.044715 * x * x * x);
    double t = tanh(u);

    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.79788456 * (1.0 + 3.0 * 0.044715 * x * x);
}

/* All three operations on one product; each has a c of its own. */
struct projection_case {
    enum dtype type;
    enum gemm_op op_b;
    size_t M;
    size_t N;
    size_t K;
    struct typed a;
    struct typed b;
    struct typed bias;
    struct typed kept; /* the input of gelu' */
    struct typed biased;
    struct typed pre;
    struct typed out;
    struct typed din;
    struct guarded dbias;
};

static void case_make(struct projection_case *c, enum dtype type, const size_t *shape,
                      enum gemm_op op_b)
{
    *c = (struct projection_case){
        .type = type, .op_b = op_b, .M = shape[0], .N = shape[1], .K = shape[2]};
    typed_make(&c->a, type, c->M * c->K);
    typed_make(&c->b, type, c->K * c->N);
    typed_make(&c->bias, type, c->N);
    typed_make(&c->kept, type, c->M * c->N);
    typed_make(&c->biased, type, c->M * c->N);
    typed_make(&c->pre, type, c->M * c->N);
    typed_make(&c->out, type, c->M * c->N);
    typed_make(&c->din, type, c->M * c->N);
    guarded_make(&c->dbias, c->N);
    typed_fill(&c->a, 1, 1.0F);
    typed_fill(&c->b, 2, 1.0F);
    typed_fill(&c->bias, 3, 2.0F);
    typed_fill(&c->kept, 4, 4.0F);
    guarded_fill(&c->dbias, 5, 1.0F);
}

static void case_free(struct projection_case *c)
{
    typed_free(&c->a);
    typed_free(&c->b);
    typed_free(&c->bias);
    typed_free(&c->kept);
    typed_free(&c->biased);
    typed_free(&c->pre);
    typed_free(&c->out);
    typed_free(&c->din);
    guarded_free(&c->dbias);
}

static struct gemm product_into(const struct projection_case *c, const struct typed *result)
{
    return (struct gemm){
        .op_b = c->op_b,
        .a_type = c->type,
        .b_type = c->type,
        .c_type = c->type,
        .M = c->M,
        .N = c->N,
        .K = c->K,
        .alpha = 1.0F,
        .a = c->a.data,
        .b = c->b.data,
        .c = result->data,
        .lda = c->K,
        .ldb = c->op_b == GEMM_PLAIN ? c->N : c->K,
        .ldc = c->N,
    };
}

static void case_run(const struct kernel_ops *ops, struct projection_case *c, int threads)
{
    const struct gemm biased = product_into(c, &c->biased);
    const struct gemm pre = product_into(c, &c->pre);
    const struct gemm din = product_into(c, &c->din);
    struct stream *stream = NULL;

    head_stream_open(threads, c->type, &stream);
    assert_int_equal(ops->projection_bias(&biased, c->bias.data, stream), STATUS_OK);
    assert_int_equal(ops->projection_gelu(c->out.data, &pre, c->bias.data, stream), STATUS_OK);
    assert_int_equal(ops->projection_gelu_backward(&din, c->dbias.floats, c->kept.data, stream),
                     STATUS_OK);
    head_stream_wait(stream);
    head_stream_close(&stream);
}

struct sum {
    double value;
    double allowed; /* of a sum in fp32 */
};

static struct sum product_at(const struct projection_case *c, size_t i, size_t j)
{
    struct sum sum = {0.0, 0.0};

    for (size_t k = 0; k < c->K; k++) {
        const size_t at = c->op_b == GEMM_PLAIN ? k * c->N + j : j * c->K + k;
        const double term = (double)typed_at(&c->a, i * c->K + k) * (double)typed_at(&c->b, at);

        sum.value += term;
        sum.allowed += fabs(term);
    }
    sum.allowed = tolerance_fp32(sum.allowed, c->K, 4);
    return sum;
}

/* `allowed` is that of fp32. A device may keep the product in the type before it goes on, so that it is off by
 * `slope` times as much as is lost then. */
static void check_kept(const struct typed *kept, size_t i, double want, struct sum product,
                       double slope, const char *what)
{
    const double before = tolerance_kept(kept->type, product.value, product.allowed);
    const double allowed =
        fabs(slope) * before + tolerance_fp32(fabs(want) + fabs(product.value), 1, 8);
    const double error = fabs((double)typed_at(kept, i) - want);

    if (!(error <= tolerance_kept(kept->type, want, allowed))) {
        fail_msg("%s[%zu] in %s: expected %.9g, off by %.3g", what, i, dtype_text(kept->type), want,
                 error);
    }
}

static void check_numbers(const struct projection_case *c, const struct guarded *dbias_was)
{
    double *dbias = calloc(c->N + 1, sizeof(*dbias));

    assert_non_null(dbias);
    for (size_t j = 0; j < c->N; j++) {
        dbias[j] = (double)dbias_was->floats[j];
    }
    for (size_t at = 0; at < c->M * c->N; at++) {
        const size_t j = at % c->N;
        const struct sum product = product_at(c, at / c->N, j);
        const double biased = product.value + (double)typed_at(&c->bias, j);
        const double slope = gelu_slope((double)typed_at(&c->kept, at));
        const double pre = (double)typed_at(&c->pre, at);

        check_kept(&c->biased, at, biased, product, 1.0, "biased");
        check_kept(&c->pre, at, biased, product, 1.0, "pre");
        assert_true(fabs((double)typed_at(&c->out, at) - gelu(pre)) <=
                    tolerance_kept(c->type, gelu(pre), 2e-6));
        check_kept(&c->din, at, product.value * slope, product, slope, "din");
        dbias[j] += (double)typed_at(&c->din, at);
    }
    guarded_close(&c->dbias, dbias, 2e-6 * (double)(c->M + 1), "dbias");
    free(dbias);
}

typedef void (*check_fn)(const struct kernel_ops *ops, enum dtype type, const size_t *shape,
                         enum gemm_op op_b);

static void on_each(check_fn check)
{
    for (size_t table = 0; head_table(table) != NULL; table++) {
        for (int type = 0; type < DTYPES; type++) {
            for (size_t s = 0; s < SHAPES; s++) {
                check(head_table(table), (enum dtype)type, shapes[s], GEMM_PLAIN);
                check(head_table(table), (enum dtype)type, shapes[s], GEMM_TRANSPOSED);
            }
        }
    }
}

static void check_case(const struct kernel_ops *ops, enum dtype type, const size_t *shape,
                       enum gemm_op op_b)
{
    struct projection_case c;
    struct guarded dbias_was;

    case_make(&c, type, shape, op_b);
    guarded_copy(&dbias_was, &c.dbias);
    case_run(ops, &c, 1);
    check_numbers(&c, &dbias_was);
    guarded_free(&dbias_was);
    case_free(&c);
}

static void each_equals_the_double_precision_loops(void **state)
{
    (void)state;
    on_each(check_case);
}

/* The team's size decides how a product is split only where that changes no bit of so small a one. */
static void check_again(const struct kernel_ops *ops, enum dtype type, const size_t *shape,
                        enum gemm_op op_b)
{
    struct projection_case first;

    case_make(&first, type, shape, op_b);
    case_run(ops, &first, 1);
    for (int threads = 2; threads <= TEAMS; threads++) {
        struct projection_case again;

        case_make(&again, type, shape, op_b);
        case_run(ops, &again, threads);
        typed_equal(&again.biased, &first.biased);
        typed_equal(&again.pre, &first.pre);
        typed_equal(&again.out, &first.out);
        typed_equal(&again.din, &first.din);
        guarded_equal(&again.dbias, &first.dbias);
        case_free(&again);
    }
    case_free(&first);
}

static void a_team_of_any_size_gives_the_same_bits(void **state)
{
    (void)state;
    on_each(check_again);
}

static void check_recomputed(const struct kernel_ops *ops, enum dtype type, const size_t *shape,
                             enum gemm_op op_b)
{
    struct projection_case c;
    struct typed again;
    struct stream *stream = NULL;

    case_make(&c, type, shape, op_b);
    case_run(ops, &c, 1);
    typed_make(&again, type, c.out.elems);
    head_stream_open(1, type, &stream);
    assert_int_equal(ops->gelu_forward(again.data, c.pre.data, c.pre.elems, type, stream),
                     STATUS_OK);
    head_stream_wait(stream);
    head_stream_close(&stream);
    typed_equal(&again, &c.out);
    typed_equal(&c.pre, &c.biased);
    typed_free(&again);
    case_free(&c);
}

static void gelu_made_again_has_the_same_bits(void **state)
{
    (void)state;
    on_each(check_recomputed);
}

/* The bits of a device that has no epilogues. */
static void check_parts(const struct kernel_ops *ops, enum dtype type, const size_t *shape,
                        enum gemm_op op_b)
{
    struct projection_case whole;
    struct projection_case parts;
    struct gemm product;
    struct stream *stream = NULL;

    case_make(&whole, type, shape, op_b);
    case_run(ops, &whole, 1);
    case_make(&parts, type, shape, op_b);
    head_stream_open(1, type, &stream);
    product = product_into(&parts, &parts.pre);
    assert_int_equal(ops->gemm(&product, stream), STATUS_OK);
    assert_int_equal(ops->bias_gelu_forward(parts.out.data, parts.pre.data, parts.bias.data,
                                            parts.M, parts.N, type, stream),
                     STATUS_OK);
    product = product_into(&parts, &parts.din);
    assert_int_equal(ops->gemm(&product, stream), STATUS_OK);
    assert_int_equal(ops->bias_gelu_backward(parts.din.data, parts.dbias.floats, parts.din.data,
                                             parts.kept.data, parts.M, parts.N, type, stream),
                     STATUS_OK);
    head_stream_close(&stream);
    typed_equal(&whole.pre, &parts.pre);
    typed_equal(&whole.out, &parts.out);
    typed_equal(&whole.din, &parts.din);
    guarded_equal(&whole.dbias, &parts.dbias);
    case_free(&parts);
    case_free(&whole);
}

static void without_epilogues_it_is_the_parts_one_after_another(void **state)
{
    (void)state;
    on_each(check_parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_equals_the_double_precision_loops),
        cmocka_unit_test(a_team_of_any_size_gives_the_same_bits),
        cmocka_unit_test(gelu_made_again_has_the_same_bits),
    };
    const struct CMUnitTest of_parts[] = {
        cmocka_unit_test(without_epilogues_it_is_the_parts_one_after_another),
    };
    const int failed = cmocka_run_group_tests_name("projection", tests, NULL, NULL);

    return head_has_epilogues()
               ? failed
               : failed + cmocka_run_group_tests_name("projection_parts", of_parts, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"
#include "product.h"
#include "tensor/gemm.h"
#include "tensor/stream.h"
#include "tolerance.h"

#define MOST_THREADS 3

/* What a product is made of, before memory. */
struct plan {
    enum gemm_op op_a;
    enum gemm_op op_b;
    enum dtype a_type;
    enum dtype b_type;
    enum dtype c_type;
    size_t M;
    size_t N;
    size_t K;
    size_t pad; /* elements between rows beyond their length */
};

/* A matrix as it is stored: the numbers, each of the matrix's type, and their bits. */
struct matrix {
    enum dtype type;
    size_t elems;
    float *numbers;
    void *bits;
};

struct problem {
    struct gemm gemm;
    struct matrix a;
    struct matrix b;
    double *a_rows;    /* op(A) (M,K), for the naive sum */
    double *b_columns; /* op(B)ᵀ (N,K) */
    struct guarded c;  /* holds C, of whatever type */
};

static float number_at(const void *bits, enum dtype type, size_t i)
{
    if (type == DTYPE_FP32) {
        return ((const float *)bits)[i];
    }
    const uint16_t half = ((const uint16_t *)bits)[i];
    return type == DTYPE_BF16 ? dtype_from_bf16(half) : dtype_from_fp16(half);
}

static void put_number(void *bits, enum dtype type, size_t i, float number)
{
    if (type == DTYPE_FP32) {
        ((float *)bits)[i] = number;
        return;
    }
    ((uint16_t *)bits)[i] = type == DTYPE_BF16 ? dtype_to_bf16(number) : dtype_to_fp16(number);
}

/* Exactly as large as its elements, so that a sanitizer sees what reads beyond. */
static void matrix_make(struct matrix *matrix, enum dtype type, size_t elems, uint32_t seed)
{
    uint32_t state = seed * 2654435761U + 1U;

    *matrix = (struct matrix){.type = type, .elems = elems};
    matrix->numbers = malloc((elems + 1) * sizeof(float));
    matrix->bits = malloc(elems * dtype_bytes(type) + 1);
    assert_non_null(matrix->numbers);
    assert_non_null(matrix->bits);
    for (size_t i = 0; i < elems; i++) {
        state = state * 1664525U + 1013904223U;
        put_number(matrix->bits, type, i, (float)(state >> 8) * 0x1p-23F - 1.0F);
        matrix->numbers[i] = number_at(matrix->bits, type, i);
    }
}

static void matrix_free(struct matrix *matrix)
{
    free(matrix->numbers);
    free(matrix->bits);
}

/* The elements in the order in which the naive sum reads them: (rows, K). */
static double *in_lines(const struct matrix *matrix, size_t ld, bool along, size_t rows, size_t K)
{
    double *lines = malloc((rows * K + 1) * sizeof(*lines));

    assert_non_null(lines);
    for (size_t row = 0; row < rows; row++) {
        for (size_t k = 0; k < K; k++) {
            lines[row * K + k] = (double)matrix->numbers[along ? row * ld + k : k * ld + row];
        }
    }
    return lines;
}

static void problem_make(struct problem *p, const struct plan *plan)
{
    const bool a_along = plan->op_a == GEMM_PLAIN;
    const bool b_along = plan->op_b == GEMM_TRANSPOSED;
    struct gemm *g = &p->gemm;

    *g = (struct gemm){.op_a = plan->op_a,
                       .op_b = plan->op_b,
                       .a_type = plan->a_type,
                       .b_type = plan->b_type,
                       .c_type = plan->c_type,
                       .M = plan->M,
                       .N = plan->N,
                       .K = plan->K,
                       .alpha = 1.0F,
                       .lda = (a_along ? plan->K : plan->M) + plan->pad,
                       .ldb = (b_along ? plan->K : plan->N) + plan->pad,
                       .ldc = plan->N + plan->pad};
    matrix_make(&p->a, plan->a_type, (a_along ? plan->M : plan->K) * g->lda, 1);
    matrix_make(&p->b, plan->b_type, (b_along ? plan->N : plan->K) * g->ldb, 2);
    p->a_rows = in_lines(&p->a, g->lda, a_along, plan->M, plan->K);
    p->b_columns = in_lines(&p->b, g->ldb, b_along, plan->N, plan->K);
    guarded_make(&p->c, (plan->M * g->ldc * dtype_bytes(plan->c_type) + 3) / 4);
    g->a = p->a.bits;
    g->b = p->b.bits;
    g->c = p->c.floats;
}

static void problem_free(struct problem *p)
{
    matrix_free(&p->a);
    matrix_free(&p->b);
    free(p->a_rows);
    free(p->b_columns);
    guarded_free(&p->c);
}

/* NaN in every type. */
static void poison_c(struct problem *p)
{
    memset(p->c.floats, 0xFF, p->c.elems * sizeof(float));
}

/* Rounding keeps order, so a result whose sum may be anywhere within the bounds is between the
 * rounded bounds; nothing between a sum and its rounding is allowed. `before`: NULL where C was not
 * read. */
static void assert_element(const struct problem *p, const struct guarded *before, size_t row,
                           size_t column)
{
    const struct gemm *g = &p->gemm;
    const size_t at = row * g->ldc + column;
    double sum = 0.0;
    double magnitude = 0.0;

    for (size_t k = 0; k < g->K; k++) {
        const double term = p->a_rows[row * g->K + k] * p->b_columns[column * g->K + k];
        sum += term;
        magnitude += fabs(term);
    }
    sum *= (double)g->alpha;
    magnitude *= fabs((double)g->alpha);
    if (before != NULL) {
        sum += (double)g->beta * (double)before->floats[at];
        magnitude += fabs((double)g->beta * (double)before->floats[at]);
    }
    const double allowed = tolerance_fp32(magnitude, g->K, 3);
    const float found = number_at(g->c, g->c_type, at);
    const float least = dtype_round(g->c_type, nextafterf((float)(sum - allowed), -INFINITY));
    const float most = dtype_round(g->c_type, nextafterf((float)(sum + allowed), INFINITY));
    if (!(found >= least && found <= most)) {
        fail_msg("%zux%zux%zu ops %d %d, %s x %s to %s, element (%zu,%zu): expected %.9g to %.9g, "
                 "found %.9g",
                 g->M, g->N, g->K, (int)g->op_a, (int)g->op_b, dtype_text(g->a_type),
                 dtype_text(g->b_type), dtype_text(g->c_type), row, column, (double)least,
                 (double)most, (double)found);
    }
}

/* Every `stride`-th element, and the last row and column. */
static void assert_product(const struct problem *p, const struct guarded *before, size_t stride)
{
    for (size_t row = 0; row < p->gemm.M; row++) {
        for (size_t column = 0; column < p->gemm.N; column++) {
            if ((row * 7 + column) % stride == 0 || row + 1 == p->gemm.M ||
                column + 1 == p->gemm.N) {
                assert_element(p, before, row, column);
            }
        }
    }
}

/* Overwrites, then where C is fp32 adds half the product to it. */
static void check_product(const struct plan *plan, struct stream *stream, size_t stride)
{
    struct problem p;
    struct guarded before;

    if (!product_takes(plan->a_type, plan->b_type, plan->c_type)) {
        return;
    }
    problem_make(&p, plan);
    poison_c(&p);
    assert_int_equal(product_run(&p.gemm, stream), STATUS_OK);
    assert_product(&p, NULL, stride);
    if (plan->c_type == DTYPE_FP32) {
        guarded_fill(&p.c, 3, 1.0F);
        guarded_copy(&before, &p.c);
        p.gemm.alpha = 0.5F;
        p.gemm.beta = 1.0F;
        assert_int_equal(product_run(&p.gemm, stream), STATUS_OK);
        assert_product(&p, &before, stride);
        guarded_free(&before);
    }
    problem_free(&p);
}

static void plan_ops(struct plan *plan, int ops)
{
    plan->op_a = ops % 2 == 0 ? GEMM_PLAIN : GEMM_TRANSPOSED;
    plan->op_b = ops / 2 == 0 ? GEMM_PLAIN : GEMM_TRANSPOSED;
}

static void make_streams(struct stream *streams[MOST_THREADS])
{
    for (int i = 0; i < MOST_THREADS; i++) {
        streams[i] = NULL;
        assert_int_equal(stream_create(i + 1, &streams[i]), STATUS_OK);
        assert_int_equal(stream_reserve(streams[i], GEMM_SCRATCH_FLOATS), STATUS_OK);
    }
}

static void free_streams(struct stream *streams[MOST_THREADS])
{
    for (int i = 0; i < MOST_THREADS; i++) {
        stream_destroy(&streams[i]);
    }
}

/* Only the last is large enough to be split between the members of a team. */
static const size_t small[][3] = {{1, 1, 1},     {1, 100, 7},  {100, 1, 7},  {17, 31, 9},
                                  {129, 47, 53}, {5, 49, 401}, {71, 99, 101}};

static void check_small(const struct plan *types, struct stream *stream)
{
    const size_t count = sizeof(small) / sizeof(small[0]);
    struct plan plan = *types;

    for (size_t i = stream_threads(stream) > 1 ? count - 1 : 0; i < count; i++) {
        plan.M = small[i][0];
        plan.N = small[i][1];
        plan.K = small[i][2];
        plan.pad = i % 2 * 3;
        for (int ops = 0; ops < 4; ops++) {
            plan_ops(&plan, ops);
            check_product(&plan, stream, 1);
        }
    }
}

static void products_of_all_types_are_right_for_all_transposes_and_teams(void **state)
{
    struct stream *streams[MOST_THREADS];

    (void)state;
    make_streams(streams);
    for (int types = 0; types < DTYPES * DTYPES * DTYPES; types++) {
        const struct plan plan = {.a_type = (enum dtype)(types % DTYPES),
                                  .b_type = (enum dtype)(types / DTYPES % DTYPES),
                                  .c_type = (enum dtype)(types / DTYPES / DTYPES)};
        for (int i = 0; i < MOST_THREADS; i++) {
            check_small(&plan, streams[i]);
        }
    }
    free_streams(streams);
}

/* Two blocks or three along one of the axes or two of them, with every split of a team; the last
 * one's tiles are of several blocks in teams as well. */
static const size_t large[][3] = {{GEMM_BLOCK_ROWS + 7, 20, 30},
                                  {19, GEMM_BLOCK_COLUMNS + 1, 33},
                                  {25, 30, 2 * GEMM_BLOCK_DEPTH + 5},
                                  {GEMM_BLOCK_ROWS + 9, 33, GEMM_BLOCK_DEPTH + 1},
                                  {40, 2 * GEMM_BLOCK_COLUMNS + 50, GEMM_BLOCK_DEPTH + 3},
                                  {GEMM_BLOCK_ROWS + 80, GEMM_BLOCK_COLUMNS + 90, 17},
                                  {3 * GEMM_BLOCK_ROWS + 100, 50, 21}};

/* What the model multiplies: A, B, C. */
static const enum dtype used[][3] = {
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16}, {DTYPE_FP16, DTYPE_FP16, DTYPE_FP16},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_FP32}, {DTYPE_FP16, DTYPE_FP16, DTYPE_FP32},
    {DTYPE_FP32, DTYPE_BF16, DTYPE_FP32}, {DTYPE_FP32, DTYPE_FP16, DTYPE_FP32}};

static void check_large(const enum dtype types[3], int ops, struct stream *stream)
{
    struct plan plan = {.a_type = types[0], .b_type = types[1], .c_type = types[2]};

    plan_ops(&plan, ops);
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        plan.M = large[i][0];
        plan.N = large[i][1];
        plan.K = large[i][2];
        plan.pad = i % 3;
        check_product(&plan, stream, 97);
    }
}

static void products_beyond_a_block_are_right(void **state)
{
    struct stream *streams[MOST_THREADS];

    (void)state;
    make_streams(streams);
    for (size_t i = 0; i < sizeof(used) / sizeof(used[0]); i++) {
        for (int ops = 0; ops < 4; ops++) {
            check_large(used[i], ops, streams[(i + (size_t)ops) % MOST_THREADS]);
        }
    }
    free_streams(streams);
}

static void fill_scratch(void *context, int part, int parts)
{
    const struct stream *stream = context;

    (void)parts;
    memset(stream_scratch(stream, part), 0xFF, GEMM_SCRATCH_FLOATS * sizeof(float));
}

/* With what the product before left in scratch, with NaN in all of it, and in a stream with scratch
 * that nobody has used. */
static void check_bits(const struct plan *plan, struct stream *used_one)
{
    struct stream *fresh = NULL;
    struct problem p;
    struct guarded bits;

    assert_int_equal(stream_create(stream_threads(used_one), &fresh), STATUS_OK);
    assert_int_equal(stream_reserve(fresh, GEMM_SCRATCH_FLOATS), STATUS_OK);
    problem_make(&p, plan);
    poison_c(&p);
    assert_int_equal(product_run(&p.gemm, used_one), STATUS_OK);
    guarded_copy(&bits, &p.c);
    for (int round = 0; round < 3; round++) {
        if (round == 1) {
            stream_run(used_one, fill_scratch, used_one);
        }
        poison_c(&p);
        assert_int_equal(product_run(&p.gemm, round < 2 ? used_one : fresh), STATUS_OK);
        guarded_equal(&p.c, &bits);
    }
    guarded_free(&bits);
    problem_free(&p);
    stream_destroy(&fresh);
}

static void runs_are_repeated_to_the_bit_whatever_is_in_scratch(void **state)
{
    struct plan plan = {.M = GEMM_BLOCK_ROWS + 5, .N = 60, .K = GEMM_BLOCK_DEPTH + 6, .pad = 1};
    struct stream *streams[MOST_THREADS];

    (void)state;
    make_streams(streams);
    for (size_t i = 0; i < sizeof(used) / sizeof(used[0]); i++) {
        plan.a_type = used[i][0];
        plan.b_type = used[i][1];
        plan.c_type = used[i][2];
        plan_ops(&plan, (int)i % 4);
        const bool takes = product_takes(plan.a_type, plan.b_type, plan.c_type);
        for (int team = 0; takes && team < MOST_THREADS; team++) {
            check_bits(&plan, streams[team]);
        }
    }
    free_streams(streams);
}

static void rows_apart_keep_what_lies_between_them(void **state)
{
    const struct plan plan = {.a_type = DTYPE_BF16,
                              .b_type = DTYPE_BF16,
                              .c_type = DTYPE_BF16,
                              .M = 150,
                              .N = 130,
                              .K = 70,
                              .pad = 5};
    struct stream *streams[MOST_THREADS];
    struct problem p;

    (void)state;
    make_streams(streams);
    problem_make(&p, &plan);
    for (size_t i = 0; i < 150 * p.gemm.ldc; i++) {
        ((uint16_t *)p.gemm.c)[i] = 0x1234;
    }
    assert_int_equal(product_run(&p.gemm, streams[2]), STATUS_OK);
    assert_product(&p, NULL, 1);
    for (size_t row = 0; row < 150; row++) {
        for (size_t column = 130; column < 135; column++) {
            assert_int_equal(((uint16_t *)p.gemm.c)[row * p.gemm.ldc + column], 0x1234);
        }
    }
    problem_free(&p);
    free_streams(streams);
}

static void empty_products_are_zeros_of_their_type(void **state)
{
    struct plan plan = {.a_type = DTYPE_FP16, .b_type = DTYPE_FP16, .c_type = DTYPE_FP16, .pad = 1};
    struct stream *streams[MOST_THREADS];
    struct problem p;

    (void)state;
    make_streams(streams);
    plan.M = 3;
    plan.N = 5;
    problem_make(&p, &plan);
    poison_c(&p);
    assert_int_equal(product_run(&p.gemm, streams[1]), STATUS_OK);
    for (size_t i = 0; i < 18; i++) {
        assert_int_equal(((uint16_t *)p.gemm.c)[i], i % 6 < 5 ? 0 : 0xFFFF);
    }
    problem_free(&p);
    free_streams(streams);
}

/* 256 · 256 = 2^16: more than fp16 has; NaN and infinity in A and B reach their rows and columns
 * and nothing else. */
static void what_is_not_finite_comes_through(void **state)
{
    const struct plan plan = {
        .a_type = DTYPE_FP16, .b_type = DTYPE_FP16, .c_type = DTYPE_FP16, .M = 3, .N = 2, .K = 2};
    const float a[] = {256.0F, 0.0F, -256.0F, 0.0F, 1.0F, NAN};
    const float b[] = {256.0F, 1.0F, 0.0F, 0.0F};
    struct stream *streams[MOST_THREADS];
    struct problem p;

    (void)state;
    make_streams(streams);
    problem_make(&p, &plan);
    for (size_t i = 0; i < 6; i++) {
        put_number(p.a.bits, DTYPE_FP16, i, a[i]);
    }
    for (size_t i = 0; i < 4; i++) {
        put_number(p.b.bits, DTYPE_FP16, i, b[i]);
    }
    assert_int_equal(product_run(&p.gemm, streams[0]), STATUS_OK);
    const uint16_t *c = p.gemm.c;
    assert_int_equal(c[0], 0x7C00);
    assert_int_equal(c[1], dtype_to_fp16(256.0F));
    assert_int_equal(c[2], 0xFC00);
    assert_int_equal(c[3], dtype_to_fp16(-256.0F));
    assert_true(isnan(dtype_from_fp16(c[4])) && isnan(dtype_from_fp16(c[5])));
    problem_free(&p);
    free_streams(streams);
}

static void rows_that_overlap_are_refused_by_name(void **state)
{
    const struct plan plan = {.a_type = DTYPE_BF16,
                              .b_type = DTYPE_BF16,
                              .op_b = GEMM_TRANSPOSED,
                              .M = 40,
                              .N = 60,
                              .K = 50};
    struct stream *streams[MOST_THREADS];
    struct problem p;

    (void)state;
    make_streams(streams);
    problem_make(&p, &plan);
    for (int i = 0; i < 3; i++) {
        struct gemm bad = p.gemm;
        size_t *const distances[] = {&bad.lda, &bad.ldb, &bad.ldc};
        const char *const names[] = {"lda is 49", "ldb is 49", "ldc is 59"};
        *distances[i] -= 1;
        assert_int_equal(product_run(&bad, streams[1]), STATUS_ERR_INVALID);
        assert_non_null(strstr(status_last()->message, names[i]));
        assert_non_null(strstr(status_last()->message, "NT of 40 x 60 x 50"));
    }
    problem_free(&p);
    free_streams(streams);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_all_types_are_right_for_all_transposes_and_teams),
        cmocka_unit_test(products_beyond_a_block_are_right),
        cmocka_unit_test(runs_are_repeated_to_the_bit_whatever_is_in_scratch),
        cmocka_unit_test(rows_apart_keep_what_lies_between_them),
        cmocka_unit_test(empty_products_are_zeros_of_their_type),
        cmocka_unit_test(what_is_not_finite_comes_through),
        cmocka_unit_test(rows_that_overlap_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * bench_gemm [threads] -- speed of the matrix products of a GPT-2 124M step, by shape, and their
 * share of the machine's measured peak. Weights are (in, out), as in the model: forward NN, input
 * gradient NT, weight gradient TN added to what is there; the head is transposed.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tensor/arena.h"
#include "tensor/gemm.h"
#include "tensor/stream.h"
#include "tests/bench/peak.h"

#define REPEATS 7

/* What the largest of the matrices below needs. */
#define OPERAND_ELEMS ((size_t)50257 * 1024)

struct shape {
    const char *what;
    enum gemm_op op_a;
    enum gemm_op op_b;
    size_t M;
    size_t N;
    size_t K;
    float beta;
};

struct operands {
    float *a;
    float *b;
    float *c;
};

static int compare_ns(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left;
    const int64_t b = *(const int64_t *)right;

    return (a > b) - (a < b);
}

/* Median floating-point operations a second. */
static double measure(const struct shape *shape, const struct operands *on, struct stream *stream)
{
    int64_t taken_ns[REPEATS];
    const struct gemm gemm = {.op_a = shape->op_a,
                              .op_b = shape->op_b,
                              .M = shape->M,
                              .N = shape->N,
                              .K = shape->K,
                              .alpha = 1.0F,
                              .beta = shape->beta,
                              .a = on->a,
                              .b = on->b,
                              .c = on->c,
                              .lda = shape->op_a == GEMM_PLAIN ? shape->K : shape->M,
                              .ldb = shape->op_b == GEMM_PLAIN ? shape->N : shape->K,
                              .ldc = shape->N};

    for (int i = -1; i < REPEATS; i++) {
        const int64_t begin_ns = clock_now_ns();
        if (gemm_run(&gemm, stream) < 0) {
            exit(EXIT_FAILURE);
        }
        taken_ns[i < 0 ? 0 : i] = clock_now_ns() - begin_ns;
    }
    const int64_t *median_ns = &taken_ns[REPEATS / 2];
    qsort(taken_ns, REPEATS, sizeof(taken_ns[0]), compare_ns);
    return 2.0 * (double)shape->M * (double)shape->N * (double)shape->K /
           ((double)*median_ns * 1e-9);
}

static void print_shape(const struct shape *shape, const struct operands *on, struct stream *stream,
                        double peak)
{
    const double flops = measure(shape, on, stream);

    printf("gemm\t%s %c%c %zux%zux%zu\t%.1f\tGFLOP/s\n", shape->what,
           shape->op_a == GEMM_PLAIN ? 'N' : 'T', shape->op_b == GEMM_PLAIN ? 'N' : 'T', shape->M,
           shape->N, shape->K, flops * 1e-9);
    printf("gemm_share\t%s %zux%zux%zu\t%.1f\t%% of peak\n", shape->what, shape->M, shape->N,
           shape->K, 100.0 * flops / peak);
    (void)fflush(stdout);
}

static void print_rows(size_t rows, const struct operands *on, struct stream *stream, double peak)
{
    static const size_t layers[][2] = {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}};
    const size_t head_rows = rows < 512 ? rows : 512;
    const size_t C = 768;
    const size_t V = 50257;
    const struct shape head[] = {
        {"head_forward", GEMM_PLAIN, GEMM_TRANSPOSED, head_rows, V, C, 0.0F},
        {"head_dx", GEMM_PLAIN, GEMM_PLAIN, head_rows, C, V, 0.0F},
        {"head_dw", GEMM_TRANSPOSED, GEMM_PLAIN, V, C, head_rows, 1.0F}};

    for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++) {
        const size_t in = layers[i][0];
        const size_t out = layers[i][1];
        const struct shape layer[] = {{"forward", GEMM_PLAIN, GEMM_PLAIN, rows, out, in, 0.0F},
                                      {"dx", GEMM_PLAIN, GEMM_TRANSPOSED, rows, in, out, 0.0F},
                                      {"dw", GEMM_TRANSPOSED, GEMM_PLAIN, in, out, rows, 1.0F}};
        for (size_t k = 0; k < 3; k++) {
            print_shape(&layer[k], on, stream, peak);
        }
    }
    for (size_t k = 0; k < 3; k++) {
        print_shape(&head[k], on, stream, peak);
    }
}

static void carve(struct operands *operands, struct arena *arena)
{
    operands->a = arena_take_floats(arena, OPERAND_ELEMS);
    operands->b = arena_take_floats(arena, OPERAND_ELEMS);
    operands->c = arena_take_floats(arena, OPERAND_ELEMS);
}

static enum status make_operands(struct arena *arena, struct operands *operands)
{
    arena_measure(arena, "operands");
    carve(operands, arena);
    TRY(arena_allocate(arena, true));
    carve(operands, arena);
    for (size_t i = 0; i < OPERAND_ELEMS; i++) {
        operands->a[i] = (float)(i % 7) * 0.01F;
        operands->b[i] = (float)(i % 5) * 0.01F;
    }
    return STATUS_OK;
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    struct stream *stream = NULL;
    struct arena arena;
    struct operands operands;

    if (stream_create(threads, &stream) < 0 || make_operands(&arena, &operands) < 0) {
        return EXIT_FAILURE;
    }
    const double peak = peak_measure_flops(threads);
    printf("peak\t%d threads %s\t%.1f\tGFLOP/s\n", threads, peak_isa(), peak * 1e-9);
    for (size_t rows = 256; rows <= 4096; rows *= 4) {
        print_rows(rows, &operands, stream, peak);
    }
    arena_release(&arena);
    stream_destroy(&stream);
    return EXIT_SUCCESS;
}

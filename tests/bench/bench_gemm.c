/*
 * bench_gemm [threads] -- speed of the matrix products of a GPT-2 124M step, by shape, and their
 * share of the machine's measured peak. Weights are (in, out), as in the model: forward NN, input
 * gradient NT, weight gradient TN added to what is there; the head is transposed.
 *
 * Then the same with what is in the model dtype in bf16 and fp16: processor time by fp32's, measured
 * in turns. A result that the model keeps in fp32 (sums, gradients, logits) is fp32 in all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "tensor/arena.h"
#include "tensor/gemm.h"
#include "tensor/stream.h"
#include "tests/bench/peak.h"

#define REPEATS 7

/* What the largest of the matrices below needs. */
#define OPERAND_ELEMS ((size_t)50257 * 1024)

/* Which of A, B, C are in the model dtype. */
enum {
    A_TYPED = 1,
    B_TYPED = 2,
    C_TYPED = 4
};

struct shape {
    const char *what;
    enum gemm_op op_a;
    enum gemm_op op_b;
    size_t M;
    size_t N;
    size_t K;
    float beta;
    int typed;
};

/* In each number format. */
struct operands {
    void *a[DTYPES];
    void *b[DTYPES];
    void *c;
};

static int compare_ns(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left;
    const int64_t b = *(const int64_t *)right;

    return (a > b) - (a < b);
}

static struct gemm product_of(const struct shape *shape, const struct operands *on, enum dtype type)
{
    const enum dtype a_type = (shape->typed & A_TYPED) != 0 ? type : DTYPE_FP32;
    const enum dtype b_type = (shape->typed & B_TYPED) != 0 ? type : DTYPE_FP32;

    return (struct gemm){.op_a = shape->op_a,
                         .op_b = shape->op_b,
                         .a_type = a_type,
                         .b_type = b_type,
                         .c_type = (shape->typed & C_TYPED) != 0 ? type : DTYPE_FP32,
                         .M = shape->M,
                         .N = shape->N,
                         .K = shape->K,
                         .alpha = 1.0F,
                         .beta = shape->beta,
                         .a = on->a[a_type],
                         .b = on->b[b_type],
                         .c = on->c,
                         .lda = shape->op_a == GEMM_PLAIN ? shape->K : shape->M,
                         .ldb = shape->op_b == GEMM_PLAIN ? shape->N : shape->K,
                         .ldc = shape->N};
}

struct timing {
    double wall_ns;      /* median */
    double processor_ns; /* the least, of the calling thread: no other process is counted in */
};

static int64_t processor_now_ns(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The types take turns. */
static void measure(const struct shape *shape, const struct operands *on, struct stream *stream,
                    struct timing timings[DTYPES])
{
    int64_t wall_ns[DTYPES][REPEATS];
    int64_t processor_ns[DTYPES][REPEATS];
    const size_t median = REPEATS / 2;

    for (int i = -1; i < REPEATS; i++) {
        for (int type = 0; type < DTYPES; type++) {
            const struct gemm gemm = product_of(shape, on, (enum dtype)type);
            const int64_t begin_ns = clock_now_ns();
            const int64_t processor_begin_ns = processor_now_ns();
            if (gemm_run(&gemm, stream) < 0) {
                exit(EXIT_FAILURE);
            }
            processor_ns[type][i < 0 ? 0 : i] = processor_now_ns() - processor_begin_ns;
            wall_ns[type][i < 0 ? 0 : i] = clock_now_ns() - begin_ns;
        }
    }
    for (int type = 0; type < DTYPES; type++) {
        qsort(wall_ns[type], REPEATS, sizeof(wall_ns[type][0]), compare_ns);
        qsort(processor_ns[type], REPEATS, sizeof(processor_ns[type][0]), compare_ns);
        timings[type] = (struct timing){.wall_ns = (double)wall_ns[type][median],
                                        .processor_ns = (double)processor_ns[type][0]};
    }
}

static void print_shape(const struct shape *shape, const struct operands *on, struct stream *stream,
                        double peak)
{
    struct timing timings[DTYPES];

    measure(shape, on, stream, timings);
    const double flops = 2.0 * (double)shape->M * (double)shape->N * (double)shape->K /
                         (timings[DTYPE_FP32].wall_ns * 1e-9);
    printf("gemm\t%s %c%c %zux%zux%zu\t%.1f\tGFLOP/s\n", shape->what,
           shape->op_a == GEMM_PLAIN ? 'N' : 'T', shape->op_b == GEMM_PLAIN ? 'N' : 'T', shape->M,
           shape->N, shape->K, flops * 1e-9);
    printf("gemm_share\t%s %zux%zux%zu\t%.1f\t%% of peak\n", shape->what, shape->M, shape->N,
           shape->K, 100.0 * flops / peak);
    for (int type = DTYPE_FP32 + 1; type < DTYPES; type++) {
        printf("gemm_%s\t%s %zux%zux%zu\t%.3f\tof the time of fp32\n", dtype_text((enum dtype)type),
               shape->what, shape->M, shape->N, shape->K,
               timings[type].processor_ns / timings[DTYPE_FP32].processor_ns);
    }
    (void)fflush(stdout);
}

static void print_rows(size_t rows, const struct operands *on, struct stream *stream, double peak)
{
    static const size_t layers[][2] = {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}};
    const size_t head_rows = rows < 512 ? rows : 512;
    const size_t C = 768;
    const size_t V = 50257;
    const struct shape head[] = {
        {"head_forward", GEMM_PLAIN, GEMM_TRANSPOSED, head_rows, V, C, 0.0F, A_TYPED | B_TYPED},
        {"head_dx", GEMM_PLAIN, GEMM_PLAIN, head_rows, C, V, 0.0F, B_TYPED},
        {"head_dw", GEMM_TRANSPOSED, GEMM_PLAIN, V, C, head_rows, 1.0F, B_TYPED}};

    for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++) {
        const size_t in = layers[i][0];
        const size_t out = layers[i][1];
        /* The residual stream's products are fp32 until the residual is added. */
        const int forward = A_TYPED | B_TYPED | (out > C ? C_TYPED : 0);
        const int dx = A_TYPED | B_TYPED | (in > C ? C_TYPED : 0);
        const struct shape layer[] = {
            {"forward", GEMM_PLAIN, GEMM_PLAIN, rows, out, in, 0.0F, forward},
            {"dx", GEMM_PLAIN, GEMM_TRANSPOSED, rows, in, out, 0.0F, dx},
            {"dw", GEMM_TRANSPOSED, GEMM_PLAIN, in, out, rows, 1.0F, A_TYPED | B_TYPED}};
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
    for (int type = 0; type < DTYPES; type++) {
        operands->a[type] = arena_take(arena, OPERAND_ELEMS, dtype_bytes((enum dtype)type));
        operands->b[type] = arena_take(arena, OPERAND_ELEMS, dtype_bytes((enum dtype)type));
    }
    operands->c = arena_take_floats(arena, OPERAND_ELEMS);
}

static void fill(void *const *tensors, size_t period)
{
    float *floats = tensors[DTYPE_FP32];
    uint16_t *bf16 = tensors[DTYPE_BF16];
    uint16_t *fp16 = tensors[DTYPE_FP16];

    for (size_t i = 0; i < OPERAND_ELEMS; i++) {
        floats[i] = (float)(i % period) * 0.01F;
        bf16[i] = dtype_to_bf16(floats[i]);
        fp16[i] = dtype_to_fp16(floats[i]);
    }
}

static enum status make_operands(struct arena *arena, struct operands *operands)
{
    arena_measure(arena, "operands");
    carve(operands, arena);
    TRY(arena_allocate(arena, true));
    carve(operands, arena);
    fill(operands->a, 7);
    fill(operands->b, 5);
    return STATUS_OK;
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    struct stream *stream = NULL;
    struct arena arena;
    struct operands operands;

    if (stream_create(threads, &stream) < 0 || stream_reserve(stream, GEMM_SCRATCH_FLOATS) < 0 ||
        make_operands(&arena, &operands) < 0) {
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

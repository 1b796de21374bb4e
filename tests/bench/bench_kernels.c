/*
 * bench_kernels -- how fast attention, the head and the kernels that go row by row are; lines of
 * `name shape value unit`.
 *
 *   bench_kernels [threads]      medians of ROUNDS runs, the GPT-2 124M shapes, one thread unless
 *                                told otherwise
 *
 * GFLOP/s count what causal attention needs, T (T + 1) / 2 scores a head, not what the blocks
 * compute beyond it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "kernel_rows.h"
#include "tensor/kernels.h"
#include "tensor/rng.h"
#include "tensor/stream.h"

enum {
    ROUNDS = 9
};

typedef enum status (*work_fn)(const void *context);

struct bench {
    const struct kernel_ops *ops;
    struct stream *stream;
    int threads;
};

static int compare_times(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a;
    const int64_t right = *(const int64_t *)b;

    return (left > right) - (left < right);
}

/* Seconds, the median; the first run warms up and does not count. 0 where the work fails. */
static double median_seconds(work_fn work, const void *context)
{
    int64_t times[ROUNDS];
    const int64_t *middle = times + ROUNDS / 2;

    if (work(context) != STATUS_OK) {
        return 0.0;
    }
    for (int round = 0; round < ROUNDS; round++) {
        int64_t begin = clock_now_ns();

        if (work(context) != STATUS_OK) {
            return 0.0;
        }
        times[round] = clock_now_ns() - begin;
    }
    qsort(times, ROUNDS, sizeof(*times), compare_times);
    return 1e-9 * (double)*middle;
}

/* Numbers in [-0.5, 0.5), the same each time; the program ends where memory is short. */
static float *numbers(size_t elems)
{
    size_t bytes = (elems * sizeof(float) + 63) / 64 * 64;
    float *memory = aligned_alloc(64, bytes);
    uint32_t state = 12345;

    if (memory == NULL) {
        (void)fprintf(stderr, "bench_kernels: %zu bytes are not to be had\n", bytes);
        exit(EXIT_FAILURE);
    }
    for (size_t i = 0; i < elems; i++) {
        state = state * 1664525U + 1013904223U;
        memory[i] = (float)(state >> 8) * 0x1p-24F - 0.5F;
    }
    return memory;
}

struct attention_work {
    const struct bench *bench;
    struct attention_shape shape;
    const struct attention_dropout *dropout;
    enum dtype type;
    void *qkv;
    void *out;
    float *lse;
    float *dout;
    void *dqkv;
    float *workspace;
};

static enum status attention_forward(const void *context)
{
    const struct attention_work *work = context;

    return work->bench->ops->attention_forward(work->out, work->lse, work->qkv, &work->shape,
                                               work->dropout, work->workspace, work->type,
                                               work->bench->stream);
}

static enum status attention_backward(const void *context)
{
    const struct attention_work *work = context;

    return work->bench->ops->attention_backward(work->dqkv, work->dout, work->out, work->qkv,
                                                work->lse, &work->shape, work->dropout,
                                                work->workspace, work->type, work->bench->stream);
}

/* The same numbers in `type`. */
static void *typed_numbers(const struct bench *bench, size_t elems, enum dtype type)
{
    float *memory = numbers(elems);
    float *typed = numbers(elems);

    (void)bench->ops->convert(typed, type, memory, DTYPE_FP32, elems, NULL);
    free(memory);
    return typed;
}

static void bench_attention(const struct bench *bench, size_t B, size_t T, enum dtype type,
                            double dropout)
{
    const size_t H = 12;
    const size_t D = 64;
    const size_t elems = B * T * H * D;
    const struct attention_dropout drops = {.seed = 1, .threshold = rng_mask_threshold(dropout)};
    struct attention_work work = {
        .bench = bench,
        .shape = {B, T, H, D},
        .dropout = dropout > 0.0 ? &drops : NULL,
        .type = type,
        .qkv = typed_numbers(bench, 3 * elems, type),
        .out = typed_numbers(bench, elems, type),
        .lse = numbers(B * H * T),
        .dout = numbers(elems),
        .dqkv = typed_numbers(bench, 3 * elems, type),
    };
    const double product = (double)(B * H * D) * (double)T * (double)(T + 1);

    work.workspace = numbers(bench->ops->attention_workspace(&work.shape, bench->threads));
    printf("attention_forward\tB=%zu,T=%zu,H=%zu,D=%zu,%s,dropout=%g\t%.1f\tGFLOP/s\n", B, T, H, D,
           dtype_text(type), dropout,
           2.0 * product * 1e-9 / median_seconds(attention_forward, &work));
    printf("attention_backward\tB=%zu,T=%zu,H=%zu,D=%zu,%s,dropout=%g\t%.1f\tGFLOP/s\n", B, T, H, D,
           dtype_text(type), dropout,
           5.0 * product * 1e-9 / median_seconds(attention_backward, &work));
    free(work.qkv);
    free(work.out);
    free(work.lse);
    free(work.dout);
    free(work.dqkv);
    free(work.workspace);
}

struct head_work {
    const struct bench *bench;
    size_t rows;
    struct head_shape block;
    float *x;
    float *wte;
    float *dwte;
    float *mask;
    int32_t *targets;
    float *logits;
};

/* All blocks of a micro-batch, by one shard. */
static enum status head_run(const struct head_work *work, bool gradients)
{
    const struct kernel_ops *ops = work->bench->ops;
    struct stream *stream = work->bench->stream;
    struct head_row rows[HEAD_BLOCK_ROWS];
    double losses[HEAD_BLOCK_ROWS];
    struct head_rows all = {rows, HEAD_BLOCK_ROWS, 1, 0};

    for (size_t row = 0; row < work->rows; row += work->block.rows) {
        float *x = work->x + row * work->block.hidden;

        TRY(ops->head_logits(work->logits, rows, x, work->wte, work->targets + row,
                             work->mask + row, &work->block, DTYPE_FP32, stream));
        TRY(ops->head_loss(work->logits, losses, &all, work->targets + row, work->mask + row,
                           &work->block, gradients, DTYPE_FP32, stream));
        if (!gradients) {
            continue;
        }
        TRY(ops->head_backward(x, work->dwte, x, work->logits, work->wte, &work->block, DTYPE_FP32,
                               stream));
    }
    return STATUS_OK;
}

static enum status head_train(const void *context)
{
    return head_run(context, true);
}

static enum status head_evaluate(const void *context)
{
    return head_run(context, false);
}

/* `rows`: a multiple of a block. */
static void bench_head(const struct bench *bench, size_t rows, size_t C, size_t V)
{
    struct head_work work = {
        .bench = bench,
        .rows = rows,
        .block = {HEAD_BLOCK_ROWS, C, V, 0, 1.0F / (float)rows},
        .x = numbers(rows * C),
        .wte = numbers(V * C),
        .dwte = numbers(V * C),
        .mask = numbers(rows),
        .targets = calloc(rows, sizeof(int32_t)),
    };
    const double product = 2.0 * (double)rows * (double)C * (double)V;

    work.logits = numbers(HEAD_BLOCK_ROWS * head_logits_stride(&work.block));
    for (size_t i = 0; i < rows; i++) {
        work.mask[i] = 1.0F;
    }
    printf("head_train\tN=%zu,C=%zu,V=%zu\t%.1f\tGFLOP/s\n", rows, C, V,
           3.0 * product * 1e-9 / median_seconds(head_train, &work));
    printf("head_evaluate\tN=%zu,C=%zu,V=%zu\t%.1f\tGFLOP/s\n", rows, C, V,
           product * 1e-9 / median_seconds(head_evaluate, &work));
    free(work.x);
    free(work.wte);
    free(work.dwte);
    free(work.mask);
    free(work.targets);
    free(work.logits);
}

int main(int argc, char **argv)
{
    const size_t positions[] = {64, 128, 256, 512, 1024};
    struct bench bench = {.ops = kernels_cpu(), .threads = 1};

    if (argc > 1) {
        bench.threads = (int)strtol(argv[1], NULL, 10);
    }
    if (stream_create(bench.threads, &bench.stream) != STATUS_OK) {
        return EXIT_FAILURE;
    }
    for (size_t i = 0; i < sizeof(positions) / sizeof(*positions); i++) {
        bench_attention(&bench, 1024 / positions[i], positions[i], DTYPE_FP32, 0.0);
        bench_attention(&bench, 1024 / positions[i], positions[i], DTYPE_BF16, 0.0);
        bench_attention(&bench, 1024 / positions[i], positions[i], DTYPE_FP32, 0.1);
    }
    kernel_rows_bench(bench.ops, bench.stream, 1024, 768);
    kernel_rows_bench(bench.ops, bench.stream, 1024, 128);
    bench_head(&bench, 1024, 128, 256);
    bench_head(&bench, 1024, 768, 50257);
    stream_destroy(&bench.stream);
    return EXIT_SUCCESS;
}

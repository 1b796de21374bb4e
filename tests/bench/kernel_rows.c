#include "kernel_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tensor/kernels.h"
#include "tensor/rng.h"

enum {
    ROUNDS = 15,
    POSITIONS = 256
};

/* Tensors of one format; all have room for the widest. */
struct rows {
    const struct kernel_ops *ops;
    struct stream *stream;
    size_t N;
    size_t C;
    size_t F;
    enum dtype type;
    struct dropout dropout;
    void *typed[4];
    float *wide[2];
    float *vectors[4];  /* (F) */
    void *typed_vector; /* (F) */
    float *stats[2];    /* (N) */
    float *partials;
};

typedef enum status (*rows_fn)(const struct rows *r);

/* Numbers in [-0.5, 0.5), the same each time, as floats to begin with. */
static float *numbers(size_t elems)
{
    size_t bytes = (elems * sizeof(float) + 63) / 64 * 64;
    float *memory = aligned_alloc(64, bytes);
    uint32_t state = 12345;

    if (memory == NULL) {
        (void)fprintf(stderr, "bench: %zu bytes are not to be had\n", bytes);
        exit(EXIT_FAILURE);
    }
    for (size_t i = 0; i < elems; i++) {
        state = state * 1664525U + 1013904223U;
        memory[i] = (float)(state >> 8) * 0x1p-24F - 0.5F;
    }
    return memory;
}

static void *typed_numbers(const struct rows *r, size_t elems)
{
    float *floats = numbers(elems);
    void *rounded = numbers(elems);

    if (r->ops->convert(rounded, r->type, floats, DTYPE_FP32, elems, r->stream) != STATUS_OK) {
        exit(EXIT_FAILURE);
    }
    free(floats);
    return rounded;
}

static void rows_make(struct rows *r)
{
    for (size_t i = 0; i < 4; i++) {
        r->typed[i] = typed_numbers(r, r->N * r->F);
        r->vectors[i] = numbers(r->F);
    }
    for (size_t i = 0; i < 2; i++) {
        r->wide[i] = numbers(r->N * r->F);
        r->stats[i] = numbers(r->N);
    }
    r->typed_vector = typed_numbers(r, r->F);
    r->partials = numbers(r->ops->layernorm_partials(r->C, 1));
    r->dropout = (struct dropout){
        .seed = 1, .site = 2, .threshold = rng_mask_threshold(0.1), .positions = POSITIONS};
}

static void rows_free(struct rows *r)
{
    for (size_t i = 0; i < 4; i++) {
        free(r->typed[i]);
        free(r->vectors[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        free(r->wide[i]);
        free(r->stats[i]);
    }
    free(r->typed_vector);
    free(r->partials);
}

static enum status widen(const struct rows *r)
{
    return r->ops->convert(r->wide[0], DTYPE_FP32, r->typed[0], r->type, r->N * r->C, r->stream);
}

static enum status narrow(const struct rows *r)
{
    return r->ops->convert(r->typed[1], r->type, r->wide[1], DTYPE_FP32, r->N * r->C, r->stream);
}

static enum status layernorm_forward(const struct rows *r)
{
    return r->ops->layernorm_forward(r->typed[1], r->stats[0], r->stats[1], r->typed[0],
                                     r->vectors[0], r->vectors[1], r->N, r->C, 1e-5F, r->type,
                                     r->stream);
}

static enum status layernorm_backward(const struct rows *r)
{
    return r->ops->layernorm_backward(r->typed[1], r->vectors[2], r->vectors[3], r->wide[1],
                                      r->typed[2], r->typed[0], r->vectors[0], r->stats[0],
                                      r->stats[1], r->N, r->C, r->partials, r->type, r->stream);
}

/* Zeroed bias: what is added to in place must stay small. */
static enum status bias_forward(const struct rows *r)
{
    memset(r->typed_vector, 0, r->F * dtype_bytes(r->type));
    return r->ops->bias_forward(r->typed[0], r->typed_vector, r->N, r->C, r->type, r->stream);
}

static enum status bias_backward(const struct rows *r)
{
    return r->ops->bias_backward(r->vectors[2], r->typed[0], r->N, r->C, r->type, r->stream);
}

static enum status bias_gelu_forward(const struct rows *r)
{
    memset(r->typed_vector, 0, r->F * dtype_bytes(r->type));
    return r->ops->bias_gelu_forward(r->typed[1], r->typed[0], r->typed_vector, r->N, r->F, r->type,
                                     r->stream);
}

static enum status gelu_forward(const struct rows *r)
{
    return r->ops->gelu_forward(r->typed[1], r->typed[0], r->N * r->F, r->type, r->stream);
}

static enum status bias_gelu_backward(const struct rows *r)
{
    return r->ops->bias_gelu_backward(r->typed[3], r->vectors[2], r->typed[2], r->typed[0], r->N,
                                      r->F, r->type, r->stream);
}

static enum status bias_residual_forward(const struct rows *r)
{
    return r->ops->bias_residual_forward(r->typed[1], r->wide[1], r->typed_vector, r->typed[0],
                                         r->N, r->C, r->type, r->stream);
}

static enum status bias_residual_dropout_forward(const struct rows *r)
{
    return r->ops->bias_residual_dropout_forward(r->typed[1], r->wide[1], r->typed_vector,
                                                 r->typed[0], r->N, r->C, &r->dropout, r->type,
                                                 r->stream);
}

static enum status dropout_forward(const struct rows *r)
{
    return r->ops->dropout_forward(r->typed[1], r->wide[1], r->N, r->C, &r->dropout, r->type,
                                   r->stream);
}

static enum status dropout_backward(const struct rows *r)
{
    return r->ops->dropout_backward(r->typed[1], r->typed[2], r->N, r->C, &r->dropout, r->type,
                                    r->stream);
}

struct entry {
    const char *name;
    rows_fn run;
    bool inner; /* 4 C wide */
    bool copy;  /* a conversion: GB/s of these formats' bytes */
};

static const struct entry entries[] = {
    {"convert_to_fp32", widen, false, true},
    {"convert_from_fp32", narrow, false, true},
    {"layernorm_forward", layernorm_forward, false, false},
    {"layernorm_backward", layernorm_backward, false, false},
    {"bias_forward", bias_forward, false, false},
    {"bias_backward", bias_backward, false, false},
    {"bias_gelu_forward", bias_gelu_forward, true, false},
    {"gelu_forward", gelu_forward, true, false},
    {"bias_gelu_backward", bias_gelu_backward, true, false},
    {"bias_residual_forward", bias_residual_forward, false, false},
    {"bias_residual_dropout_forward", bias_residual_dropout_forward, false, false},
    {"dropout_forward", dropout_forward, false, false},
    {"dropout_backward", dropout_backward, false, false},
};

static int compare_times(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a;
    const int64_t right = *(const int64_t *)b;

    return (left > right) - (left < right);
}

static void bench_entry(const struct entry *entry, const struct rows rows[DTYPES])
{
    int64_t times[DTYPES][ROUNDS];

    for (int round = -1; round < ROUNDS; round++) {
        for (int type = 0; type < DTYPES; type++) {
            const int64_t begin = clock_now_ns();
            if (entry->run(&rows[type]) != STATUS_OK) {
                exit(EXIT_FAILURE);
            }
            if (round >= 0) { /* the first one warms up */
                times[type][round] = clock_now_ns() - begin;
            }
        }
    }
    for (int type = 0; type < DTYPES; type++) {
        const struct rows *r = &rows[type];
        const double elems = (double)(r->N * (entry->inner ? r->F : r->C));
        const double bytes = (double)(dtype_bytes(DTYPE_FP32) + dtype_bytes(r->type));
        qsort(times[type], ROUNDS, sizeof(times[type][0]), compare_times);
        const int64_t *middle = times[type] + ROUNDS / 2;
        const double each = (double)*middle / elems;
        printf("%s\tN=%zu,%s=%zu,%s\t%.3f\tns/element\n", entry->name, r->N,
               entry->inner ? "F" : "C", entry->inner ? r->F : r->C, dtype_text(r->type), each);
        if (entry->copy) {
            printf("%s\tN=%zu,C=%zu,%s\t%.1f\tGB/s\n", entry->name, r->N, r->C, dtype_text(r->type),
                   bytes / each);
        }
    }
}

void kernel_rows_bench(const struct kernel_ops *ops, struct stream *stream, size_t rows, size_t C)
{
    struct rows formats[DTYPES];

    for (int type = 0; type < DTYPES; type++) {
        formats[type] = (struct rows){
            .ops = ops, .stream = stream, .N = rows, .C = C, .F = 4 * C, .type = (enum dtype)type};
        rows_make(&formats[type]);
    }
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        bench_entry(&entries[i], formats);
    }
    for (int type = 0; type < DTYPES; type++) {
        rows_free(&formats[type]);
    }
}

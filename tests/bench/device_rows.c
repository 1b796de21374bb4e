#include "tests/bench/device_rows.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tensor/device.h"
#include "tensor/gemm.h"
#include "tensor/kernels.h"

enum {
    ROUNDS = 5,
    HEAD_SIZE = 64,
    TENSORS = 16
};

#define COPY_BYTES ((size_t)256 << 20)

/* Enough work for this long between two waits. */
#define ROUND_NS ((int64_t)20000000)

/* Numbers that a tensor is filled with, again and again. */
#define PATTERN 32768

/* Memory of the device, given back together. */
struct tensors {
    struct device *device;
    void *memory[TENSORS];
    size_t bytes[TENSORS];
    size_t count;
};

/* Of bf16 in [-0.5, 0.5), two of which are an fp32 of that range as well: products of zeros would cost a GPU less power
 * than those of a training. */
static enum status fill(struct device *device, void *memory, size_t bytes)
{
    uint16_t pattern[PATTERN];
    uint32_t state = 12345;

    for (size_t i = 0; i < PATTERN; i++) {
        state = state * 1664525U + 1013904223U;
        pattern[i] = dtype_to_bf16((float)(state >> 8) * 0x1p-24F - 0.5F);
    }
    for (size_t at = 0; at < bytes; at += sizeof(pattern)) {
        TRY(device_copy(device, (char *)memory + at, pattern,
                        bytes - at < sizeof(pattern) ? bytes - at : sizeof(pattern)));
    }
    return device_wait(device, NULL, CLOCK_NEVER);
}

static enum status take(struct tensors *tensors, size_t bytes, void *memory_out)
{
    void **memory = memory_out;

    TRY(device_take(tensors->device, DEVICE_TENSORS, "bench", bytes, memory));
    tensors->memory[tensors->count] = *memory;
    tensors->bytes[tensors->count] = bytes;
    tensors->count++;
    return fill(tensors->device, *memory, bytes);
}

static void give_all(struct tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++) {
        device_give(tensors->device, DEVICE_TENSORS, tensors->memory[i], tensors->bytes[i]);
    }
    tensors->count = 0;
}

typedef enum status (*work_fn)(struct device *device, const void *context);

static enum status time_round(struct device *device, work_fn work, const void *context, long times,
                              double *seconds_out)
{
    const int64_t begin_ns = clock_now_ns();

    for (long i = 0; i < times; i++) {
        TRY(work(device, context));
    }
    TRY(device_wait(device, NULL, CLOCK_NEVER));
    *seconds_out = 1e-9 * (double)(clock_now_ns() - begin_ns) / (double)times;
    return STATUS_OK;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median of rounds; what comes before warms up and says how often the work fits into a round. */
static enum status time_work(struct device *device, work_fn work, const void *context,
                             double *seconds_out)
{
    double seconds[ROUNDS];
    double once = 0.0;
    long times = 1;

    TRY(time_round(device, work, context, 1, &once));
    TRY(time_round(device, work, context, 1, &once));
    times += (long)(1e-9 * (double)ROUND_NS / (once > 1e-7 ? once : 1e-7));
    for (size_t round = 0; round < ROUNDS; round++) {
        TRY(time_round(device, work, context, times, &seconds[round]));
    }
    qsort(seconds, ROUNDS, sizeof(seconds[0]), compare);
    *seconds_out = seconds[ROUNDS / 2];
    return STATUS_OK;
}

/* ---- The yardsticks. ---- */

struct copy {
    void *to;
    void *from;
};

static enum status run_copy(struct device *device, const void *context)
{
    const struct copy *copy = context;

    return device_copy(device, copy->to, copy->from, COPY_BYTES);
}

static enum status run_product(struct device *device, const void *context)
{
    return device_kernels(device)->gemm(context, device_stream(device));
}

/* C = A·Bᵀ, as a layer's products are. */
static enum status make_product(struct tensors *tensors, enum dtype type, size_t M, size_t N,
                                size_t K, struct gemm *gemm_out)
{
    void *a = NULL;
    void *b = NULL;
    void *c = NULL;

    TRY(take(tensors, M * K * dtype_bytes(type), &a));
    TRY(take(tensors, N * K * dtype_bytes(type), &b));
    TRY(take(tensors, M * N * dtype_bytes(type), &c));
    *gemm_out = (struct gemm){.op_a = GEMM_PLAIN,
                              .op_b = GEMM_TRANSPOSED,
                              .a_type = type,
                              .b_type = type,
                              .c_type = type,
                              .M = M,
                              .N = N,
                              .K = K,
                              .alpha = 1.0F,
                              .a = a,
                              .b = b,
                              .c = c,
                              .lda = K,
                              .ldb = K,
                              .ldc = N};
    return STATUS_OK;
}

static enum status measure_peaks(struct tensors *tensors, size_t edge, struct device_peaks *peaks)
{
    struct copy copy;
    struct gemm gemm;
    double seconds = 0.0;

    TRY(take(tensors, COPY_BYTES, &copy.to));
    TRY(take(tensors, COPY_BYTES, &copy.from));
    TRY(time_work(tensors->device, run_copy, &copy, &seconds));
    peaks->bytes_per_s = 2.0 * (double)COPY_BYTES / seconds;
    TRY(make_product(tensors, peaks->type, edge, edge, edge, &gemm));
    TRY(time_work(tensors->device, run_product, &gemm, &seconds));
    peaks->flops_per_s = 2.0 * (double)edge * (double)edge * (double)edge / seconds;
    return STATUS_OK;
}

enum status device_rows_peaks(struct device *device, enum dtype type, size_t edge,
                              struct device_peaks *peaks_out)
{
    struct tensors tensors = {.device = device};
    enum status status;

    *peaks_out = (struct device_peaks){.type = type};
    status = measure_peaks(&tensors, edge, peaks_out);
    give_all(&tensors);
    return status;
}

/* ---- The kernels of a layer. ---- */

struct layer {
    enum dtype type;
    size_t rows;
    size_t hidden;
    struct attention_shape attention;
    size_t elems;
    struct adam_step step;
    void *typed[3]; /* (rows, 4 · hidden) */
    float *wide;    /* (rows, hidden) */
    float *stats[2];
    float *vectors[2]; /* (4 · hidden) */
    void *typed_vector;
    float *partials;
    float *lse;
    float *workspace;
    float *optimizer[4]; /* (elems) */
};

/* What has no rows of the model's format. */
static enum status make_floats(struct tensors *tensors, struct layer *l)
{
    const size_t wide = 4 * l->hidden;
    const struct kernel_ops *ops = device_kernels(tensors->device);
    const size_t workspace = ops->attention_workspace(&l->attention, 1);
    float *floats = NULL;

    TRY(take(tensors, (4 * wide + 2 * l->rows) * sizeof(float), &floats));
    l->stats[0] = floats;
    l->stats[1] = floats + l->rows;
    l->vectors[0] = floats + 2 * l->rows;
    l->vectors[1] = l->vectors[0] + wide;
    l->typed_vector = l->vectors[1] + wide;
    TRY(take(tensors, ops->layernorm_partials(l->hidden, 1) * sizeof(float), &l->partials));
    TRY(take(tensors, l->rows * l->attention.heads * sizeof(float), &l->lse));
    return take(tensors, (workspace > 0 ? workspace : 1) * sizeof(float), &l->workspace);
}

static enum status make_layer(struct tensors *tensors, struct layer *l)
{
    for (size_t i = 0; i < 3; i++) {
        TRY(take(tensors, 4 * l->rows * l->hidden * dtype_bytes(l->type), &l->typed[i]));
    }
    TRY(take(tensors, l->rows * l->hidden * sizeof(float), &l->wide));
    for (size_t i = 0; i < 4; i++) {
        TRY(take(tensors, l->elems * sizeof(float), &l->optimizer[i]));
    }
    return make_floats(tensors, l);
}

static enum status norm_forward(struct device *device, const void *context)
{
    const struct layer *l = context;

    return device_kernels(device)->layernorm_forward(
        l->typed[0], l->stats[0], l->stats[1], l->typed[1], l->vectors[0], l->vectors[1], l->rows,
        l->hidden, 1e-5F, l->type, device_stream(device));
}

static enum status norm_backward(struct device *device, const void *context)
{
    const struct layer *l = context;

    return device_kernels(device)->layernorm_backward(
        l->typed[0], l->vectors[0], l->vectors[1], l->wide, l->typed[1], l->typed[2], l->vectors[0],
        l->stats[0], l->stats[1], l->rows, l->hidden, l->partials, l->type, device_stream(device));
}

static enum status gelu_forward(struct device *device, const void *context)
{
    const struct layer *l = context;

    return device_kernels(device)->bias_gelu_forward(l->typed[0], l->typed[1], l->typed_vector,
                                                     l->rows, 4 * l->hidden, l->type,
                                                     device_stream(device));
}

static enum status gelu_backward(struct device *device, const void *context)
{
    const struct layer *l = context;

    return device_kernels(device)->bias_gelu_backward(l->typed[0], l->vectors[0], l->typed[1],
                                                      l->typed[2], l->rows, 4 * l->hidden, l->type,
                                                      device_stream(device));
}

static enum status residual_forward(struct device *device, const void *context)
{
    const struct layer *l = context;

    return device_kernels(device)->bias_residual_forward(l->typed[0], l->wide, l->typed_vector,
                                                         l->typed[1], l->rows, l->hidden, l->type,
                                                         device_stream(device));
}

static enum status attention_forward(struct device *device, const void *context)
{
    const struct layer *l = context;

    return device_kernels(device)->attention_forward(l->typed[0], l->lse, l->typed[1],
                                                     &l->attention, NULL, l->workspace, l->type,
                                                     device_stream(device));
}

static enum status attention_backward(struct device *device, const void *context)
{
    const struct layer *l = context;

    return device_kernels(device)->attention_backward(l->typed[0], l->wide, l->typed[1],
                                                      l->typed[2], l->lse, &l->attention, NULL,
                                                      l->workspace, l->type, device_stream(device));
}

static enum status adam(struct device *device, const void *context)
{
    const struct layer *l = context;

    return device_kernels(device)->adam(l->optimizer[0], l->optimizer[1], l->optimizer[2],
                                        l->optimizer[3], l->elems, &l->step, device_stream(device));
}

/* ---- Lines. ---- */

static enum status print_row(struct device *device, const struct device_peaks *peaks,
                             const char *name, const char *shape, work_fn work, const void *context,
                             double bytes, double flops)
{
    const double moving = bytes / peaks->bytes_per_s;
    const double computing = flops / peaks->flops_per_s;
    const double floor = moving > computing ? moving : computing;
    double seconds = 0.0;

    TRY(time_work(device, work, context, &seconds));
    (void)printf("%s\t%s\t%.1f\tus\n", name, shape, 1e6 * seconds);
    (void)printf("%s\t%s\t%.1f\t%% of floor (%s)\n", name, shape, 100.0 * floor / seconds,
                 moving > computing ? "bytes" : "products");
    (void)fflush(stdout);
    return STATUS_OK;
}

static enum status print_kernels(struct device *device, const struct device_peaks *peaks,
                                 const struct layer *l)
{
    const double type = (double)dtype_bytes(l->type);
    const double thin = (double)l->rows * (double)l->hidden;
    const double wide = 4.0 * thin;
    const double scores =
        thin * (double)(l->attention.positions + 1); /* causal: 2 · T · (T + 1) / 2 */
    /* What each reads and writes an element, and multiplies. */
    const struct {
        const char *name;
        work_fn work;
        double bytes;
        double flops;
    } rows[] = {
        {"layernorm_forward", norm_forward, thin * 2.0 * type, 0.0},
        {"layernorm_backward", norm_backward, thin * (4.0 + 3.0 * type), 0.0},
        {"bias_gelu_forward", gelu_forward, wide * 3.0 * type, 0.0},
        {"bias_gelu_backward", gelu_backward, wide * 3.0 * type, 0.0},
        {"bias_residual_forward", residual_forward, thin * (4.0 + 2.0 * type), 0.0},
        {"attention_forward", attention_forward, thin * 4.0 * type, 2.0 * scores},
        {"attention_backward", attention_backward, thin * (4.0 + 7.0 * type), 5.0 * scores},
        {"adam", adam, (double)l->elems * (28.0 + (l->step.copy != NULL ? type : 0.0)), 0.0},
    };
    char shape[96];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].work == adam) {
            (void)snprintf(shape, sizeof(shape), "n=%zu", l->elems);
        } else {
            (void)snprintf(shape, sizeof(shape), "B=%zu,T=%zu,C=%zu,%s", l->attention.batch,
                           l->attention.positions, l->hidden, dtype_text(l->type));
        }
        TRY(print_row(device, peaks, rows[i].name, shape, rows[i].work, l, rows[i].bytes,
                      rows[i].flops));
    }
    return STATUS_OK;
}

/* Of a layer: queries, keys and values; the output of attention; into the MLP and out of it. */
static enum status print_products(struct tensors *tensors, const struct device_peaks *peaks,
                                  size_t rows, size_t hidden)
{
    const size_t sides[][2] = {{3, 1}, {1, 1}, {4, 1}, {1, 4}};

    for (size_t i = 0; i < sizeof(sides) / sizeof(sides[0]); i++) {
        const size_t N = sides[i][0] * hidden;
        const size_t K = sides[i][1] * hidden;
        const double elems = (double)rows * (double)(N + K) + (double)N * (double)K;
        struct gemm gemm;
        char shape[96];

        TRY(make_product(tensors, peaks->type, rows, N, K, &gemm));
        (void)snprintf(shape, sizeof(shape), "M=%zu,N=%zu,K=%zu,%s", rows, N, K,
                       dtype_text(peaks->type));
        TRY(print_row(tensors->device, peaks, "gemm", shape, run_product, &gemm,
                      elems * (double)dtype_bytes(peaks->type),
                      2.0 * (double)rows * (double)N * (double)K));
        give_all(tensors);
    }
    return STATUS_OK;
}

enum status device_rows_bench(struct device *device, const struct device_peaks *peaks,
                              size_t samples, size_t positions, size_t hidden, size_t elems)
{
    struct tensors tensors = {.device = device};
    struct layer layer = {
        .type = peaks->type,
        .rows = samples * positions,
        .hidden = hidden,
        .attention = {samples, positions, hidden / HEAD_SIZE, HEAD_SIZE},
        .elems = elems,
        .step = {.lr = 1e-4F,
                 .beta1 = 0.9F,
                 .beta2 = 0.95F,
                 .eps = 1e-8F,
                 .grad_scale = 1.0F,
                 .update = 1},
    };
    enum status status = print_products(&tensors, peaks, layer.rows, hidden);

    if (status >= 0) {
        status = make_layer(&tensors, &layer);
    }
    if (status >= 0) {
        status = print_kernels(device, peaks, &layer);
    }
    give_all(&tensors);
    return status;
}

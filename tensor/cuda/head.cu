/*
 * A block takes a row of logits. Between the first part and the second the logits stay as the product left them:
 * the first only reads them, once, for their maximum and the sum of exponentials, which is moved to a larger
 * maximum as one is found; the second reads them once more and leaves the gradient. Each thread has the same four in
 * every THREADS * 4 columns, and threads are added in a fixed order, so the bits depend on V alone.
 */
#include "tensor/cuda/kernel.cuh"

#include "base/check.h"
#include "tensor/cuda/gemm_cuda.h"
#include "tensor/gemm.h"
#include "tensor/kernels.h"
#include "tensor/kernels/head.h"

#define THREADS 512
#define WARPS   (THREADS / WARP_LANES)
#define PIECE   4 /* columns that a thread takes at once: 16 bytes */

/* A maximum and the sum of exp(x - max): what a thread, then the block, knows of a row. */
struct row_sum {
    float max;
    double sum;
};

static __device__ __forceinline__ double warp_sum_double(double value)
{
    for (int lanes = WARP_LANES / 2; lanes > 0; lanes /= 2) {
        value += __shfl_xor_sync(ALL_LANES, value, lanes);
    }
    return value;
}

static __device__ __forceinline__ float warp_max(float value)
{
    for (int lanes = WARP_LANES / 2; lanes > 0; lanes /= 2) {
        float other = __shfl_xor_sync(ALL_LANES, value, lanes);

        value = other > value ? other : value;
    }
    return value;
}

/* -inf counts nothing, also where nothing larger has been seen; NaN is no maximum and makes the sum NaN. */
static __device__ __forceinline__ void row_sum_add(struct row_sum *row, const float *x)
{
    float max = row->max;

    UNROLL
    for (int i = 0; i < PIECE; i++) {
        max = x[i] > max ? x[i] : max;
    }
    if (max > row->max) {
        row->sum *= (double)expf(row->max - max);
        row->max = max;
    }
    UNROLL
    for (int i = 0; i < PIECE; i++) {
        if (x[i] != -INFINITY) {
            row->sum += (double)expf(x[i] - row->max);
        }
    }
}

/* Of the whole block; on thread 0. */
static __device__ struct row_sum block_row_sum(struct row_sum own)
{
    __shared__ float maxima[WARPS];
    __shared__ double sums[WARPS];
    unsigned warp = threadIdx.x / WARP_LANES;
    unsigned lane = threadIdx.x % WARP_LANES;
    struct row_sum whole;
    float max = warp_max(own.max);
    double sum;

    if (lane == 0) {
        maxima[warp] = max;
    }
    __syncthreads();
    whole.max = maxima[0];
    for (int i = 1; i < WARPS; i++) {
        whole.max = maxima[i] > whole.max ? maxima[i] : whole.max;
    }
    /* A thread that has seen nothing above -inf has added nothing, unless it was NaN. */
    sum = own.max == -INFINITY ? own.sum : own.sum * (double)expf(own.max - whole.max);
    sum = warp_sum_double(sum);
    if (lane == 0) {
        sums[warp] = sum;
    }
    __syncthreads();
    whole.sum = 0.0;
    for (int i = 0; i < WARPS; i++) {
        whole.sum += sums[i];
    }
    return whole;
}

/* The columns from `c` on; what is beyond the vocabulary is -inf. */
static __device__ __forceinline__ void read_piece(float *x, const float *row, size_t c,
                                                  size_t vocab)
{
    float4 piece = *(const float4 *)(row + c); /* within the stride, which is a multiple of it */

    x[0] = piece.x;
    x[1] = c + 1 < vocab ? piece.y : -INFINITY;
    x[2] = c + 2 < vocab ? piece.z : -INFINITY;
    x[3] = c + 3 < vocab ? piece.w : -INFINITY;
}

__global__ void sum_rows(struct head_row *own, const float *logits, const int32_t *targets,
                         const float *mask, size_t stride, size_t vocab, size_t first_token)
{
    size_t i = blockIdx.x;
    const float *row = logits + i * stride;
    struct row_sum sum = {-INFINITY, 0.0};
    struct head_row found = {0.0, 0.0, 0.0, 0.0};

    if (mask[i] != 0.0F) {
        for (size_t c = (size_t)threadIdx.x * PIECE; c < vocab; c += (size_t)THREADS * PIECE) {
            float x[PIECE];

            read_piece(x, row, c, vocab);
            row_sum_add(&sum, x);
        }
        sum = block_row_sum(sum);
        found.max = (double)sum.max;
        found.sum = sum.sum;
        if ((size_t)targets[i] - first_token < vocab) {
            found.target = (double)row[(size_t)targets[i] - first_token];
        }
    }
    if (threadIdx.x == 0) {
        own[i] = found;
    }
}

/* A row over all shards, in ascending order. */
static __device__ struct head_row whole_row(const struct head_rows &all, size_t i)
{
    struct head_row whole = {-(double)INFINITY, 0.0, 0.0, 0.0};

    for (size_t s = 0; s < all.shards; s++) {
        const struct head_row *row = &all.rows[s * all.stride + i];

        whole.max = row->max > whole.max ? row->max : whole.max;
    }
    for (size_t s = 0; s < all.shards; s++) {
        const struct head_row *row = &all.rows[s * all.stride + i];

        whole.sum += row->sum * exp(row->max - whole.max);
        whole.target += row->target;
    }
    return whole;
}

/* The gradient of four columns. */
struct gradient_by {
    float max;
    float factor;  /* loss_seed / sum */
    float seed;    /* of the target */
    size_t target; /* column; vocab or more where another shard has it */
    bool masked;
};

static __device__ __forceinline__ float gradient_of(float logit, size_t c,
                                                    const struct gradient_by &by)
{
    float gradient = expf(logit - by.max) * by.factor;

    gradient = c == by.target ? gradient - by.seed : gradient;
    return by.masked ? 0.0F : gradient;
}

template <typename NUMBER> struct alignas(PIECE * sizeof(NUMBER)) piece_of {
    NUMBER numbers[PIECE];
};

template <typename NUMBER>
static __device__ __forceinline__ void write_piece(NUMBER *out, const float *x, size_t c,
                                                   size_t vocab, const struct gradient_by &by)
{
    piece_of<NUMBER> piece;

    UNROLL
    for (int k = 0; k < PIECE; k++) {
        narrow(&piece.numbers[k], gradient_of(x[k], c + k, by));
    }
    if (c + PIECE <= vocab) {
        *(piece_of<NUMBER> *)(out + c) = piece;
        return;
    }
    UNROLL
    for (int k = 0; k < PIECE; k++) {
        if (c + k < vocab) {
            out[c + k] = piece.numbers[k];
        }
    }
}

/* In place, in the type's width from the row's begin on: what is written lies in front of all that is still to be
 * read, but for the first pieces, which the barrier keeps apart. */
template <typename NUMBER>
static __device__ void write_gradients(float *row, size_t vocab, const struct gradient_by &by)
{
    NUMBER *out = (NUMBER *)row;

    for (size_t begin = 0; begin < vocab; begin += (size_t)THREADS * PIECE) {
        size_t c = begin + (size_t)threadIdx.x * PIECE;
        float x[PIECE];

        if (c < vocab) {
            read_piece(x, row, c, vocab);
        }
        __syncthreads();
        if (c < vocab) {
            write_piece(out, x, c, vocab, by);
        }
    }
}

template <typename NUMBER>
__global__ void row_losses(float *logits, double *losses, struct head_rows all,
                           const int32_t *targets, const float *mask, struct head_shape shape,
                           size_t stride, bool gradients)
{
    __shared__ struct head_row whole;
    size_t i = blockIdx.x;
    struct gradient_by by;

    by.masked = mask[i] == 0.0F;
    if (threadIdx.x == 0) {
        whole = whole_row(all, i);
        losses[i] = by.masked ? 0.0 : log(whole.sum) + (whole.max - whole.target);
    }
    if (!gradients) {
        return;
    }
    __syncthreads();
    by.max = (float)whole.max;
    by.factor = (float)((double)shape.loss_seed / whole.sum);
    by.seed = shape.loss_seed;
    by.target = (size_t)targets[i] - shape.first_token;
    write_gradients<NUMBER>(logits + i * stride, shape.vocab, by);
}

static enum status launch_sums(struct head_row *own, const float *logits, const int32_t *targets,
                               const float *mask, const struct head_shape *shape,
                               struct stream *stream)
{
    size_t stride = head_logits_stride(shape);
    size_t vocab = shape->vocab;
    size_t first = shape->first_token;

    LAUNCH(sum_rows, (unsigned)shape->rows, THREADS, stream, own, logits, targets, mask, stride,
           vocab, first);
}

enum status KERNEL(head_logits)(float *logits, struct head_row *own, const void *x, const void *wte,
                                const int32_t *targets, const float *mask,
                                const struct head_shape *shape, enum dtype type,
                                struct stream *stream)
{
    struct gemm product = {};

    ENSURE((uintptr_t)logits % sizeof(float4) == 0, "logits at %p", (void *)logits);
    if (shape->rows == 0) {
        return STATUS_OK;
    }
    product.op_b = GEMM_TRANSPOSED;
    product.a_type = type;
    product.b_type = type;
    product.M = shape->rows;
    product.N = shape->vocab;
    product.K = shape->hidden;
    product.alpha = 1.0F;
    product.a = x;
    product.b = wte;
    product.c = logits;
    product.lda = shape->hidden;
    product.ldb = shape->hidden;
    product.ldc = head_logits_stride(shape);
    TRY(gemm_cuda_run(&product, stream));
    return launch_sums(own, logits, targets, mask, shape, stream);
}

template <typename NUMBER>
static enum status launch_losses(float *logits, double *losses, const struct head_rows &all,
                                 const int32_t *targets, const float *mask,
                                 const struct head_shape &shape, bool gradients,
                                 struct stream *stream)
{
    size_t stride = head_logits_stride(&shape);

    LAUNCH(row_losses<NUMBER>, (unsigned)shape.rows, THREADS, stream, logits, losses, all, targets,
           mask, shape, stride, gradients);
}

enum status KERNEL(head_loss)(float *logits, double *losses, const struct head_rows *all,
                              const int32_t *targets, const float *mask,
                              const struct head_shape *shape, bool gradients, enum dtype type,
                              struct stream *stream)
{
    if (shape->rows == 0) {
        return STATUS_OK;
    }
    BY_TYPE(type, return launch_losses<NUMBER>(logits, losses, *all, targets, mask, *shape,
                                               gradients, stream));
}

/* One block, whose threads fetch and whose first one adds. */
__global__ void add_losses(double *sum, const double *losses, size_t rows)
{
    __shared__ double piece[THREADS];
    double whole = *sum;

    for (size_t begin = 0; begin < rows; begin += THREADS) {
        size_t count = rows - begin < THREADS ? rows - begin : THREADS;

        if (threadIdx.x < count) {
            piece[threadIdx.x] = losses[begin + threadIdx.x];
        }
        __syncthreads();
        for (size_t i = 0; threadIdx.x == 0 && i < count; i++) {
            whole += piece[i];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        *sum = whole;
    }
}

enum status KERNEL(head_add_losses)(double *sum, const double *losses, size_t rows,
                                    struct stream *stream)
{
    if (rows == 0) {
        return STATUS_OK;
    }
    LAUNCH(add_losses, 1, THREADS, stream, sum, losses, rows);
}

enum status KERNEL(head_backward)(float *dx, float *dwte, const void *x, const float *dlogits,
                                  const void *wte, const struct head_shape *shape, enum dtype type,
                                  struct stream *stream)
{
    /* dlogits as row_losses() left them. */
    size_t distance = head_logits_stride(shape) * (sizeof(float) / dtype_bytes(type));
    struct gemm weight = {};
    struct gemm input = {};

    weight.op_a = GEMM_TRANSPOSED;
    weight.a_type = type;
    weight.b_type = type;
    weight.M = shape->vocab;
    weight.N = shape->hidden;
    weight.K = shape->rows;
    weight.alpha = 1.0F;
    weight.beta = 1.0F;
    weight.a = dlogits;
    weight.b = x;
    weight.c = dwte;
    weight.lda = distance;
    weight.ldb = shape->hidden;
    weight.ldc = shape->hidden;
    input = weight;
    input.op_a = GEMM_PLAIN;
    input.M = shape->rows;
    input.K = shape->vocab;
    input.beta = 0.0F;
    input.b = wte;
    input.c = dx;
    TRY(gemm_cuda_run(&weight, stream));
    return gemm_cuda_run(&input, stream);
}

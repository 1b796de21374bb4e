/*
 * Attention in fp32, by plain multiply-adds: no tensor core, so no TF32. A block has ROWS queries or
 * keys, of each eight threads, and walks the other side in tiles of ROWS. A thread has every eighth
 * score of its row and every eighth column of its sums, all of them in ascending order.
 */
#include "tensor/cuda/attention_heads.cuh"

#define LANES 8 /* threads of a row */

namespace
{

/* D here is a bound of the real one. */
template <int D> struct plan {
    static constexpr int ROWS = D <= 128 ? 32 : 16;
    static constexpr int THREADS = ROWS * LANES;
    static constexpr int SCORES = ROWS / LANES; /* of a thread, of a tile */
    static constexpr int COLUMNS = D / LANES;   /* of a thread */
    static constexpr int STRIDE = D + 1;        /* so that rows begin in different banks */
    static constexpr int TILE = ROWS * STRIDE;
    static constexpr int WEIGHTS = ROWS * (ROWS + 1);
    static constexpr int BITS = ROWS * ROWS / 8; /* bytes */
};

} // namespace

/* Of (T, head_size) the rows from `first` on; what is outside of it is zero. */
template <int D>
static __device__ __forceinline__ void load_tile(float *tile, const float *from, size_t stride,
                                                 unsigned first, const attention_call &call)
{
    for (unsigned i = threadIdx.x; i < plan<D>::ROWS * D; i += plan<D>::THREADS) {
        const unsigned row = i / D;
        const unsigned column = i % D;
        const bool inside = first + row < call.positions && column < call.head_size;

        tile[row * plan<D>::STRIDE + column] =
            inside ? from[(size_t)(first + row) * stride + column] : 0.0F;
    }
}

/* products[i] = row · row (lane + 8 i) of the tile. */
template <int D>
static __device__ __forceinline__ void multiply_rows(float products[], const float *row,
                                                     const float *tile, unsigned lane,
                                                     unsigned head_size)
{
    UNROLL
    for (int i = 0; i < plan<D>::SCORES; i++) {
        products[i] = 0.0F;
    }
    for (unsigned d = 0; d < head_size; d++) {
        const float factor = row[d];

        UNROLL
        for (int i = 0; i < plan<D>::SCORES; i++) {
            products[i] += factor * tile[(lane + LANES * i) * plan<D>::STRIDE + d];
        }
    }
}

/* sums[i] += the row of weights · column (lane + 8 i) of the tile. */
template <int D>
static __device__ __forceinline__ void add_weighted(float sums[], const float *weights,
                                                    const float *tile, unsigned lane)
{
    for (unsigned k = 0; k < plan<D>::ROWS; k++) {
        const float weight = weights[k];

        UNROLL
        for (int i = 0; i < plan<D>::COLUMNS; i++) {
            sums[i] += weight * tile[k * plan<D>::STRIDE + lane + LANES * i];
        }
    }
}

template <int D>
static __device__ __forceinline__ void write_row(float *row, const float sums[], float factor,
                                                 unsigned lane, unsigned head_size)
{
    UNROLL
    for (int i = 0; i < plan<D>::COLUMNS; i++) {
        if (lane + LANES * i < head_size) {
            row[lane + LANES * i] = sums[i] * factor;
        }
    }
}

/* Over the threads of a row. */
static __device__ __forceinline__ float row_max(float value)
{
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2) {
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, lanes));
    }
    return value;
}

static __device__ __forceinline__ float row_sum(float value)
{
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2) {
        value += __shfl_xor_sync(ALL_LANES, value, lanes);
    }
    return value;
}

namespace
{

/* The softmax of a row so far: `sum` is that of this thread's own scores. */
struct softmax {
    float max;
    float sum;
};

} // namespace

/* Scores of a tile become weights relative to the new maximum, written to the row; what was summed so
 * far is to be multiplied by the result. */
template <int D>
static __device__ __forceinline__ float
take_scores(softmax *so_far, float scores[], float *weights, const uint8_t *bits,
            const attention_call &call, unsigned query, unsigned first_key, unsigned lane)
{
    float max = so_far->max;
    float shrink;

    UNROLL
    for (int i = 0; i < plan<D>::SCORES; i++) {
        const bool seen = first_key + lane + LANES * i <= query;

        scores[i] = seen ? scores[i] * call.scale : -INFINITY;
        max = fmaxf(max, scores[i]);
    }
    max = row_max(max);
    shrink = expf(so_far->max - max);
    so_far->sum *= shrink;
    so_far->max = max;
    UNROLL
    for (int i = 0; i < plan<D>::SCORES; i++) {
        const unsigned k = lane + LANES * i;
        const float weight = expf(scores[i] - max);
        const bool kept = !call.drops || keeps<plan<D>::ROWS>(bits, k, query % plan<D>::ROWS);

        so_far->sum += weight;
        weights[k] = kept ? weight : 0.0F;
    }
    return shrink;
}

template <int D>
__global__ void __launch_bounds__(plan<D>::THREADS, D <= 128 ? 3 : 2)
    attend_fp32(float *out, float *lse, const float *qkv, attention_call call)
{
    SHARED_MEMORY(shared);
    float *const queries = (float *)shared;
    float *const keys = queries + plan<D>::TILE;
    float *const values = keys + plan<D>::TILE;
    const unsigned row = threadIdx.x / LANES;
    const unsigned lane = threadIdx.x % LANES;
    float *const weights = values + plan<D>::TILE + row * (plan<D>::ROWS + 1);
    uint8_t *const bits = (uint8_t *)(values + plan<D>::TILE + plan<D>::WEIGHTS);
    const attention_head here = attention_head_here(call);
    const unsigned first_query = (gridDim.y - 1 - blockIdx.y) * plan<D>::ROWS;
    const float *const from = qkv + here.first_qkv;
    softmax so_far = {-INFINITY, 0.0F};
    float sums[plan<D>::COLUMNS] = {};

    load_tile<D>(queries, from, here.row_qkv, first_query, call);
    for (unsigned first_key = 0; first_key <= first_query; first_key += plan<D>::ROWS) {
        float scores[plan<D>::SCORES];
        float shrink;

        __syncthreads();
        load_tile<D>(keys, from + here.row, here.row_qkv, first_key, call);
        load_tile<D>(values, from + 2 * here.row, here.row_qkv, first_key, call);
        if (call.drops) {
            make_keep_bits<plan<D>::ROWS, plan<D>::ROWS, plan<D>::THREADS>(bits, call, here,
                                                                           first_key, first_query);
        }
        __syncthreads();
        multiply_rows<D>(scores, queries + row * plan<D>::STRIDE, keys, lane, call.head_size);
        shrink = take_scores<D>(&so_far, scores, weights, bits, call, first_query + row, first_key,
                                lane);
        __syncwarp();
        UNROLL
        for (int i = 0; i < plan<D>::COLUMNS; i++) {
            sums[i] *= shrink;
        }
        add_weighted<D>(sums, weights, values, lane);
    }
    so_far.sum = row_sum(so_far.sum);
    if (first_query + row < call.positions) {
        write_row<D>(out + here.first + (first_query + row) * here.row, sums,
                     call.keep_scale / so_far.sum, lane, call.head_size);
        if (lane == 0) {
            lse[here.rows + first_query + row] = so_far.max + logf(so_far.sum);
        }
    }
}

/* Of one weight: p, what it is multiplied by, and ds without 1 / sqrt(D). */
static __device__ __forceinline__ void weigh(float *weight, float *dscore, float score,
                                             float dweight, float lse, float delta, bool kept,
                                             const attention_call &call)
{
    const float p = expf(score * call.scale - lse);
    const float factor = kept ? call.keep_scale : 0.0F;

    *weight = p * factor;
    *dscore = p * (factor * dweight - delta);
}

/* dK and dV of the block's keys. */
template <int D>
__global__ void __launch_bounds__(plan<D>::THREADS, D <= 128 ? 3 : 2)
    key_gradients_fp32(float *dqkv, const float *dout, const float *qkv, const float *lse,
                       const float *delta, attention_call call)
{
    SHARED_MEMORY(shared);
    float *const keys = (float *)shared;
    float *const values = keys + plan<D>::TILE;
    float *const queries = values + plan<D>::TILE;
    float *const douts = queries + plan<D>::TILE;
    const unsigned row = threadIdx.x / LANES;
    const unsigned lane = threadIdx.x % LANES;
    float *const weights = douts + plan<D>::TILE + row * (plan<D>::ROWS + 1);
    float *const dscores = weights + plan<D>::WEIGHTS;
    uint8_t *const bits = (uint8_t *)(douts + plan<D>::TILE + 2 * plan<D>::WEIGHTS);
    const attention_head here = attention_head_here(call);
    const unsigned first_key = blockIdx.y * plan<D>::ROWS;
    const float *const from = qkv + here.first_qkv;
    float dkeys[plan<D>::COLUMNS] = {};
    float dvalues[plan<D>::COLUMNS] = {};

    load_tile<D>(keys, from + here.row, here.row_qkv, first_key, call);
    load_tile<D>(values, from + 2 * here.row, here.row_qkv, first_key, call);
    for (unsigned first = first_key; first < call.positions; first += plan<D>::ROWS) {
        float scores[plan<D>::SCORES];
        float products[plan<D>::SCORES];

        __syncthreads();
        load_tile<D>(queries, from, here.row_qkv, first, call);
        load_tile<D>(douts, dout + here.first, here.row, first, call);
        if (call.drops) {
            make_keep_bits<plan<D>::ROWS, plan<D>::ROWS, plan<D>::THREADS>(bits, call, here,
                                                                           first_key, first);
        }
        __syncthreads();
        multiply_rows<D>(scores, keys + row * plan<D>::STRIDE, queries, lane, call.head_size);
        multiply_rows<D>(products, values + row * plan<D>::STRIDE, douts, lane, call.head_size);
        UNROLL
        for (int i = 0; i < plan<D>::SCORES; i++) {
            const unsigned q = lane + LANES * i;

            weights[q] = 0.0F;
            dscores[q] = 0.0F;
            if (first_key + row <= first + q && first + q < call.positions) {
                weigh(&weights[q], &dscores[q], scores[i], products[i], lse[here.rows + first + q],
                      delta[here.rows + first + q],
                      !call.drops || keeps<plan<D>::ROWS>(bits, row, q), call);
            }
        }
        __syncwarp();
        add_weighted<D>(dvalues, weights, douts, lane);
        add_weighted<D>(dkeys, dscores, queries, lane);
    }
    if (first_key + row < call.positions) {
        float *const to = dqkv + here.first_qkv + (first_key + row) * here.row_qkv;

        write_row<D>(to + here.row, dkeys, call.scale, lane, call.head_size);
        write_row<D>(to + 2 * here.row, dvalues, 1.0F, lane, call.head_size);
    }
}

/* dQ of the block's queries. */
template <int D>
__global__ void __launch_bounds__(plan<D>::THREADS, D <= 128 ? 3 : 2)
    query_gradients_fp32(float *dqkv, const float *dout, const float *qkv, const float *lse,
                         const float *delta, attention_call call)
{
    SHARED_MEMORY(shared);
    float *const queries = (float *)shared;
    float *const douts = queries + plan<D>::TILE;
    float *const keys = douts + plan<D>::TILE;
    float *const values = keys + plan<D>::TILE;
    const unsigned row = threadIdx.x / LANES;
    const unsigned lane = threadIdx.x % LANES;
    float *const dscores = values + plan<D>::TILE + row * (plan<D>::ROWS + 1);
    uint8_t *const bits = (uint8_t *)(values + plan<D>::TILE + plan<D>::WEIGHTS);
    const attention_head here = attention_head_here(call);
    const unsigned first_query = (gridDim.y - 1 - blockIdx.y) * plan<D>::ROWS;
    const unsigned query = first_query + row;
    const bool exists = query < call.positions;
    const float own_lse = exists ? lse[here.rows + query] : 0.0F;
    const float own_delta = exists ? delta[here.rows + query] : 0.0F;
    const float *const from = qkv + here.first_qkv;
    float dqueries[plan<D>::COLUMNS] = {};

    load_tile<D>(queries, from, here.row_qkv, first_query, call);
    load_tile<D>(douts, dout + here.first, here.row, first_query, call);
    for (unsigned first = 0; first <= first_query; first += plan<D>::ROWS) {
        float scores[plan<D>::SCORES];
        float products[plan<D>::SCORES];

        __syncthreads();
        load_tile<D>(keys, from + here.row, here.row_qkv, first, call);
        load_tile<D>(values, from + 2 * here.row, here.row_qkv, first, call);
        if (call.drops) {
            make_keep_bits<plan<D>::ROWS, plan<D>::ROWS, plan<D>::THREADS>(bits, call, here, first,
                                                                           first_query);
        }
        __syncthreads();
        multiply_rows<D>(scores, queries + row * plan<D>::STRIDE, keys, lane, call.head_size);
        multiply_rows<D>(products, douts + row * plan<D>::STRIDE, values, lane, call.head_size);
        UNROLL
        for (int i = 0; i < plan<D>::SCORES; i++) {
            const unsigned k = lane + LANES * i;
            float weight;

            dscores[k] = 0.0F;
            if (first + k <= query) {
                weigh(&weight, &dscores[k], scores[i], products[i], own_lse, own_delta,
                      !call.drops || keeps<plan<D>::ROWS>(bits, k, row), call);
            }
        }
        __syncwarp();
        add_weighted<D>(dqueries, dscores, keys, lane);
    }
    if (exists) {
        write_row<D>(dqkv + here.first_qkv + query * here.row_qkv, dqueries, call.scale, lane,
                     call.head_size);
    }
}

/* Of `tiles` tiles and `weights` squares of weights. */
template <int D> static unsigned shared_bytes(unsigned tiles, unsigned weights)
{
    return (tiles * plan<D>::TILE + weights * plan<D>::WEIGHTS) * (unsigned)sizeof(float) +
           plan<D>::BITS;
}

template <int D>
static enum status launch_forward(float *out, float *lse, const float *qkv,
                                  const struct attention_shape *shape, const attention_call &call,
                                  struct stream *stream)
{
    LAUNCH_SHARED(attend_fp32<D>, attention_grid(shape, plan<D>::ROWS, 1), plan<D>::THREADS,
                  shared_bytes<D>(3, 1), stream, out, lse, qkv, call);
}

template <int D>
static enum status launch_keys(float *dqkv, const float *dout, const float *qkv, const float *lse,
                               const float *delta, const struct attention_shape *shape,
                               const attention_call &call, struct stream *stream)
{
    LAUNCH_SHARED(key_gradients_fp32<D>, attention_grid(shape, plan<D>::ROWS, 1), plan<D>::THREADS,
                  shared_bytes<D>(4, 2), stream, dqkv, dout, qkv, lse, delta, call);
}

template <int D>
static enum status launch_queries(float *dqkv, const float *dout, const float *qkv,
                                  const float *lse, const float *delta,
                                  const struct attention_shape *shape, const attention_call &call,
                                  struct stream *stream)
{
    LAUNCH_SHARED(query_gradients_fp32<D>, attention_grid(shape, plan<D>::ROWS, 1),
                  plan<D>::THREADS, shared_bytes<D>(4, 1), stream, dqkv, dout, qkv, lse, delta,
                  call);
}

enum status attention_fp32_forward(float *out, float *lse, const float *qkv,
                                   const struct attention_shape *shape, const attention_call &call,
                                   struct stream *stream)
{
    ATTENTION_BY_D(shape->head_size, return launch_forward<D>(out, lse, qkv, shape, call, stream));
}

template <int D>
static enum status launch_backward(float *dqkv, const float *dout, const float *qkv,
                                   const float *lse, const float *delta,
                                   const struct attention_shape *shape, const attention_call &call,
                                   struct stream *stream)
{
    TRY(launch_keys<D>(dqkv, dout, qkv, lse, delta, shape, call, stream));
    return launch_queries<D>(dqkv, dout, qkv, lse, delta, shape, call, stream);
}

enum status attention_fp32_backward(float *dqkv, const float *dout, const float *qkv,
                                    const float *lse, const float *delta,
                                    const struct attention_shape *shape, const attention_call &call,
                                    struct stream *stream)
{
    ATTENTION_BY_D(shape->head_size,
                   return launch_backward<D>(dqkv, dout, qkv, lse, delta, shape, call, stream));
}

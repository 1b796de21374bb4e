/*
 * The forward of 16-bit numbers: a block has TILES times 64 queries and walks their keys in steps of KEYS,
 * never past the diagonal. The softmax goes along: weights are relative to the greatest score so far, and
 * what was summed before a greater one came is multiplied down. While a step multiplies K, its V is on the
 * way, and while it multiplies V, the next K.
 */
#include "tensor/cuda/attention_tiles.cuh"
#include "tensor/kernels/attention.h"

namespace
{

/* D here is a bound of the real one. */
template <int D> struct plan {
    static constexpr int TILES = D == 64 ? 2 : 1;
    static constexpr int QUERIES = TILES * 16 * TILE_WARPS;
    static constexpr int KEYS = D <= 128 ? 64 : 32;
    static constexpr int BITS = KEYS * QUERIES / 8; /* bytes */
    static constexpr unsigned BYTES = (QUERIES + 2 * KEYS) * D * 2 + BITS;
};

/* Of a thread's rows, m and i / 2; `sum` is of its own columns. */
template <int D> struct softmax {
    float max[plan<D>::TILES][2];
    float sum[plan<D>::TILES][2];
};

} // namespace

/* Over the four lanes of a row. */
static __device__ __forceinline__ float row_max(float value)
{
    value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, 1));
    return fmaxf(value, __shfl_xor_sync(ALL_LANES, value, 2));
}

static __device__ __forceinline__ float row_sum(float value)
{
    value += __shfl_xor_sync(ALL_LANES, value, 1);
    return value + __shfl_xor_sync(ALL_LANES, value, 2);
}

template <int D> using scores_of = tile_sums<plan<D>::TILES, plan<D>::KEYS>;

/* Scores of keys that a query does not see become -inf; `ahead`: how far the warp's first query is ahead of
 * the first key. */
template <int D>
static __device__ __forceinline__ void hide_later_keys(scores_of<D> *scores, int ahead)
{
    UNROLL
    for (int m = 0; m < plan<D>::TILES; m++) {
        UNROLL
        for (int n = 0; n < plan<D>::KEYS / 8; n++) {
            UNROLL
            for (int i = 0; i < 4; i++) {
                if ((int)column_of(n, i) > ahead + m * 16 + (int)row_of(i)) {
                    scores->at[m][n][i] = -INFINITY;
                }
            }
        }
    }
}

/* Scores become weights, and what was summed so far is multiplied down to the new greatest score. `log2_scale`:
 * from a product to the logarithm of a weight. */
template <int D>
static __device__ __forceinline__ void take_scores(softmax<D> *so_far,
                                                   tile_sums<plan<D>::TILES, D> *sums,
                                                   scores_of<D> *scores, float log2_scale)
{
    UNROLL
    for (int row = 0; row < plan<D>::TILES * 2; row++) {
        const int m = row / 2;
        const int half = row % 2;
        float max = so_far->max[m][half];
        float shrink;

        UNROLL
        for (int n = 0; n < plan<D>::KEYS / 8; n++) {
            max = fmaxf(max, fmaxf(scores->at[m][n][2 * half], scores->at[m][n][2 * half + 1]));
        }
        max = row_max(max);
        shrink = power_of_two((so_far->max[m][half] - max) * log2_scale);
        so_far->max[m][half] = max;
        so_far->sum[m][half] *= shrink;
        UNROLL
        for (int i = 0; i < plan<D>::KEYS / 4; i++) {
            float *const score = &scores->at[m][i / 2][2 * half + i % 2];

            *score = power_of_two(*score * log2_scale - max * log2_scale);
            so_far->sum[m][half] += *score;
        }
        UNROLL
        for (int i = 0; i < D / 4; i++) {
            sums->at[m][i / 2][2 * half + i % 2] *= shrink;
        }
    }
}

/* `row`: of the warp's first query in the block. */
template <int D>
static __device__ __forceinline__ void drop_weights(scores_of<D> *weights, const uint8_t *bits,
                                                    unsigned row)
{
    UNROLL
    for (int m = 0; m < plan<D>::TILES; m++) {
        UNROLL
        for (int n = 0; n < plan<D>::KEYS / 8; n++) {
            UNROLL
            for (int i = 0; i < 4; i++) {
                if (!keeps<plan<D>::QUERIES>(bits, column_of(n, i), row + m * 16 + row_of(i))) {
                    weights->at[m][n][i] = 0.0F;
                }
            }
        }
    }
}

template <int D, typename NUMBER>
static __device__ __forceinline__ void
write_results(NUMBER *out, float *lse, softmax<D> *all, const tile_sums<plan<D>::TILES, D> &sums,
              const attention_call &call, const attention_head &here, unsigned first)
{
    const int rows = (int)call.positions - (int)first;
    float factors[plan<D>::TILES][2];

    UNROLL
    for (int row = 0; row < plan<D>::TILES * 2; row++) {
        const int m = row / 2;
        const int half = row % 2;
        const int own = m * 16 + (int)row_of(2 * half);
        const float sum = row_sum(all->sum[m][half]);

        factors[m][half] = call.keep_scale / sum;
        if (own < rows && threadIdx.x % 4 == 0) {
            lse[here.rows + first + own] = all->max[m][half] * call.scale + logf(sum);
        }
    }
    write_rows(out + here.first + first * here.row, here.row, sums, factors, rows,
               (int)call.head_size);
}

template <typename NUMBER, int D>
__global__ void __launch_bounds__(TILE_THREADS)
    attend(NUMBER *out, float *lse, const NUMBER *qkv, bool aligned, attention_call call)
{
    SHARED_MEMORY(shared);
    NUMBER *const queries = (NUMBER *)shared;
    NUMBER *const keys = queries + plan<D>::QUERIES * D;
    NUMBER *const values = keys + plan<D>::KEYS * D;
    uint8_t *const bits = (uint8_t *)(values + plan<D>::KEYS * D);
    const attention_head here = attention_head_here(call);
    const tile_source<NUMBER> query_rows = {qkv + here.first_qkv, here.row_qkv, call.positions,
                                            call.head_size, aligned};
    tile_source<NUMBER> key_rows = query_rows;
    tile_source<NUMBER> value_rows = query_rows;
    const unsigned first_query = (gridDim.y - 1 - blockIdx.y) * plan<D>::QUERIES;
    const unsigned row = threadIdx.x / WARP_LANES * plan<D>::TILES * 16;      /* of the warp */
    const unsigned end = min(first_query + plan<D>::QUERIES, call.positions); /* of keys */
    softmax<D> so_far;
    tile_sums<plan<D>::TILES, D> sums;

    key_rows.first += here.row;
    value_rows.first += 2 * here.row;
    sums.clear();
    UNROLL
    for (int i = 0; i < plan<D>::TILES * 2; i++) {
        so_far.max[i / 2][i % 2] = -INFINITY;
        so_far.sum[i / 2][i % 2] = 0.0F;
    }
    load_tile<D, plan<D>::QUERIES>(queries, query_rows, first_query);
    load_tile<D, plan<D>::KEYS>(keys, key_rows, 0);
    commit_copies();
    for (unsigned first_key = 0; first_key < end; first_key += plan<D>::KEYS) {
        const bool sees = first_key < first_query + row + plan<D>::TILES * 16;
        scores_of<D> scores;

        if (call.drops) {
            make_keep_bits<plan<D>::KEYS, plan<D>::QUERIES, TILE_THREADS>(bits, call, here,
                                                                          first_key, first_query);
        }
        wait_for_copies<0>();
        __syncthreads(); /* K is here; V is read no more */
        load_tile<D, plan<D>::KEYS>(values, value_rows, first_key);
        commit_copies();
        if (sees) {
            multiply_rows<D>(&scores, queries, row, keys);
            if (first_key + plan<D>::KEYS > first_query + row + 1) {
                hide_later_keys<D>(&scores, (int)(first_query + row) - (int)first_key);
            }
            take_scores<D>(&so_far, &sums, &scores, call.scale * LOG2_OF_E);
            if (call.drops) {
                drop_weights<D>(&scores, bits, row);
            }
        }
        wait_for_copies<0>();
        __syncthreads(); /* V is here; K and the bits are read no more */
        if (first_key + plan<D>::KEYS < end) {
            load_tile<D, plan<D>::KEYS>(keys, key_rows, first_key + plan<D>::KEYS);
            commit_copies();
        }
        if (sees) {
            add_weighted<D>(&sums, scores, values, 0);
        }
    }
    write_results<D>(out, lse, &so_far, sums, call, here, first_query + row);
}

template <typename NUMBER, int D>
static enum status launch_tiles(NUMBER *out, float *lse, const NUMBER *qkv,
                                const struct attention_shape *shape, const attention_call &call,
                                struct stream *stream)
{
    const auto kernel = attend<NUMBER, D>;
    const bool aligned = rows_are_aligned(qkv, call.head_size);

    LAUNCH_SHARED(kernel, attention_grid(shape, plan<D>::QUERIES, 1), TILE_THREADS, plan<D>::BYTES,
                  stream, out, lse, qkv, aligned, call);
}

template <typename NUMBER>
static enum status launch_forward(NUMBER *out, float *lse, const NUMBER *qkv,
                                  const struct attention_shape *shape, const attention_call &call,
                                  struct stream *stream)
{
    ATTENTION_BY_D(shape->head_size,
                   return (launch_tiles<NUMBER, D>(out, lse, qkv, shape, call, stream)));
}

static enum status launch_forward(float *out, float *lse, const float *qkv,
                                  const struct attention_shape *shape, const attention_call &call,
                                  struct stream *stream)
{
    return attention_fp32_forward(out, lse, qkv, shape, call, stream);
}

enum status KERNEL(attention_forward)(void *out, float *lse, const void *qkv,
                                      const struct attention_shape *shape,
                                      const struct attention_dropout *dropout, float *workspace,
                                      enum dtype type, struct stream *stream)
{
    (void)workspace;
    if (shape->batch * shape->positions * shape->heads == 0) {
        return STATUS_OK;
    }
    BY_TYPE(type, return launch_forward((NUMBER *)out, lse, (const NUMBER *)qkv, shape,
                                        attention_call_of(shape, dropout), stream));
}

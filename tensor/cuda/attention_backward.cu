/*
 * The backward, without atomics: weights are made again twice, by a kernel whose blocks have keys and walk
 * the queries that see them (dK, dV), and by one whose blocks have queries and walk their keys (dQ): seven
 * products in place of five. The first makes transposed scores, keys by queries, so that in both weights
 * and their gradients are in registers as the next product takes them.
 *
 * Before them out · dout of each row, and in a 16-bit format dout rounded to it, which the workspace holds.
 */
#include "tensor/cuda/attention_tiles.cuh"
#include "tensor/kernels/attention.h"

namespace
{

/* D here is a bound of the real one. A block has OWN rows, and walks the others in steps of STEP, of which
 * two are in shared memory: one at work, the other on its way. */
template <int D> struct plan {
    static constexpr int OWN = 16 * TILE_WARPS;
    static constexpr int STEP = D == 64 ? 64 : D == 128 ? 32 : 16;
    static constexpr int COLUMNS = D <= 128 ? D : 128; /* of dK and dV that a block sums */
    static constexpr int BITS = OWN * STEP / 8;        /* bytes */
    static constexpr int ROWS = 2 * STEP * (int)sizeof(float);
    static constexpr int STAGE = 2 * STEP * D * 2 + ROWS + BITS;
    static constexpr unsigned BYTES = 2 * OWN * D * 2 + 2 * STAGE;
};

/* What a block walks: tiles (STEP, D) of two tensors, the mask, and of queries lse and out · dout. */
template <typename NUMBER, int D> struct stage {
    NUMBER *left;
    NUMBER *right;
    float *lse;
    float *delta;
    uint8_t *bits;

    __device__ __forceinline__ stage(unsigned char *first, unsigned number)
    {
        left = (NUMBER *)(first + number % 2 * plan<D>::STAGE);
        right = left + plan<D>::STEP * D;
        lse = (float *)(right + plan<D>::STEP * D);
        delta = lse + plan<D>::STEP;
        bits = (uint8_t *)(delta + plan<D>::STEP);
    }
};

} // namespace

/* What both kernels read; all but `call` as attention.h has it, dout rounded. */
template <typename NUMBER> struct backward_call {
    NUMBER *dqkv;
    const NUMBER *dout;
    const NUMBER *qkv;
    const float *lse;
    const float *delta;
    bool aligned;
    attention_call call;
};

/* Rows of a head: of Q, K and V for `part` 0, 1 and 2. */
template <typename NUMBER>
static __device__ __forceinline__ tile_source<NUMBER>
rows_of_qkv(const backward_call<NUMBER> &of, const attention_head &here, unsigned part)
{
    return {of.qkv + here.first_qkv + part * here.row, here.row_qkv, of.call.positions,
            of.call.head_size, of.aligned};
}

template <typename NUMBER>
static __device__ __forceinline__ tile_source<NUMBER> rows_of_dout(const backward_call<NUMBER> &of,
                                                                   const attention_head &here)
{
    return {of.dout + here.first, here.row, of.call.positions, of.call.head_size, of.aligned};
}

/* Scores and products dout · V of a warp's 16 rows become weights and their gradients without 1 / sqrt(D).
 * `lse_at` and `delta_at` are of the query of sum i of column group n, lse as a power of two. */
template <int STEP, typename LSE_AT, typename DELTA_AT>
static __device__ __forceinline__ void
take_scores(tile_sums<1, STEP> *scores, tile_sums<1, STEP> *products, const attention_call &call,
            LSE_AT lse_at, DELTA_AT delta_at)
{
    UNROLL
    for (int n = 0; n < STEP / 8; n++) {
        UNROLL
        for (int i = 0; i < 4; i++) {
            const float p =
                power_of_two(scores->at[0][n][i] * (call.scale * LOG2_OF_E) - lse_at(n, i));

            scores->at[0][n][i] = p;
            products->at[0][n][i] = p * (products->at[0][n][i] - delta_at(n, i));
        }
    }
}

/* Sums that are not kept become zero, the others are multiplied. */
template <int STEP, typename KEPT_AT>
static __device__ __forceinline__ void keep_sums(tile_sums<1, STEP> *sums, float factor,
                                                 KEPT_AT kept_at)
{
    UNROLL
    for (int n = 0; n < STEP / 8; n++) {
        UNROLL
        for (int i = 0; i < 4; i++) {
            sums->at[0][n][i] = kept_at(n, i) ? sums->at[0][n][i] * factor : 0.0F;
        }
    }
}

/* Begins to load a step of queries. Where there is none, Q and dout are zeros, and so is all that they add. */
template <int D, typename NUMBER>
static __device__ __forceinline__ void
load_queries(const stage<NUMBER, D> &to, const backward_call<NUMBER> &of,
             const attention_head &here, unsigned first_key, unsigned first_query)
{
    load_tile<D, plan<D>::STEP>(to.left, rows_of_qkv(of, here, 0), first_query);
    load_tile<D, plan<D>::STEP>(to.right, rows_of_dout(of, here), first_query);
    commit_copies();
    if (threadIdx.x < plan<D>::STEP) {
        const unsigned query = first_query + threadIdx.x;
        const bool exists = query < of.call.positions;

        to.lse[threadIdx.x] = exists ? of.lse[here.rows + query] * LOG2_OF_E : 0.0F;
        to.delta[threadIdx.x] = exists ? of.delta[here.rows + query] : 0.0F;
    }
    if (of.call.drops) {
        make_keep_bits<plan<D>::OWN, plan<D>::STEP, TILE_THREADS>(to.bits, of.call, here, first_key,
                                                                  first_query);
    }
}

/* What a step of queries adds to a warp's 16 keys, which begin with `row` of the block and are `ahead` of the
 * first query. */
template <int D, typename NUMBER>
static __device__ __forceinline__ void
add_queries(tile_sums<1, plan<D>::COLUMNS> *dkeys, tile_sums<1, plan<D>::COLUMNS> *dvalues,
            const NUMBER *keys, const NUMBER *values, const stage<NUMBER, D> &now,
            const attention_call &call, unsigned row, int ahead, unsigned column)
{
    tile_sums<1, plan<D>::STEP> scores;
    tile_sums<1, plan<D>::STEP> products;
    const auto kept = [&](int n, int i) {
        return keeps<plan<D>::STEP>(now.bits, row + row_of(i), column_of(n, i));
    };

    multiply_rows<D>(&scores, keys, row, now.left);
    multiply_rows<D>(&products, values, row, now.right);
    if (call.drops) {
        keep_sums(&products, call.keep_scale, kept);
    }
    take_scores(
        &scores, &products, call, [&](int n, int i) { return now.lse[column_of(n, i)]; },
        [&](int n, int i) { return now.delta[column_of(n, i)]; });
    if (ahead + 16 > 1) {
        const auto seen = [&](int n, int i) {
            return ahead + (int)row_of(i) <= (int)column_of(n, i);
        };

        keep_sums(&scores, 1.0F, seen);
        keep_sums(&products, 1.0F, seen);
    }
    if (call.drops) {
        keep_sums(&scores, call.keep_scale, kept);
    }
    add_weighted<D>(dvalues, scores, now.right, column);
    add_weighted<D>(dkeys, products, now.left, column);
}

/* Columns of dK and dV from `column` on, of the block's keys. */
template <typename NUMBER, int D>
__global__ void __launch_bounds__(TILE_THREADS, 2) key_gradients(backward_call<NUMBER> of)
{
    SHARED_MEMORY(shared);
    NUMBER *const keys = (NUMBER *)shared;
    NUMBER *const values = keys + plan<D>::OWN * D;
    unsigned char *const stages = (unsigned char *)(values + plan<D>::OWN * D);
    const attention_head here = attention_head_here(of.call);
    const unsigned first_key = blockIdx.y * plan<D>::OWN;
    const unsigned column = blockIdx.z * plan<D>::COLUMNS;
    const unsigned row = threadIdx.x / WARP_LANES * 16; /* of the warp */
    tile_sums<1, plan<D>::COLUMNS> dkeys;
    tile_sums<1, plan<D>::COLUMNS> dvalues;
    unsigned step = 0;

    dkeys.clear();
    dvalues.clear();
    load_tile<D, plan<D>::OWN>(keys, rows_of_qkv(of, here, 1), first_key);
    load_tile<D, plan<D>::OWN>(values, rows_of_qkv(of, here, 2), first_key);
    load_queries<D>(stage<NUMBER, D>(stages, 0), of, here, first_key, first_key);
    for (unsigned first = first_key; first < of.call.positions; first += plan<D>::STEP, step++) {
        const stage<NUMBER, D> now(stages, step);
        const stage<NUMBER, D> next(stages, step + 1);
        const bool more = first + plan<D>::STEP < of.call.positions;

        wait_for_copies<0>();
        __syncthreads();
        if (more) {
            load_queries<D>(next, of, here, first_key, first + plan<D>::STEP);
        }
        if (first + plan<D>::STEP > first_key + row) {
            add_queries<D>(&dkeys, &dvalues, keys, values, now, of.call, row,
                           (int)(first_key + row) - (int)first, column);
        }
    }
    {
        /* Sums were made of scores that are not multiplied. */
        const float scales[1][2] = {{of.call.scale, of.call.scale}};
        const float ones[1][2] = {{1.0F, 1.0F}};
        const int rows = (int)of.call.positions - (int)(first_key + row);
        const int columns = (int)of.call.head_size - (int)column;
        NUMBER *const to =
            of.dqkv + here.first_qkv + (first_key + row) * here.row_qkv + here.row + column;

        write_rows(to, here.row_qkv, dkeys, scales, rows, columns);
        write_rows(to + here.row, here.row_qkv, dvalues, ones, rows, columns);
    }
}

/* Begins to load a step of keys. */
template <int D, typename NUMBER>
static __device__ __forceinline__ void
load_keys(const stage<NUMBER, D> &to, const backward_call<NUMBER> &of, const attention_head &here,
          unsigned first_key, unsigned first_query)
{
    load_tile<D, plan<D>::STEP>(to.left, rows_of_qkv(of, here, 1), first_key);
    load_tile<D, plan<D>::STEP>(to.right, rows_of_qkv(of, here, 2), first_key);
    commit_copies();
    if (of.call.drops) {
        make_keep_bits<plan<D>::STEP, plan<D>::OWN, TILE_THREADS>(to.bits, of.call, here, first_key,
                                                                  first_query);
    }
}

/* What a step of keys adds to a warp's 16 queries, which begin with `row` of the block and are `ahead` of the
 * first key. */
template <int D, typename NUMBER>
static __device__ __forceinline__ void add_keys(tile_sums<1, D> *dqueries, const NUMBER *queries,
                                                const NUMBER *douts, const stage<NUMBER, D> &now,
                                                const float lse[2], const float delta[2],
                                                const attention_call &call, unsigned row, int ahead)
{
    tile_sums<1, plan<D>::STEP> scores;
    tile_sums<1, plan<D>::STEP> products;

    multiply_rows<D>(&scores, queries, row, now.left);
    multiply_rows<D>(&products, douts, row, now.right);
    if (call.drops) {
        keep_sums(&products, call.keep_scale, [&](int n, int i) {
            return keeps<plan<D>::OWN>(now.bits, column_of(n, i), row + row_of(i));
        });
    }
    take_scores(
        &scores, &products, call, [&](int, int i) { return lse[i / 2]; },
        [&](int, int i) { return delta[i / 2]; });
    if (plan<D>::STEP > ahead + 1) {
        keep_sums(&products, 1.0F,
                  [&](int n, int i) { return (int)column_of(n, i) <= ahead + (int)row_of(i); });
    }
    add_weighted<D>(dqueries, products, now.left, 0);
}

/* dQ of the block's queries. */
template <typename NUMBER, int D>
__global__ void __launch_bounds__(TILE_THREADS, D == 64 ? 3 : 2)
    query_gradients(backward_call<NUMBER> of)
{
    SHARED_MEMORY(shared);
    NUMBER *const queries = (NUMBER *)shared;
    NUMBER *const douts = queries + plan<D>::OWN * D;
    unsigned char *const stages = (unsigned char *)(douts + plan<D>::OWN * D);
    const attention_head here = attention_head_here(of.call);
    const unsigned first_query = (gridDim.y - 1 - blockIdx.y) * plan<D>::OWN;
    const unsigned row = threadIdx.x / WARP_LANES * 16;                      /* of the warp */
    const unsigned end = min(first_query + plan<D>::OWN, of.call.positions); /* of keys */
    float lse[2];
    float delta[2];
    tile_sums<1, D> dqueries;
    unsigned step = 0;

    dqueries.clear();
    UNROLL
    for (int half = 0; half < 2; half++) {
        const unsigned query = first_query + row + row_of(2 * half);
        const bool exists = query < of.call.positions;

        lse[half] = exists ? of.lse[here.rows + query] * LOG2_OF_E : 0.0F;
        delta[half] = exists ? of.delta[here.rows + query] : 0.0F;
    }
    load_tile<D, plan<D>::OWN>(queries, rows_of_qkv(of, here, 0), first_query);
    load_tile<D, plan<D>::OWN>(douts, rows_of_dout(of, here), first_query);
    load_keys<D>(stage<NUMBER, D>(stages, 0), of, here, 0, first_query);
    for (unsigned first = 0; first < end; first += plan<D>::STEP, step++) {
        const stage<NUMBER, D> now(stages, step);
        const stage<NUMBER, D> next(stages, step + 1);
        const bool more = first + plan<D>::STEP < end;

        wait_for_copies<0>();
        __syncthreads();
        if (more) {
            load_keys<D>(next, of, here, first + plan<D>::STEP, first_query);
        }
        if (first < first_query + row + 16) {
            add_keys<D>(&dqueries, queries, douts, now, lse, delta, of.call, row,
                        (int)(first_query + row) - (int)first);
        }
    }
    {
        const float scales[1][2] = {{of.call.scale, of.call.scale}};

        write_rows(of.dqkv + here.first_qkv + (first_query + row) * here.row_qkv, here.row_qkv,
                   dqueries, scales, (int)of.call.positions - (int)(first_query + row),
                   (int)of.call.head_size);
    }
}

/* ---- Before them. ---- */

#define PREPARE_ROWS 4 /* of a block, a warp each */

static __device__ __forceinline__ void keep_rounded(bf16 *rounded, size_t at, float number)
{
    narrow(&rounded[at], number);
}

static __device__ __forceinline__ void keep_rounded(fp16 *rounded, size_t at, float number)
{
    narrow(&rounded[at], number);
}

static __device__ __forceinline__ void keep_rounded(float *, size_t, float)
{
}

/* delta (B,H,T) = out · dout, with the unrounded dout; rounded (B,T,H·D) = dout in a 16-bit format. */
template <typename NUMBER>
__global__ void prepare_rows(float *delta, NUMBER *rounded, const float *dout, const NUMBER *out,
                             size_t rows, attention_call call)
{
    const size_t row = (size_t)blockIdx.x * PREPARE_ROWS + threadIdx.y; /* of (B,T,H) */
    const size_t position = row / call.heads;
    const size_t batch = position / call.positions;
    float sum = 0.0F;

    if (row >= rows) {
        return;
    }
    for (size_t d = threadIdx.x; d < call.head_size; d += WARP_LANES) {
        const size_t at = row * call.head_size + d;

        sum += widen(out[at]) * dout[at];
        keep_rounded(rounded, at, dout[at]);
    }
    sum = warp_sum(sum);
    if (threadIdx.x == 0) {
        delta[(batch * call.heads + row % call.heads) * call.positions +
              position % call.positions] = sum;
    }
}

template <typename NUMBER>
static enum status launch_prepare(float *delta, NUMBER *rounded, const float *dout,
                                  const NUMBER *out, size_t rows, const attention_call &call,
                                  struct stream *stream)
{
    LAUNCH(prepare_rows<NUMBER>, grid_of(rows, PREPARE_ROWS, UINT32_MAX),
           dim3(WARP_LANES, PREPARE_ROWS), stream, delta, rounded, dout, out, rows, call);
}

template <typename NUMBER, int D>
static enum status launch_keys(const struct attention_shape *shape, const backward_call<NUMBER> &of,
                               struct stream *stream)
{
    const auto kernel = key_gradients<NUMBER, D>;

    LAUNCH_SHARED(kernel, attention_grid(shape, plan<D>::OWN, D / plan<D>::COLUMNS), TILE_THREADS,
                  plan<D>::BYTES, stream, of);
}

template <typename NUMBER, int D>
static enum status launch_queries(const struct attention_shape *shape,
                                  const backward_call<NUMBER> &of, struct stream *stream)
{
    const auto kernel = query_gradients<NUMBER, D>;

    LAUNCH_SHARED(kernel, attention_grid(shape, plan<D>::OWN, 1), TILE_THREADS, plan<D>::BYTES,
                  stream, of);
}

template <typename NUMBER, int D>
static enum status launch_tiles(const struct attention_shape *shape,
                                const backward_call<NUMBER> &of, struct stream *stream)
{
    TRY((launch_keys<NUMBER, D>(shape, of, stream)));
    return launch_queries<NUMBER, D>(shape, of, stream);
}

/* Floats of the workspace before the rounded dout, whose rows may be loaded 16 bytes at a time. */
static size_t delta_floats(const struct attention_shape *shape)
{
    return (shape->batch * shape->positions * shape->heads + 3) / 4 * 4;
}

template <typename NUMBER>
static enum status launch_backward(NUMBER *dqkv, const float *dout, const NUMBER *out,
                                   const NUMBER *qkv, const float *lse, float *workspace,
                                   const struct attention_shape *shape, const attention_call &call,
                                   struct stream *stream)
{
    const size_t rows = shape->batch * shape->positions * shape->heads;
    NUMBER *const rounded = (NUMBER *)(workspace + delta_floats(shape));
    const backward_call<NUMBER> of = {
        dqkv,
        rounded,
        qkv,
        lse,
        workspace,
        rows_are_aligned(qkv, call.head_size) && rows_are_aligned(rounded, call.head_size),
        call};

    TRY(launch_prepare(workspace, rounded, dout, out, rows, call, stream));
    ATTENTION_BY_D(shape->head_size, return (launch_tiles<NUMBER, D>(shape, of, stream)));
}

static enum status launch_backward(float *dqkv, const float *dout, const float *out,
                                   const float *qkv, const float *lse, float *workspace,
                                   const struct attention_shape *shape, const attention_call &call,
                                   struct stream *stream)
{
    const size_t rows = shape->batch * shape->positions * shape->heads;

    TRY(launch_prepare(workspace, (float *)NULL, dout, out, rows, call, stream));
    return attention_fp32_backward(dqkv, dout, qkv, lse, workspace, shape, call, stream);
}

enum status KERNEL(attention_backward)(void *dqkv, const float *dout, const void *out,
                                       const void *qkv, const float *lse,
                                       const struct attention_shape *shape,
                                       const struct attention_dropout *dropout, float *workspace,
                                       enum dtype type, struct stream *stream)
{
    if (shape->batch * shape->positions * shape->heads == 0) {
        return STATUS_OK;
    }
    BY_TYPE(type, return launch_backward((NUMBER *)dqkv, dout, (const NUMBER *)out,
                                         (const NUMBER *)qkv, lse, workspace, shape,
                                         attention_call_of(shape, dropout), stream));
}

/* In a 16-bit format; fp32 needs the first part alone. */
size_t KERNEL(attention_workspace)(const struct attention_shape *shape, int threads)
{
    (void)threads;
    return delta_floats(shape) +
           (shape->batch * shape->positions * shape->heads * shape->head_size + 1) / 2;
}

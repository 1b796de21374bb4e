/*
 * A row is that of one warp, or of 2, 4 or 8 where it is long. A lane keeps KEPT packs of it, so that memory is read once;
 * rows of more than 8192 columns are read again in each pass.
 *
 * Backward, a block has some of the rows, one after another. What its lanes add to dweight and dbias lies in shared memory, each
 * number only its lane's, until the block has all its rows; then it becomes a row of the partials, which columns.cu
 * adds. Edges and orders depend on N and C alone.
 */
#include "tensor/cuda/columns.cuh"
#include "tensor/cuda/pack.cuh"

#include "tensor/kernels.h"
#include "tensor/kernels/layernorm.h"

#define THREADS    256
#define MOST_WARPS (THREADS / WARP_LANES) /* of a block, and of a row */
#define KEPT       4

/* Blocks of the backward: two for each multiprocessor of a large GPU. */
#define BLOCKS 256

/* Blocks of the forward that a multiprocessor has room for: with more the compiler keeps less of a row in registers. */
#define FORWARD_RESIDENT 3

/* Columns that a warp keeps. */
#define WARP_WIDTH ((size_t)WARP_LANES * PACK * KEPT)

/* Of a row in the backward, whose columns' sums take 64 KiB of shared memory a part. */
#define MOST_PARTS 3

/* How a row lies over lanes: pack j of a lane begins at (j * lanes + lane) * PACK. */
struct row_shape {
    size_t C;
    unsigned warps; /* of a row; of a block MOST_WARPS / warps rows */
    unsigned parts; /* of KEPT packs a lane; 1: a row is kept */
};

static inline struct row_shape row_shape_of(size_t C)
{
    struct row_shape shape = {C, 1, 1};

    while (shape.warps < MOST_WARPS && shape.warps * WARP_WIDTH < C) {
        shape.warps *= 2;
    }
    shape.parts = (unsigned)((C + shape.warps * WARP_WIDTH - 1) / (shape.warps * WARP_WIDTH));
    return shape;
}

/* The row of a block that this thread works on. */
static __device__ __forceinline__ unsigned row_here(const struct row_shape &s)
{
    return threadIdx.x / WARP_LANES / s.warps;
}

/* Where pack j of part `part` of this thread begins. */
static __device__ __forceinline__ size_t pack_at(const struct row_shape &s, unsigned part, int j)
{
    size_t lanes = (size_t)s.warps * WARP_LANES;

    return (((size_t)part * KEPT + (size_t)j) * lanes + threadIdx.x % lanes) * PACK;
}

/* What of pack j is within the row: from `c` on `left` elements, perhaps none. */
#define FOR_ROW_PACKS(j, c, part, shape) \
    UNROLL                               \
    for (int j = 0; j < KEPT; j++)       \
        if (size_t c = pack_at((shape), (part), j); c < (shape).C)

template <bool WHOLE, typename NUMBER>
static __device__ __forceinline__ void take_part(float (&x)[KEPT][PACK], const NUMBER *row,
                                                 unsigned part, const struct row_shape &s)
{
    FOR_ROW_PACKS(j, c, part, s)
    {
        pack_take<WHOLE>(x[j], row + c, s.C - c);
    }
}

/* Over the warps of this thread's row, on all their lanes: of a warp first, then the warps in ascending order. All threads of
 * the block come here. */
template <int COUNT>
static __device__ __forceinline__ void
row_sums(float (&values)[COUNT], float (&shared)[COUNT][MOST_WARPS], const struct row_shape &s)
{
    UNROLL
    for (int k = 0; k < COUNT; k++) {
        values[k] = warp_sum(values[k]);
    }
    if (s.warps == 1) {
        return;
    }
    __syncthreads(); /* what the call before left is read */
    UNROLL
    for (int k = 0; k < COUNT; k++) {
        if (threadIdx.x % WARP_LANES == 0) {
            shared[k][threadIdx.x / WARP_LANES] = values[k];
        }
        values[k] = 0.0F;
    }
    __syncthreads();
    for (unsigned warp = row_here(s) * s.warps; warp < (row_here(s) + 1) * s.warps; warp++) {
        UNROLL
        for (int k = 0; k < COUNT; k++) {
            values[k] += shared[k][warp];
        }
    }
}

/* Elements behind a row's last one count nothing. */
template <bool WHOLE>
static __device__ __forceinline__ bool counts(const struct row_shape &s, size_t c, int i)
{
    return WHOLE || c + (size_t)i < s.C;
}

/* The sum of a row, or of its squared distances from `mean`; x holds the row where it is kept. */
template <bool WHOLE, bool SQUARES, typename NUMBER>
static __device__ __forceinline__ float sum_of(float (&x)[KEPT][PACK], const NUMBER *row,
                                               float mean, const struct row_shape &s)
{
    __shared__ float shared[1][MOST_WARPS];
    float sum[1] = {0.0F};

    for (unsigned part = 0; part < s.parts; part++) {
        if (!SQUARES || s.parts > 1) {
            take_part<WHOLE>(x, row, part, s);
        }
        FOR_ROW_PACKS(j, c, part, s)
        {
            UNROLL
            for (int i = 0; i < PACK; i++) {
                float centred = counts<WHOLE>(s, c, i) ? x[j][i] - mean : 0.0F;

                sum[0] = SQUARES ? fmaf(centred, centred, sum[0]) : sum[0] + x[j][i];
            }
        }
    }
    row_sums(sum, shared, s);
    return sum[0];
}

template <typename NUMBER, bool WHOLE>
__global__ void __launch_bounds__(THREADS, FORWARD_RESIDENT)
    normalize_rows(NUMBER *out, float *mean_out, float *rstd_out, const NUMBER *in,
                   const float *weight, const float *bias, size_t rows, float eps,
                   struct row_shape s)
{
    size_t row = (size_t)blockIdx.x * (MOST_WARPS / s.warps) + row_here(s);
    bool there = row < rows; /* who is beyond the last row reads the first, for nothing */
    const NUMBER *from = in + (there ? row : 0) * s.C;
    float x[KEPT][PACK];
    float mean = sum_of<WHOLE, false>(x, from, 0.0F, s) / (float)s.C;
    float rstd = 1.0F / sqrtf(sum_of<WHOLE, true>(x, from, mean, s) / (float)s.C + eps);

    if (!there) {
        return;
    }
    for (unsigned part = 0; part < s.parts; part++) {
        if (s.parts > 1) {
            take_part<WHOLE>(x, from, part, s);
        }
        FOR_ROW_PACKS(j, c, part, s)
        {
            float scale[PACK];
            float shift[PACK];

            pack_take<WHOLE>(scale, weight + c, s.C - c);
            pack_take<WHOLE>(shift, bias + c, s.C - c);
            UNROLL
            for (int i = 0; i < PACK; i++) {
                scale[i] = fmaf(rounded_product(x[j][i] - mean, rstd), scale[i], shift[i]);
            }
            pack_put<WHOLE>(out + row * s.C + c, scale, s.C - c);
        }
    }
    if (threadIdx.x % (s.warps * WARP_LANES) == 0) {
        mean_out[row] = mean;
        rstd_out[row] = rstd;
    }
}

/* What the backward reads and writes of one row; dresidual NULL: zero. */
template <typename NUMBER> struct gradient_row {
    NUMBER *din;
    const float *dout;
    const NUMBER *dresidual;
    const NUMBER *in;
    float mean;
    float rstd;
};

/* This thread's own numbers in shared memory: of dweight, then of dbias, an element of a pack behind the other and every
 * thread's beside each other. */
static __device__ __forceinline__ size_t own_at(const struct row_shape &s, unsigned which,
                                                unsigned part, int j, int i)
{
    size_t packs = (size_t)s.parts * KEPT;
    size_t pack = (size_t)part * KEPT + (size_t)j;

    return ((which * packs + pack) * PACK + (size_t)i) * THREADS + threadIdx.x;
}

template <bool WHOLE, typename NUMBER>
static __device__ __forceinline__ void take_row(float (&x)[KEPT][PACK], float (&d)[KEPT][PACK],
                                                const gradient_row<NUMBER> &row, unsigned part,
                                                const struct row_shape &s)
{
    take_part<WHOLE>(x, row.in, part, s);
    take_part<WHOLE>(d, row.dout, part, s);
}

static __device__ __forceinline__ float normed(float x, float mean, float rstd)
{
    return rounded_product(x - mean, rstd);
}

/* means[0] of g = dout · weight and means[1] of g · n over the row; the columns' sums += where the row is `there`. */
template <bool WHOLE, typename NUMBER>
static __device__ __forceinline__ void row_means(float (&means)[2], float *own,
                                                 float (&x)[KEPT][PACK], float (&d)[KEPT][PACK],
                                                 const gradient_row<NUMBER> &row, bool there,
                                                 const float *weight, const struct row_shape &s)
{
    __shared__ float shared[2][MOST_WARPS];

    means[0] = 0.0F;
    means[1] = 0.0F;
    for (unsigned part = 0; part < s.parts; part++) {
        take_row<WHOLE>(x, d, row, part, s);
        FOR_ROW_PACKS(j, c, part, s)
        {
            float w[PACK];

            pack_take<WHOLE>(w, weight + c, s.C - c);
            UNROLL
            for (int i = 0; i < PACK; i++) {
                float n = normed(x[j][i], row.mean, row.rstd);
                float g = rounded_product(d[j][i], w[i]); /* zero behind the row */

                means[0] = rounded_sum(means[0], g);
                means[1] = fmaf(g, n, means[1]);
                if (there) {
                    own[own_at(s, 0, part, j, i)] = fmaf(d[j][i], n, own[own_at(s, 0, part, j, i)]);
                    own[own_at(s, 1, part, j, i)] += d[j][i];
                }
            }
        }
    }
    row_sums(means, shared, s);
    means[0] /= (float)s.C;
    means[1] /= (float)s.C;
}

template <bool WHOLE, typename NUMBER>
static __device__ __forceinline__ void
write_row(const float (&means)[2], float (&x)[KEPT][PACK], float (&d)[KEPT][PACK],
          const gradient_row<NUMBER> &row, const float *weight, const struct row_shape &s)
{
    for (unsigned part = 0; part < s.parts; part++) {
        if (s.parts > 1) {
            take_row<WHOLE>(x, d, row, part, s);
        }
        FOR_ROW_PACKS(j, c, part, s)
        {
            float w[PACK];
            float before[PACK] = {0.0F};

            pack_take<WHOLE>(w, weight + c, s.C - c);
            if (row.dresidual != NULL) {
                pack_take<WHOLE>(before, row.dresidual + c, s.C - c);
            }
            UNROLL
            for (int i = 0; i < PACK; i++) {
                float n = normed(x[j][i], row.mean, row.rstd);
                float g = rounded_product(d[j][i], w[i]);

                before[i] = fmaf(row.rstd, fmaf(-n, means[1], g - means[0]), before[i]);
            }
            pack_put<WHOLE>(row.din + c, before, s.C - c);
        }
    }
}

/* A row of the partials (2,blocks,C): the sums of this block, over its warps that had rows of their own. */
static __device__ __forceinline__ void leave_columns(float *partials, const float *own,
                                                     const struct row_shape &s)
{
    unsigned lanes = s.warps * WARP_LANES;
    size_t packs = (size_t)s.parts * KEPT;

    __syncthreads();
    for (size_t at = threadIdx.x; at < 2 * packs * PACK * lanes; at += THREADS) {
        size_t lane = at % lanes;
        size_t slot = at / lanes; /* of dweight, then of dbias: pack, element */
        size_t which = slot / (packs * PACK);
        size_t pack = slot / PACK % packs;
        size_t c = (pack * lanes + lane) * PACK + slot % PACK;
        float sum = 0.0F;

        for (size_t row = 0; row < THREADS / lanes; row++) {
            sum += own[slot * THREADS + row * lanes + lane];
        }
        if (c < s.C) {
            partials[(which * gridDim.x + blockIdx.x) * s.C + c] = sum;
        }
    }
}

template <typename NUMBER, bool WHOLE>
__global__ void __launch_bounds__(THREADS)
    gradient_rows(NUMBER *din, float *partials, const float *dout, const NUMBER *dresidual,
                  const NUMBER *in, const float *weight, const float *mean, const float *rstd,
                  size_t rows, size_t block_rows, struct row_shape s)
{
    SHARED_MEMORY(memory);
    float *own = (float *)memory;
    size_t begin = blockIdx.x * block_rows;
    size_t end = begin + block_rows < rows ? begin + block_rows : rows;

    for (size_t k = 0; k < (size_t)2 * s.parts * KEPT * PACK; k++) {
        own[k * THREADS + threadIdx.x] = 0.0F;
    }
    for (size_t first = begin; first < end; first += MOST_WARPS / s.warps) {
        bool there = first + row_here(s) < end; /* else as the first one, for nothing */
        size_t row = there ? first + row_here(s) : first;
        const gradient_row<NUMBER> at = {
            din + row * s.C, dout + row * s.C, dresidual != NULL ? dresidual + row * s.C : NULL,
            in + row * s.C,  mean[row],        rstd[row]};
        float x[KEPT][PACK];
        float d[KEPT][PACK];
        float means[2];

        row_means<WHOLE>(means, own, x, d, at, there, weight, s);
        if (there) {
            write_row<WHOLE>(means, x, d, at, weight, s);
        }
    }
    leave_columns(partials, own, s);
}

template <typename NUMBER>
static enum status launch_forward(NUMBER *out, float *mean, float *rstd, const NUMBER *in,
                                  const float *weight, const float *bias, size_t rows, size_t C,
                                  float eps, struct stream *stream)
{
    struct row_shape s = row_shape_of(C);

    BY_WHOLE(in_packs(C, out, in, weight, bias),
             LAUNCH((normalize_rows<NUMBER, WHOLE>),
                    grid_of(rows, MOST_WARPS / s.warps, UINT32_MAX), THREADS, stream, out, mean,
                    rstd, in, weight, bias, rows, eps, s));
}

enum status KERNEL(layernorm_forward)(void *out, float *mean, float *rstd, const void *in,
                                      const float *weight, const float *bias, size_t rows, size_t C,
                                      float eps, enum dtype type, struct stream *stream)
{
    if (rows == 0) {
        return STATUS_OK;
    }
    BY_TYPE(type, return launch_forward((NUMBER *)out, mean, rstd, (const NUMBER *)in, weight, bias,
                                        rows, C, eps, stream));
}

template <typename NUMBER>
static enum status
launch_backward(NUMBER *din, float *partials, const float *dout, const NUMBER *dresidual,
                const NUMBER *in, const float *weight, const float *mean, const float *rstd,
                size_t rows, size_t block_rows, const struct row_shape &s, struct stream *stream)
{
    unsigned shared = 2 * s.parts * KEPT * PACK * THREADS * (unsigned)sizeof(float);

    BY_WHOLE(in_packs(s.C, din, dout, dresidual, in, weight),
             LAUNCH_SHARED((gradient_rows<NUMBER, WHOLE>),
                           grid_of(rows, (unsigned)block_rows, UINT32_MAX), THREADS, shared, stream,
                           din, partials, dout, dresidual, in, weight, mean, rstd, rows, block_rows,
                           s));
}

size_t KERNEL(layernorm_partials)(size_t C, int threads)
{
    (void)threads;
    return (size_t)2 * BLOCKS * C;
}

enum status KERNEL(layernorm_backward)(void *din, float *dweight, float *dbias, const float *dout,
                                       const void *dresidual, const void *in, const float *weight,
                                       const float *mean, const float *rstd, size_t rows, size_t C,
                                       float *partials, enum dtype type, struct stream *stream)
{
    struct row_shape s = row_shape_of(C);
    size_t together = MOST_WARPS / s.warps; /* rows of a block */
    size_t rounds = (rows + BLOCKS * together - 1) / (BLOCKS * together);
    size_t block_rows = rounds * together;

    if (rows == 0) {
        return STATUS_OK;
    }
    if (s.parts > MOST_PARTS) {
        return status_fail(STATUS_ERR_UNSUPPORTED,
                           "layer norm of %zu columns on a GPU: expected at most %zu", C,
                           MOST_PARTS * MOST_WARPS * WARP_WIDTH);
    }
    BY_TYPE(type, TRY(launch_backward((NUMBER *)din, partials, dout, (const NUMBER *)dresidual,
                                      (const NUMBER *)in, weight, mean, rstd, rows, block_rows, s,
                                      stream));
            break);
    return columns_add_cuda(dweight, dbias, partials, (rows + block_rows - 1) / block_rows, C,
                            stream);
}

/*
 * attention_tiles -- attention's products on tensor cores: tiles of 16-bit numbers in shared memory, and
 * the two ways in which they are multiplied. For attention.cu and attention_backward.cu.
 *
 * A block is four warps; a warp has TILES times 16 rows of every product. A tile (rows, D) keeps the
 * eight numbers from column c on in the place of column c ^ 8 (row % 8), so that eight rows of one
 * column lie in different banks.
 */
#ifndef TENSOR_CUDA_ATTENTION_TILES_CUH
#define TENSOR_CUDA_ATTENTION_TILES_CUH

#include "tensor/cuda/attention_heads.cuh"
#include "tensor/cuda/mma.cuh"

#define TILE_THREADS 128
#define TILE_WARPS   (TILE_THREADS / WARP_LANES)

#define LOG2_OF_E 1.4426950408889634F

/* 2^x, off by 2^-22 of it at most; below 2^-126 it is 0. */
static __device__ __forceinline__ float power_of_two(float x)
{
#ifdef __CUDACC__
    float power;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
#else
    return exp2f(x);
#endif
}

/* Where a tile is filled from: rows of head_size numbers, `stride` from one to the next. */
template <typename NUMBER> struct tile_source {
    const NUMBER *first; /* of position 0 */
    size_t stride;
    unsigned positions;
    unsigned head_size;
    bool aligned; /* every eighth number of a row begins at a multiple of 16 bytes */
};

static inline bool rows_are_aligned(const void *first, unsigned head_size)
{
    return head_size % 8 == 0 && (uintptr_t)first % 16 == 0;
}

template <int D>
static __device__ __forceinline__ unsigned place_in_tile(unsigned row, unsigned column)
{
    return row * D + (column ^ row % 8 * 8);
}

/* Begins to fill a tile (ROWS, D) with the rows from `first_row` on; zeros where there is none. Whole
 * when this thread has waited for its copies and all have met at a barrier. */
template <int D, int ROWS, typename NUMBER>
static __device__ __forceinline__ void load_tile(NUMBER *tile, const tile_source<NUMBER> &source,
                                                 unsigned first_row)
{
    if (!source.aligned) {
        UNROLL_BY(1)
        for (unsigned i = threadIdx.x; i < ROWS * D; i += TILE_THREADS) {
            const unsigned row = first_row + i / D;
            const bool exists = row < source.positions && i % D < source.head_size;

            tile[place_in_tile<D>(i / D, i % D)] =
                exists ? source.first[row * source.stride + i % D] : NUMBER();
        }
        return;
    }
    UNROLL
    for (unsigned i = 0; i < ROWS * D / 8 / TILE_THREADS; i++) {
        const unsigned at = i * TILE_THREADS + threadIdx.x;
        const unsigned row = first_row + at / (D / 8);
        const unsigned column = at % (D / 8) * 8;
        const bool exists = row < source.positions && column < source.head_size;

        copy_16_bytes(tile + place_in_tile<D>(at / (D / 8), column),
                      exists ? source.first + row * source.stride + column : source.first, exists);
    }
}

/* The square (16,16) of a tile at (row, column), in four registers. As it lies: the A of its rows, and the B of
 * 16 columns that its rows are, of which [0] and [2] are the first 8, [1] and [3] the others. TRANSPOSED: the
 * B of its columns, of which [0] and [1] are the first 8, [2] and [3] the others. */
template <int D, bool TRANSPOSED, typename NUMBER>
static __device__ __forceinline__ void load_square(uint32_t out[4], const NUMBER *tile,
                                                   unsigned row, unsigned column)
{
    const unsigned lane = threadIdx.x % WARP_LANES;

    load_matrices<TRANSPOSED>(out,
                              tile + place_in_tile<D>(row + lane % 16, column + lane / 16 * 8));
}

/* Sums of a warp: of tile m, column group n, as the C of an instruction. */
template <int TILES, int COLUMNS> struct tile_sums {
    float at[TILES][COLUMNS / 8][4];

    __device__ __forceinline__ void clear()
    {
        UNROLL
        for (int i = 0; i < TILES * (COLUMNS / 8) * 4; i++) {
            at[i / (COLUMNS / 2)][i / 4 % (COLUMNS / 8)][i % 4] = 0.0F;
        }
    }
};

/* Of sum i of column group n: its row in the 16 of a tile, its column. */
static __device__ __forceinline__ unsigned row_of(int i)
{
    return threadIdx.x % WARP_LANES / 4 + (i >= 2 ? 8 : 0);
}

static __device__ __forceinline__ unsigned column_of(int n, int i)
{
    return n * 8 + threadIdx.x % 4 * 2 + i % 2;
}

/* products = rows of `left` from `row` on · all rows of `right`. */
template <int D, int TILES, int COLUMNS, typename NUMBER>
static __device__ __forceinline__ void multiply_rows(tile_sums<TILES, COLUMNS> *products,
                                                     const NUMBER *left, unsigned row,
                                                     const NUMBER *right)
{
    products->clear();
    UNROLL
    for (int d = 0; d < D; d += 16) {
        uint32_t a[TILES][4];

        UNROLL
        for (int m = 0; m < TILES; m++) {
            load_square<D, false>(a[m], left, row + m * 16, d);
        }
        UNROLL
        for (int n = 0; n < COLUMNS / 16; n++) {
            uint32_t b[4];

            load_square<D, false>(b, right, n * 16, d);
            UNROLL
            for (int m = 0; m < TILES; m++) {
                multiply_add(products->at[m][2 * n], a[m], b[0], b[2], NUMBER());
                multiply_add(products->at[m][2 * n + 1], a[m], b[1], b[3], NUMBER());
            }
        }
    }
}

/* sums += weights, rounded, · `right` (KEYS, D), columns from `column` on. */
template <int D, int TILES, int KEYS, int COLUMNS, typename NUMBER>
static __device__ __forceinline__ void add_weighted(tile_sums<TILES, COLUMNS> *sums,
                                                    const tile_sums<TILES, KEYS> &weights,
                                                    const NUMBER *right, unsigned column)
{
    UNROLL
    for (int k = 0; k < KEYS / 16; k++) {
        uint32_t a[TILES][4];

        UNROLL
        for (int m = 0; m < TILES; m++) {
            UNROLL
            for (int i = 0; i < 4; i++) {
                const float *const pair = &weights.at[m][2 * k + i / 2][i % 2 * 2];

                a[m][i] = pack<NUMBER>(pair[0], pair[1]);
            }
        }
        UNROLL
        for (int n = 0; n < COLUMNS / 16; n++) {
            uint32_t b[4];

            load_square<D, true>(b, right, k * 16, column + n * 16);
            UNROLL
            for (int m = 0; m < TILES; m++) {
                multiply_add(sums->at[m][2 * n], a[m], b[0], b[1], NUMBER());
                multiply_add(sums->at[m][2 * n + 1], a[m], b[2], b[3], NUMBER());
            }
        }
    }
}

/* Writes columns 2t and 2t+1 of the sums' rows, each times `factors[m][i / 2]`, to rows of `to`, which
 * is that of the warp's first row and of the first column; `rows` and `columns` exist. */
template <int TILES, int COLUMNS, typename NUMBER>
static __device__ __forceinline__ void
write_rows(NUMBER *to, size_t stride, const tile_sums<TILES, COLUMNS> &sums,
           const float factors[TILES][2], int rows, int columns)
{
    UNROLL
    for (int m = 0; m < TILES; m++) {
        UNROLL
        for (int i = 0; i < 4; i++) {
            const int row = m * 16 + (int)row_of(i);

            UNROLL
            for (int n = 0; n < COLUMNS / 8; n++) {
                const int column = (int)column_of(n, i);

                if (row < rows && column < columns) {
                    narrow(&to[row * stride + column], sums.at[m][n][i] * factors[m][i / 2]);
                }
            }
        }
    }
}

#endif /* TENSOR_CUDA_ATTENTION_TILES_CUH */

/*
 * columns -- sums of the columns of a matrix, in one launch where it has few rows, else in two.
 *
 * A thread takes a pack of columns, a block a warp's width of packs and some of the rows. Its rows of threads go down
 * in strides, and their sums are added in ascending order. Where the rows are cut into blocks, these leave their sums in
 * the stream's partials, and columns.cu adds them in an order of its own. Rows and columns alone decide on edges and order,
 * not how wide the accesses are:
 *
 *     float sum[PACK] = {0.0F};
 *     column_rows<4>(rows, block_rows, take, add); which read and add to sum[i] what is in column_here() + i
 *     column_leave(total, partials, sum, columns);
 */
#ifndef TENSOR_CUDA_COLUMNS_CUH
#define TENSOR_CUDA_COLUMNS_CUH

#include "tensor/cuda/pack.cuh"

#define COLUMN_LANES   8 /* rows of threads */
#define COLUMN_THREADS (WARP_LANES * COLUMN_LANES)

/* Columns of a block. */
#define COLUMN_WIDTH (WARP_LANES * PACK)

static_assert(COLUMN_WIDTH == COLUMN_THREADS, "a thread a column when sums are left");

/* About as many blocks as keep a large GPU busy, and the least rows that one is started for. */
#define COLUMN_BLOCKS     512
#define COLUMN_LEAST_ROWS 32

/* How the rows of a matrix are cut. */
struct column_blocks {
    unsigned count;
    size_t rows; /* of each but the last */
};

static inline struct column_blocks column_blocks_of(size_t rows, size_t columns)
{
    size_t across = (columns + COLUMN_WIDTH - 1) / COLUMN_WIDTH;
    size_t most = across < COLUMN_BLOCKS ? COLUMN_BLOCKS / across : 1;
    size_t count = (rows + COLUMN_LEAST_ROWS - 1) / COLUMN_LEAST_ROWS;
    struct column_blocks blocks;

    count = count < most ? count : most;
    blocks.rows = (rows + count - 1) / count;
    blocks.count = (unsigned)((rows + blocks.rows - 1) / blocks.rows);
    return blocks;
}

static_assert((size_t)COLUMN_BLOCKS * COLUMN_WIDTH * sizeof(float) <= STREAM_PARTIALS_BYTES,
              "a partial a block and column");

/* For LAUNCH. */
#define COLUMN_GRID(columns, blocks) \
    dim3(grid_of(columns, COLUMN_WIDTH, UINT32_MAX), (blocks).count)
#define COLUMN_BLOCK dim3(WARP_LANES, COLUMN_LANES)

/* For __launch_bounds__: with room for fewer threads the compiler keeps reads under way, with room for all of them it saves the
 * registers that they need. */
#define COLUMN_RESIDENT 4

/* The first column of this thread, which may lie beyond the last. */
static __device__ __forceinline__ size_t column_here()
{
    return (size_t)blockIdx.x * COLUMN_WIDTH + (size_t)threadIdx.x * PACK;
}

static __device__ __forceinline__ size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The rows that this thread adds: take(k, row) for the TOGETHER next ones, whose reads are under way at once, then add(k, row) for
 * each. */
template <int TOGETHER, typename TAKE, typename ADD>
static __device__ __forceinline__ void column_rows(size_t rows, size_t block_rows, const TAKE &take,
                                                   const ADD &add)
{
    size_t row = blockIdx.y * block_rows + threadIdx.y;
    size_t end = min_of((blockIdx.y + (size_t)1) * block_rows, rows);

    for (; row + (size_t)(TOGETHER - 1) * COLUMN_LANES < end;
         row += (size_t)TOGETHER * COLUMN_LANES) {
        UNROLL
        for (int k = 0; k < TOGETHER; k++) {
            take(k, row + (size_t)k * COLUMN_LANES);
        }
        UNROLL
        for (int k = 0; k < TOGETHER; k++) {
            add(k, row + (size_t)k * COLUMN_LANES);
        }
    }
    for (; row < end; row += COLUMN_LANES) {
        take(0, row);
        add(0, row);
    }
}

/* The sums of this block's threads go to the partials, or to the total where it has all rows. All threads of the block
 * come here. */
static __device__ __forceinline__ void column_leave(float *total, float *partials,
                                                    const float (&sum)[PACK], size_t columns)
{
    __shared__ float sums[COLUMN_LANES][COLUMN_WIDTH];
    size_t at = (size_t)threadIdx.y * WARP_LANES + threadIdx.x;
    size_t column = (size_t)blockIdx.x * COLUMN_WIDTH + at;
    float whole = 0.0F;

    UNROLL
    for (int i = 0; i < PACK; i++) {
        sums[threadIdx.y][threadIdx.x * PACK + i] = sum[i];
    }
    __syncthreads();
    if (column >= columns) {
        return;
    }
    for (int lane = 0; lane < COLUMN_LANES; lane++) {
        whole += sums[lane][at];
    }
    if (gridDim.y == 1) {
        total[column] += whole;
    } else {
        partials[blockIdx.y * columns + column] = whole;
    }
}

/* total (columns) += the sums over blocks of partials (blocks,columns); where `second` is not NULL, partials are
 * (2,blocks,columns), and their second half is for it. */
enum status columns_add_cuda(float *total, float *second, const float *partials, size_t blocks,
                             size_t columns, struct stream *stream);

#endif /* TENSOR_CUDA_COLUMNS_CUH */

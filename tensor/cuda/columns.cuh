/*
 * columns -- sums of the columns of a matrix in one launch, without workspace.
 *
 * A block takes a warp's width of columns. Its rows of threads go down the matrix in strides, and the
 * first of them adds their sums in ascending order: the bits depend on N alone. Few columns are few
 * blocks (24 for 768), which do not fill a large GPU; each reads as much at once as it can.
 */
#ifndef TENSOR_CUDA_COLUMNS_CUH
#define TENSOR_CUDA_COLUMNS_CUH

#include "tensor/cuda/kernel.cuh"

#define COLUMN_LANES   32
#define COLUMN_THREADS (WARP_LANES * COLUMN_LANES)

/* For LAUNCH. */
#define COLUMN_GRID(columns) grid_of(columns, WARP_LANES, UINT32_MAX)
#define COLUMN_BLOCK         dim3(WARP_LANES, COLUMN_LANES)

/* The column of this thread, which may lie beyond the last. */
static __device__ __forceinline__ size_t column_here()
{
    return (size_t)blockIdx.x * WARP_LANES + threadIdx.x;
}

/* The rows that this thread adds. */
#define FOR_COLUMN_ROWS(row, rows) \
    UNROLL_BY(8)                   \
    for (size_t row = threadIdx.y; row < (rows); row += COLUMN_LANES)

/* total[column] += the sums of this column's threads. All threads of the block come here. */
static __device__ __forceinline__ void column_add(float *total, float sum, size_t column,
                                                  size_t columns)
{
    __shared__ float sums[COLUMN_LANES][WARP_LANES];

    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < columns) {
        sum = 0.0F;
        for (int lane = 0; lane < COLUMN_LANES; lane++) {
            sum += sums[lane][threadIdx.x];
        }
        total[column] += sum;
    }
}

#endif /* TENSOR_CUDA_COLUMNS_CUH */

#include "tensor/cuda/columns.cuh"

#define LANES 16

/* A block takes a warp's width of columns of one of the totals; its rows of threads go down in strides. */
__global__ void add_partials(float *first, float *second, const float *both, size_t blocks,
                             size_t columns)
{
    __shared__ float sums[LANES][WARP_LANES];
    float *total = blockIdx.y == 0 ? first : second;
    const float *partials = both + blockIdx.y * blocks * columns;
    size_t column = (size_t)blockIdx.x * WARP_LANES + threadIdx.x;
    float sum = 0.0F;

    UNROLL_BY(8)
    for (size_t block = threadIdx.y; column < columns && block < blocks; block += LANES) {
        sum += partials[block * columns + column];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < columns) {
        sum = 0.0F;
        for (int lane = 0; lane < LANES; lane++) {
            sum += sums[lane][threadIdx.x];
        }
        total[column] += sum;
    }
}

enum status columns_add_cuda(float *total, float *second, const float *partials, size_t blocks,
                             size_t columns, struct stream *stream)
{
    LAUNCH(add_partials, dim3(grid_of(columns, WARP_LANES, UINT32_MAX), second != NULL ? 2 : 1),
           dim3(WARP_LANES, LANES), stream, total, second, partials, blocks, columns);
}

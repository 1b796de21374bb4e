/*
 * pack -- consecutive elements that one thread moves together.
 *
 * Where tensors begin on 16 bytes and rows are whole packs, a thread takes PACK elements at once, in
 * accesses of 16 bytes; elsewhere one. Kernels are templates of WIDTH, and what an element becomes does
 * not depend on it. Over rows a warp takes one, so that nobody divides by a row's length:
 *
 *     size_t row = pack_row();
 *     ... leave where row >= rows ...
 *     FOR_PACKS(c, C) { float x[WIDTH]; pack_read(x, in + row * C + c); ... pack_write(...); }
 */
#ifndef TENSOR_CUDA_PACK_CUH
#define TENSOR_CUDA_PACK_CUH

#include "tensor/cuda/kernel.cuh"

#define PACK       8
#define PACK_BYTES 16

/* Rows of a block, a warp each. */
#define PACK_ROWS 8

template <typename NUMBER, int WIDTH>
struct alignas(WIDTH == PACK ? PACK_BYTES : alignof(NUMBER)) pack {
    NUMBER at[WIDTH];
};

/* out = the WIDTH elements from `in`, widened. */
template <typename NUMBER, int WIDTH>
static __device__ __forceinline__ void pack_read(float (&out)[WIDTH], const NUMBER *in)
{
    pack<NUMBER, WIDTH> elements = *(const pack<NUMBER, WIDTH> *)in;

    UNROLL
    for (int i = 0; i < WIDTH; i++) {
        out[i] = widen(elements.at[i]);
    }
}

/* The WIDTH elements from `out` = in, rounded. */
template <typename NUMBER, int WIDTH>
static __device__ __forceinline__ void pack_write(NUMBER *out, const float (&in)[WIDTH])
{
    pack<NUMBER, WIDTH> elements;

    UNROLL
    for (int i = 0; i < WIDTH; i++) {
        narrow(&elements.at[i], in[i]);
    }
    *(pack<NUMBER, WIDTH> *)out = elements;
}

/* The row of this thread's warp. */
static __device__ __forceinline__ size_t pack_row()
{
    return (size_t)blockIdx.x * PACK_ROWS + threadIdx.y;
}

/* The columns at which this thread's packs of a row begin. */
#define FOR_PACKS(column, columns)                                          \
    for (size_t column = (size_t)threadIdx.x * WIDTH; (column) < (columns); \
         (column) += (size_t)WARP_LANES * WIDTH)

/* For LAUNCH: a warp a row. */
#define PACK_GRID(rows) grid_of(rows, PACK_ROWS, UINT32_MAX)
#define PACK_BLOCK      dim3(WARP_LANES, PACK_ROWS)

/* Whether rows of `elems` elements, of tensors that begin at these places, are whole packs. */
template <typename... NUMBERS> static inline bool in_packs(size_t elems, const NUMBERS *...at)
{
    return elems % PACK == 0 && (((uintptr_t)at % PACK_BYTES == 0) && ...);
}

/* Runs `statement`, in which WIDTH is how many elements a thread takes at once. */
#define BY_WIDTH(whole, statement)      \
    do {                                \
        if (whole) {                    \
            constexpr int WIDTH = PACK; \
            statement;                  \
        } else {                        \
            constexpr int WIDTH = 1;    \
            statement;                  \
        }                               \
    } while (0)

#endif /* TENSOR_CUDA_PACK_CUH */

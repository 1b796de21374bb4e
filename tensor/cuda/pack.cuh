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
 *
 * Where sums must have one order whatever the accesses, a thread keeps its pack and reads it one by one: pack_take(),
 * pack_put().
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

#ifdef __CUDA_ARCH__

/* The instruction by name: of a struct, or of four numbers, the compiler makes several narrow stores where it likes. */
static __device__ __forceinline__ void store_words(void *out, const unsigned *words)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(out)), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                   "r"(words[3])
                 : "memory");
}

template <typename NUMBER>
static __device__ __forceinline__ void pack_store(NUMBER *out, const pack<NUMBER, PACK> &from)
{
    unsigned words[PACK / 2];

    UNROLL
    for (int i = 0; i < PACK / 2; i++) {
        words[i] = from.at[2 * i].bits | (unsigned)from.at[2 * i + 1].bits << 16;
    }
    store_words(out, words);
}

static __device__ __forceinline__ void pack_store(float *out, const pack<float, PACK> &from)
{
    unsigned words[PACK];

    UNROLL
    for (int i = 0; i < PACK; i++) {
        words[i] = float_to_bits(from.at[i]);
    }
    store_words(out, words);
    store_words(out + PACK / 2, words + PACK / 2);
}

#else

template <typename NUMBER>
static __device__ __forceinline__ void pack_store(NUMBER *out, const pack<NUMBER, PACK> &from)
{
    *(pack<NUMBER, PACK> *)out = from;
}

#endif

template <typename NUMBER>
static __device__ __forceinline__ void pack_store(NUMBER *out, const pack<NUMBER, 1> &from)
{
    *out = from.at[0];
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
    pack_store(out, elements);
}

/* out = the pack from `in`, of which `left` elements are there, and zeros behind them; WHOLE: all are, in wide accesses. */
template <bool WHOLE, typename NUMBER>
static __device__ __forceinline__ void pack_take(float (&out)[PACK], const NUMBER *in, size_t left)
{
    if constexpr (WHOLE) {
        pack_read(out, in);
    } else {
        UNROLL
        for (int i = 0; i < PACK; i++) {
            out[i] = (size_t)i < left ? widen(in[i]) : 0.0F;
        }
    }
}

/* The pack from `out` = in, as far as there are elements. */
template <bool WHOLE, typename NUMBER>
static __device__ __forceinline__ void pack_put(NUMBER *out, const float (&in)[PACK], size_t left)
{
    if constexpr (WHOLE) {
        pack_write(out, in);
    } else {
        UNROLL
        for (int i = 0; i < PACK; i++) {
            if ((size_t)i < left) {
                narrow(&out[i], in[i]);
            }
        }
    }
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

/* Runs `statement`, in which WHOLE is whether packs are taken in wide accesses. */
#define BY_WHOLE(whole, statement)        \
    do {                                  \
        if (whole) {                      \
            constexpr bool WHOLE = true;  \
            statement;                    \
        } else {                          \
            constexpr bool WHOLE = false; \
            statement;                    \
        }                                 \
    } while (0)

#endif /* TENSOR_CUDA_PACK_CUH */

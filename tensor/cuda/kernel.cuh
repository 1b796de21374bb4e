/*
 * kernel -- what every .cu file begins with: launches, number formats, sums over a warp.
 *
 * A kernel is compiled by nvcc, and by the host's compiler for tests (tests/emulated), from the same
 * lines: so nothing here or in a kernel is outside of what tests/emulated/cuda_on_host.hpp stands for.
 * Launchers have the names and contracts of the headers in tensor/kernels, in the variant `cuda`; all pointers are
 * to memory of the device, and what they start has ended when the stream has come to it.
 *
 * All arithmetic is in fp32; what is of a 16-bit format is widened when it is read and rounded once, to
 * the nearest, ties to even, when it is written. Sums have an order that shapes alone decide; no atomic
 * takes part in a number.
 */
#ifndef TENSOR_CUDA_KERNEL_CUH
#define TENSOR_CUDA_KERNEL_CUH

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/stream.h"

/* ---- Launches. ---- */

/* The cudaStream_t of `stream`; the default one for NULL, and for a team, over which tests run kernels. */
static inline void *queue_of(const struct stream *stream)
{
    const struct gpu_queue *queue = stream != NULL ? stream_queue(stream) : NULL;

    return queue != NULL ? queue->handle : NULL;
}

#ifdef __CUDACC__

/* What a kernel may have without being asked, on every GPU. */
#define SHARED_BYTES_UNASKED (48U * 1024U)

#define LAUNCH_TRY(kernel, call)                                             \
    do {                                                                     \
        cudaError_t launch_error = (call);                                   \
        if (launch_error != cudaSuccess) {                                   \
            (void)cudaGetLastError(); /* reported once */                    \
            return status_fail(STATUS_ERR_CUDA, "launching %s: %s", #kernel, \
                               cudaGetErrorString(launch_error));            \
        }                                                                    \
    } while (0)

/* Starts kernel<<<grid, block>>>(...); the status of the function is that of the launch. */
#define LAUNCH(kernel, grid, block, stream, ...) \
    LAUNCH_SHARED(kernel, grid, block, 0U, stream, __VA_ARGS__)

/* The same with `bytes` of SHARED_MEMORY(). */
#define LAUNCH_SHARED(kernel, grid, block, bytes, stream, ...)                                     \
    do {                                                                                           \
        if ((bytes) > SHARED_BYTES_UNASKED) {                                                      \
            LAUNCH_TRY(kernel,                                                                     \
                       cudaFuncSetAttribute((kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, \
                                            (int)(bytes)));                                        \
        }                                                                                          \
        (kernel)<<<(grid), (block), (bytes), (cudaStream_t)queue_of(stream)>>>(__VA_ARGS__);       \
        LAUNCH_TRY(kernel, cudaGetLastError());                                                    \
        return STATUS_OK;                                                                          \
    } while (0)

/* Names the bytes that LAUNCH_SHARED gave to the block. */
#define SHARED_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]

#else

#define LAUNCH(kernel, grid, block, stream, ...) \
    LAUNCH_SHARED(kernel, grid, block, 0U, stream, __VA_ARGS__)

#define LAUNCH_SHARED(kernel, grid, block, bytes, stream, ...)                                    \
    do {                                                                                          \
        const char *launch_error = on_host::launch_into(queue_of(stream), (grid), (block),        \
                                                        (bytes), [=] { (kernel)(__VA_ARGS__); }); \
        if (launch_error != NULL) {                                                               \
            return status_fail(STATUS_ERR_CUDA, "launching %s: %s", #kernel, launch_error);       \
        }                                                                                         \
        return STATUS_OK;                                                                         \
    } while (0)

#define SHARED_MEMORY(name) unsigned char *const name = (unsigned char *)on_host::shared_memory()

#endif

/* Before a loop of few rounds whose indices must be constants, so that what they index stays in registers. */
#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif

/* Before a loop over memory: as many rounds are under way at once. */
#ifdef __CUDACC__
#define PRAGMA(text)     _Pragma(#text)
#define UNROLL_BY(times) PRAGMA(unroll times)
#else
#define UNROLL_BY(times)
#endif

#define WARP_LANES 32
#define ALL_LANES  0xFFFFFFFFU

/* Blocks of `threads` that cover `elems`, at most `most`: the threads then go on in strides. */
static inline unsigned grid_of(size_t elems, unsigned threads, unsigned most)
{
    size_t blocks = (elems + threads - 1) / threads;

    return blocks < most ? (unsigned)blocks : most;
}

/* The elements of a thread: its number in the grid, and on in strides of all threads. */
#define FOR_EACH(index, elems)                                                          \
    for (size_t index = (size_t)blockIdx.x * blockDim.x + threadIdx.x; index < (elems); \
         index += (size_t)gridDim.x * blockDim.x)

/* ---- Number formats. ---- */

struct bf16 {
    uint16_t bits;
};

struct fp16 {
    uint16_t bits;
};

static __device__ __forceinline__ float bits_to_float(uint32_t bits)
{
#ifdef __CUDA_ARCH__
    return __uint_as_float(bits);
#else
    float number;

    memcpy(&number, &bits, sizeof(number));
    return number;
#endif
}

static __device__ __forceinline__ uint32_t float_to_bits(float number)
{
#ifdef __CUDA_ARCH__
    return __float_as_uint(number);
#else
    uint32_t bits;

    memcpy(&bits, &number, sizeof(bits));
    return bits;
#endif
}

static __device__ __forceinline__ float widen(float number)
{
    return number;
}

static __device__ __forceinline__ float widen(bf16 number)
{
    return bits_to_float((uint32_t)number.bits << 16);
}

static __device__ __forceinline__ float widen(fp16 number)
{
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(number.bits));
#else
    return dtype_from_fp16(number.bits);
#endif
}

static __device__ __forceinline__ void narrow(float *out, float number)
{
    *out = number;
}

static __device__ __forceinline__ void narrow(bf16 *out, float number)
{
    uint32_t bits = float_to_bits(number);

    if (number != number) {
        out->bits = (uint16_t)((bits >> 16) |
                               0x40U); /* a NaN stays one, and quiet; its upper bits are kept */
    } else {
#ifdef __CUDA_ARCH__
        out->bits = __bfloat16_as_ushort(__float2bfloat16_rn(number)); /* one instruction */
#else
        out->bits = (uint16_t)((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
#endif
    }
}

static __device__ __forceinline__ void narrow(fp16 *out, float number)
{
#ifdef __CUDA_ARCH__
    uint32_t bits = float_to_bits(number);

    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
        /* As tensor/dtype.h: quiet, its sign and upper bits kept. */
        out->bits = (uint16_t)(((bits >> 16) & 0x8000U) | 0x7E00U | ((bits >> 13) & 0x3FFU));
    } else {
        out->bits = __half_as_ushort(__float2half_rn(number));
    }
#else
    out->bits = dtype_to_fp16(number);
#endif
}

/* Rounded on their own, fused with nothing before or after. */
static __device__ __forceinline__ float rounded_product(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

static __device__ __forceinline__ float rounded_sum(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

/* Runs `statement`, in which NUMBER is the type of the elements of a tensor of `type`. */
#define BY_TYPE(type, statement)                                                     \
    do {                                                                             \
        switch (type) {                                                              \
        case DTYPE_FP32: {                                                           \
            using NUMBER = float;                                                    \
            statement;                                                               \
        }                                                                            \
        case DTYPE_BF16: {                                                           \
            using NUMBER = bf16;                                                     \
            statement;                                                               \
        }                                                                            \
        case DTYPE_FP16: {                                                           \
            using NUMBER = fp16;                                                     \
            statement;                                                               \
        }                                                                            \
        default:                                                                     \
            return status_fail(STATUS_ERR_INVALID, "number format %d", (int)(type)); \
        }                                                                            \
    } while (0)

/* ---- Sums. ---- */

/* Of all lanes of a warp, on all of them. */
static __device__ __forceinline__ float warp_sum(float value)
{
    for (int lanes = WARP_LANES / 2; lanes > 0; lanes /= 2) {
        value += __shfl_xor_sync(ALL_LANES, value, lanes);
    }
    return value;
}

#endif /* TENSOR_CUDA_KERNEL_CUH */

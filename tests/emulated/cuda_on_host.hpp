/*
 * cuda_on_host -- CUDA kernels compiled by the host's compiler and run on the CPU, for tests.
 *
 * Comes before a .cu file (-include) and stands for what nvcc knows by itself: the qualifiers,
 * threadIdx and its like, barriers, shuffles, votes, atomics, vector types, and LAUNCH
 * (tensor/cuda/kernel.cuh). Needs nothing of a CUDA toolkit.
 *
 * Each thread of a block is a fiber with a stack of its own. Fibers take turns only where a kernel
 * waits: at a barrier of the block or of some lanes of a warp, which opens when as many threads have
 * come as are alive in its mask. A kernel without barriers runs as a plain loop, on one stack. Blocks
 * run one after another; in which order blocks and threads run is drawn from the seed, so that a
 * barrier that is missing shows up as a wrong number under some seed. Threads that wait for each other
 * for ever, or a shuffle that asks a lane outside of its mask, end the program with who waits where.
 *
 * What it is not: warps do not run in lock step, memory has one order, atomics are plain, and nothing
 * says how fast a kernel is. Several host threads may launch at once: all state is a thread's own, and
 * so is __shared__ memory, which no two blocks of a thread use at once.
 */
#ifndef TESTS_EMULATED_CUDA_ON_HOST_HPP
#define TESTS_EMULATED_CUDA_ON_HOST_HPP

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define WEIR_ON_HOST 1

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__      static thread_local
#define __restrict__ __restrict
#define __launch_bounds__(...)

struct uint3 {
    unsigned x;
    unsigned y;
    unsigned z;
};

struct dim3 {
    unsigned x;
    unsigned y;
    unsigned z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

struct alignas(8) float2 {
    float x;
    float y;
};

struct alignas(16) float4 {
    float x;
    float y;
    float z;
    float w;
};

struct alignas(16) uint4 {
    unsigned x;
    unsigned y;
    unsigned z;
    unsigned w;
};

namespace on_host
{

/* Where the running thread stands. */
struct place {
    uint3 thread;
    uint3 block;
    dim3 block_size;
    dim3 grid_size;
};

extern __thread place here; /* constant from the start: no call to reach it */

/* Runs `body` once for each thread of the grid. `shared_bytes` of dynamic shared memory are poisoned with
 * NaN before each block. */
void launch(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()> &body);

/* What LAUNCH does: at once without a queue, else behind what is in that stream of fake_cuda.h. NULL, or why it
 * could not. */
const char *launch_into(void *queue, dim3 grid, dim3 block, size_t shared_bytes,
                        std::function<void()> body);

/* The order in which the launches of this host thread run blocks and threads; 0 is ascending. */
void set_seed(uint64_t seed);

/* How often this host thread has gone from one fiber to another. */
uint64_t switches();

void *shared_memory();
void block_barrier();
void warp_barrier(unsigned mask);

/* Every lane of `mask` gives `bits`; returns those of lane `from`. */
uint64_t exchange(unsigned mask, uint64_t bits, int from);

/* A bit for each lane of `mask` whose `vote` is not 0. */
unsigned ballot(unsigned mask, int vote);

int lane();
unsigned thread_of_block();

/* An instruction of a whole warp: every lane gives what is its own, and the last one to come does `act`
 * with that of all of them, by lane. */
using together_fn = void (*)(void *const *lanes);
void together(void *owned, together_fn act);

/* Ends the program where `at` is no multiple of `bytes`, as a GPU would. */
void aligned(const void *at, size_t bytes);

/* Copies into shared memory that are as late as they may be: the bytes are moved when the thread waits
 * for its group, and never where it does not. `from` NULL: zeros. */
void copy_later(void *to, const void *from, size_t bytes);
void commit_copies();
void wait_for_copies(size_t newest_groups);
void forget_copies(unsigned threads); /* a block begins */

template <typename T> T shuffle(unsigned mask, T value, int from)
{
    uint64_t bits = 0;

    static_assert(sizeof(T) <= sizeof(bits), "a shuffle moves up to 8 bytes");
    std::memcpy(&bits, &value, sizeof(T));
    bits = exchange(mask, bits, from);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

} // namespace on_host

#define threadIdx (on_host::here.thread)
#define blockIdx  (on_host::here.block)
#define blockDim  (on_host::here.block_size)
#define gridDim   (on_host::here.grid_size)

static inline void __syncthreads()
{
    on_host::block_barrier();
}

static inline void __syncwarp(unsigned mask = 0xFFFFFFFFU)
{
    on_host::warp_barrier(mask);
}

template <typename T> T __shfl_xor_sync(unsigned mask, T value, int lanes)
{
    return on_host::shuffle(mask, value, on_host::lane() ^ lanes);
}

template <typename T> T __shfl_sync(unsigned mask, T value, int from)
{
    return on_host::shuffle(mask, value, from & 31);
}

/* Lanes without a partner keep their own. */
template <typename T> T __shfl_down_sync(unsigned mask, T value, unsigned lanes)
{
    int from = on_host::lane() + (int)lanes;

    return on_host::shuffle(mask, value, from < 32 ? from : on_host::lane());
}

static inline unsigned __ballot_sync(unsigned mask, int vote)
{
    return on_host::ballot(mask, vote);
}

static inline int __any_sync(unsigned mask, int vote)
{
    return on_host::ballot(mask, vote) != 0;
}

static inline int __all_sync(unsigned mask, int vote)
{
    return on_host::ballot(mask, vote) == on_host::ballot(mask, 1);
}

template <typename T> T atomicAdd(T *at, T value)
{
    T before = *at;

    *at = before + value;
    return before;
}

static inline float rsqrtf(float x)
{
    return 1.0F / std::sqrt(x);
}

static inline unsigned min(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)(((uint64_t)a * b) >> 32);
}

#endif /* TESTS_EMULATED_CUDA_ON_HOST_HPP */

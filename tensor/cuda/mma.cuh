/*
 * mma -- the instructions of tensor cores, and those that feed them: one wrapper each.
 *
 * On the device these are PTX (sm_80 and later). On the host each does what the PTX ISA says of the
 * instruction, with the operands of all lanes: tests/emulated/test_mma.c has the layouts. A register
 * holds two 16-bit numbers, the one of the lower column or row in its lower half.
 *
 * With g = lane / 4 and t = lane % 4, a lane holds
 *   A (16,16)  a[0] row g, columns 2t and 2t+1; a[1] row g+8; a[2], a[3] likewise, columns + 8
 *   B (16,8)   b0 rows 2t and 2t+1, column g; b1 rows + 8
 *   C (16,8)   c[0], c[1] row g, columns 2t and 2t+1; c[2], c[3] row g+8
 * so the sums of two products beside each other, rounded, are an A (columns as those of the sums).
 */
#ifndef TENSOR_CUDA_MMA_CUH
#define TENSOR_CUDA_MMA_CUH

#include "tensor/cuda/kernel.cuh"

/* Two numbers rounded to a register. */
template <typename NUMBER>
static __device__ __forceinline__ uint32_t pack(float lower, float upper);

#ifdef __CUDACC__

template <> __device__ __forceinline__ uint32_t pack<bf16>(float lower, float upper)
{
    uint32_t both;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(upper), "f"(lower));
    return both;
}

template <> __device__ __forceinline__ uint32_t pack<fp16>(float lower, float upper)
{
    uint32_t both;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(upper), "f"(lower));
    return both;
}

static __device__ __forceinline__ uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

/* c (16,8) += a (16,16) · b (16,8), by a whole warp, added in fp32. */
static __device__ __forceinline__ void multiply_add(float c[4], const uint32_t a[4], uint32_t b0,
                                                    uint32_t b1, bf16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ void multiply_add(float c[4], const uint32_t a[4], uint32_t b0,
                                                    uint32_t b1, fp16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four matrices of (8,8) from shared memory: lane 8i + r gives the address of row r of matrix i, 16
 * bytes at a multiple of 16. out[i] becomes of matrix i row g, columns 2t and 2t+1; TRANSPOSED: column
 * g, rows 2t and 2t+1. */
template <bool TRANSPOSED>
static __device__ __forceinline__ void load_matrices(uint32_t out[4], const void *row)
{
    if (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(shared_address(row))
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(shared_address(row))
                     : "memory");
    }
}

/* Begins to copy 16 bytes to shared memory, both at multiples of 16; unless `whole`, zeros, and `from`
 * is not read. Ends behind wait_for_copies(). */
static __device__ __forceinline__ void copy_16_bytes(void *to, const void *from, bool whole)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(whole ? 16 : 0)
                 : "memory");
}

/* Ends a group: the copies that this thread has begun since the last one. */
static __device__ __forceinline__ void commit_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until of this thread's groups all but the NEWEST have arrived: for this thread, others need a
 * barrier behind it. */
template <int NEWEST> static __device__ __forceinline__ void wait_for_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(NEWEST) : "memory");
}

#else

template <typename NUMBER> static inline uint32_t pack(float lower, float upper)
{
    NUMBER both[2];
    uint32_t bits;

    narrow(&both[0], lower);
    narrow(&both[1], upper);
    memcpy(&bits, both, sizeof(bits));
    return bits;
}

template <typename NUMBER> static inline float unpack(uint32_t bits, unsigned half)
{
    NUMBER number;

    number.bits = (uint16_t)(bits >> (16 * half));
    return widen(number);
}

struct mma_operands {
    float *c;
    const uint32_t *a;
    uint32_t b[2];
};

template <typename NUMBER> static void multiply_add_lanes(void *const *lanes)
{
    float a[16][16];
    float b[16][8];

    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        const mma_operands *own = (const mma_operands *)lanes[lane];

        for (unsigned i = 0; i < 8; i++) {
            a[lane / 4 + i / 2 % 2 * 8][lane % 4 * 2 + i % 2 + i / 4 * 8] =
                unpack<NUMBER>(own->a[i / 2], i % 2);
        }
        for (unsigned i = 0; i < 4; i++) {
            b[lane % 4 * 2 + i % 2 + i / 2 * 8][lane / 4] = unpack<NUMBER>(own->b[i / 2], i % 2);
        }
    }
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        const mma_operands *own = (const mma_operands *)lanes[lane];

        for (unsigned i = 0; i < 4; i++) {
            for (unsigned k = 0; k < 16; k++) {
                own->c[i] += a[lane / 4 + i / 2 * 8][k] * b[k][lane % 4 * 2 + i % 2];
            }
        }
    }
}

template <typename NUMBER>
static inline void multiply_add(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1, NUMBER)
{
    mma_operands own = {c, a, {b0, b1}};

    on_host::together(&own, multiply_add_lanes<NUMBER>);
}

struct matrices_operands {
    uint32_t *out;
    const uint16_t *row;
};

template <bool TRANSPOSED> static void load_matrices_lanes(void *const *lanes)
{
    for (unsigned i = 0; i < 4U * WARP_LANES; i++) {
        const unsigned matrix = i / WARP_LANES;
        const unsigned g = i % WARP_LANES / 4;
        const unsigned t = i % WARP_LANES % 4;
        uint32_t both[2];

        for (unsigned half = 0; half < 2; half++) {
            const unsigned row = TRANSPOSED ? 2 * t + half : g;
            const unsigned column = TRANSPOSED ? g : 2 * t + half;

            both[half] = ((const matrices_operands *)lanes[8 * matrix + row])->row[column];
        }
        ((const matrices_operands *)lanes[i % WARP_LANES])->out[matrix] = both[0] | both[1] << 16;
    }
}

template <bool TRANSPOSED> static inline void load_matrices(uint32_t out[4], const void *row)
{
    matrices_operands own = {out, (const uint16_t *)row};

    on_host::aligned(row, 16);
    on_host::together(&own, load_matrices_lanes<TRANSPOSED>);
}

static inline void copy_16_bytes(void *to, const void *from, bool whole)
{
    on_host::aligned(to, 16);
    on_host::aligned(from, 16);
    on_host::copy_later(to, whole ? from : nullptr, 16);
}

static inline void commit_copies()
{
    on_host::commit_copies();
}

template <int NEWEST> static inline void wait_for_copies()
{
    on_host::wait_for_copies(NEWEST);
}

#endif

#endif /* TENSOR_CUDA_MMA_CUH */

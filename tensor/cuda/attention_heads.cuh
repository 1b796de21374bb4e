/*
 * attention_heads -- what the kernels of attention have in common, whatever the format of numbers: which
 * head a block works on, where it lies, and which weights its dropout keeps.
 *
 * A grid is (B·H heads, blocks of a head); heads come fastest, so that the longest blocks of all heads
 * begin first.
 */
#ifndef TENSOR_CUDA_ATTENTION_HEADS_CUH
#define TENSOR_CUDA_ATTENTION_HEADS_CUH

#include "tensor/cuda/kernel.cuh"
#include "tensor/cuda/philox.cuh"
#include "tensor/kernels.h"
#include "tensor/kernels/attention.h"
#include "tensor/rng.h"

/* What a kernel is told, by value. */
struct attention_call {
    unsigned positions; /* T */
    unsigned heads;     /* H of this shard */
    unsigned head_size; /* D */
    float scale;        /* 1 / sqrt(D) */
    bool drops;
    uint32_t threshold;
    float keep_scale; /* of what is kept; 1 without dropout */
    uint64_t seed;
    uint32_t site;
    uint32_t layer;
    uint64_t first_sample;
    uint64_t first_head;
};

static inline attention_call attention_call_of(const struct attention_shape *shape,
                                               const struct attention_dropout *dropout)
{
    attention_call call = {};

    call.positions = (unsigned)shape->positions;
    call.heads = (unsigned)shape->heads;
    call.head_size = (unsigned)shape->head_size;
    call.scale = 1.0F / sqrtf((float)shape->head_size);
    call.keep_scale = 1.0F;
    if (dropout != NULL) {
        call.drops = true;
        call.threshold = dropout->threshold;
        call.keep_scale = rng_mask_scale(dropout->threshold);
        call.seed = dropout->seed;
        call.site = dropout->site;
        call.layer = dropout->layer;
        call.first_sample = dropout->first_sample;
        call.first_head = dropout->first_head;
    }
    return call;
}

/* Runs `statement`, in which D is a constant of at least `head_size`: what tiles are made for. */
#define ATTENTION_BY_D(head_size, statement)                                         \
    do {                                                                             \
        if ((head_size) <= 64) {                                                     \
            constexpr int D = 64;                                                    \
            statement;                                                               \
        }                                                                            \
        if ((head_size) <= 128) {                                                    \
            constexpr int D = 128;                                                   \
            statement;                                                               \
        }                                                                            \
        if ((head_size) <= ATTENTION_CUDA_MOST_D) {                                  \
            constexpr int D = ATTENTION_CUDA_MOST_D;                                 \
            statement;                                                               \
        }                                                                            \
        return status_fail(STATUS_ERR_UNSUPPORTED,                                   \
                           "attention with %zu numbers a head, at most %d on a GPU", \
                           (size_t)(head_size), ATTENTION_CUDA_MOST_D);              \
    } while (0)

/* The blocks of `rows` positions of all heads; `parts`: of a block. */
static inline dim3 attention_grid(const struct attention_shape *shape, unsigned rows,
                                  unsigned parts)
{
    return dim3((unsigned)(shape->batch * shape->heads),
                (unsigned)((shape->positions + rows - 1) / rows), parts);
}

/* Where the block's head lies, in elements. */
struct attention_head {
    size_t row;   /* from a position to the next of out, dout */
    size_t first; /* of position 0 in out, dout */
    size_t row_qkv;
    size_t first_qkv; /* of Q; K and V lie `row` behind one another */
    size_t rows;      /* of position 0 in lse and its like (B,H,T) */
    uint64_t head;    /* in the whole layer */
    uint64_t mask;    /* the key of its sample's numbers; with dropout only */
};

static __device__ __forceinline__ attention_head attention_head_here(const attention_call &call)
{
    const unsigned batch = blockIdx.x / call.heads;
    const unsigned head = blockIdx.x % call.heads;
    attention_head here;

    here.row = (size_t)call.heads * call.head_size;
    here.first = (size_t)batch * call.positions * here.row + (size_t)head * call.head_size;
    here.row_qkv = 3 * here.row;
    here.first_qkv = (size_t)batch * call.positions * here.row_qkv + (size_t)head * call.head_size;
    here.rows = (size_t)blockIdx.x * call.positions;
    here.head = call.first_head + head;
    here.mask =
        call.drops ? mask_key(call.seed, call.site, call.layer, call.first_sample + batch) : 0;
    return here;
}

/* Fills bits (KEYS, QUERIES / 8) for the keys and queries from the given ones on, multiples of 8: bit
 * q % 8 of byte q / 8 of a key is set where the weight of query q is kept. A byte is what one counter of
 * random numbers has. Behind the last position the bits are of no weight. */
template <int KEYS, int QUERIES, int THREADS>
static __device__ __forceinline__ void make_keep_bits(uint8_t *bits, const attention_call &call,
                                                      const attention_head &here,
                                                      unsigned first_key, unsigned first_query)
{
    const uint64_t edge = (call.positions + 7) / 8;

    UNROLL_BY(1)
    for (unsigned i = threadIdx.x; i < KEYS * QUERIES / 8; i += THREADS) {
        const unsigned k = first_key + i / (QUERIES / 8);
        const unsigned square = first_query / 8 + i % (QUERIES / 8);
        const mask_numbers numbers(here.mask,
                                   ((here.head * edge + k / 8) * edge + square) * 8 + k % 8);
        unsigned kept = 0;

        UNROLL
        for (unsigned q = 0; q < MASK_NUMBERS; q++) {
            kept |= (numbers.at(q) >= call.threshold ? 1U : 0U) << q;
        }
        bits[i] = (uint8_t)kept;
    }
}

/* Of bits that make_keep_bits() has filled. */
template <int QUERIES>
static __device__ __forceinline__ bool keeps(const uint8_t *bits, unsigned key, unsigned query)
{
    return (bits[key * (QUERIES / 8) + query / 8] >> (query % 8) & 1U) != 0;
}

/* ---- In fp32: attention_fp32.cu. ---- */

enum status attention_fp32_forward(float *out, float *lse, const float *qkv,
                                   const struct attention_shape *shape, const attention_call &call,
                                   struct stream *stream);
/* `delta` (B,H,T): out · dout of each row. */
enum status attention_fp32_backward(float *dqkv, const float *dout, const float *qkv,
                                    const float *lse, const float *delta,
                                    const struct attention_shape *shape, const attention_call &call,
                                    struct stream *stream);

#endif /* TENSOR_CUDA_ATTENTION_HEADS_CUH */

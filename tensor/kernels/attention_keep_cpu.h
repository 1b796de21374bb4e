/*
 * attention_keep -- which weights of attention a dropout keeps, in the order in which the kernels
 * meet them. For attention's kernel files only; attention.h has the numbering of the elements.
 *
 * The numbers of a mask come in squares of 8 keys by 8 queries, and those of neighbouring queries
 * follow each other: so 8 keys of one panel are one run of whole Philox blocks, and a block is what
 * one key has for 8 queries. Queries past the last one read numbers of other squares, which does no
 * harm, as nothing of theirs is kept.
 */
#ifndef TENSOR_KERNELS_ATTENTION_KEEP_CPU_H
#define TENSOR_KERNELS_ATTENTION_KEEP_CPU_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/kernels/attention_blocks.h"
#include "tensor/kernels/math_cpu.h"
#include "tensor/kernels/philox_cpu.h"
#include "tensor/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ATTENTION_KEEP_EDGE = 8, /* of a square; its keys, and its queries */
    ATTENTION_KEEP_SQUARE = ATTENTION_KEEP_EDGE * ATTENTION_KEEP_EDGE,
    ATTENTION_KEEP_NUMBERS = ATTENTION_KEEP_EDGE * ATTENTION_PANEL /* of 8 keys for a panel */
};

/* What the mask of one head of one sample follows from. */
struct attention_keep {
    struct philox_keys keys;
    uint64_t first; /* square of the head */
    uint64_t edge;  /* squares in a row of them */
    uint32_t threshold;
};

/* `keep`, filled for head `head` of sample `batch` of this call; NULL without dropout. */
static inline const struct attention_keep *
attention_keep_init(struct attention_keep *keep, const struct attention_dropout *dropout,
                    const struct attention_shape *shape, size_t batch, size_t head)
{
    uint64_t edge = (shape->positions + ATTENTION_KEEP_EDGE - 1) / ATTENTION_KEEP_EDGE;

    if (dropout == NULL) {
        return NULL;
    }
    philox_keys_init(&keep->keys, rng_mask_of(dropout->seed, dropout->site, dropout->layer,
                                              dropout->first_sample + batch));
    keep->first = (dropout->first_head + head) * edge * edge;
    keep->edge = edge;
    keep->threshold = dropout->threshold;
    return keep;
}

/* The numbers of the 8 keys from `first_key` on for the panel that begins with `first_query`, both
 * multiples of 8. */
static inline void attention_keep_numbers(uint16_t numbers[ATTENTION_KEEP_NUMBERS],
                                          const struct attention_keep *keep, size_t first_query,
                                          size_t first_key)
{
    uint64_t square = keep->first + first_key / ATTENTION_KEEP_EDGE * keep->edge +
                      first_query / ATTENTION_KEEP_EDGE;

    philox_numbers(numbers, &keep->keys, square * ATTENTION_KEEP_SQUARE, ATTENTION_KEEP_NUMBERS);
}

/* row (panel) becomes zero where key `key` of these numbers is not kept. */
static inline void attention_keep_row(float *row, const uint16_t numbers[ATTENTION_KEEP_NUMBERS],
                                      size_t key, uint32_t threshold)
{
    const uint16_t *first = numbers + key * ATTENTION_KEEP_EDGE;

    for (size_t q = 0; q < ATTENTION_PANEL; q += ATTENTION_KEEP_EDGE) {
        for (size_t i = 0; i < ATTENTION_KEEP_EDGE; i++) {
            uint32_t number = first[q * ATTENTION_KEEP_EDGE + i];

            row[q + i] = math_select(number >= threshold, row[q + i], 0.0F);
        }
    }
}

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_ATTENTION_KEEP_CPU_H */

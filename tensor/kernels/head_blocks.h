/*
 * head_blocks -- how many rows the head takes at once, and the workspace that follows from it.
 * Private to the head files. A function of the shape alone, because the split of a matrix product
 * decides its bits.
 */
#ifndef TENSOR_KERNELS_HEAD_BLOCKS_H
#define TENSOR_KERNELS_HEAD_BLOCKS_H

#include <stddef.h>

#include "tensor/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of one block: enough for full speed of the three products, few enough that the logits of a
 * large vocabulary stay near 100 MB. */
enum {
    HEAD_BLOCK_ROWS = 512
};

/* Distance of two rows of logits, V up to a multiple of a cache line. */
size_t head_logits_stride(const struct head_shape *shape);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_HEAD_BLOCKS_H */

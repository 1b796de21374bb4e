#include "tensor/kernels/head_blocks.h"

size_t head_logits_stride(const struct head_shape *shape)
{
    return (shape->vocab + 15) / 16 * 16;
}

size_t head_workspace_floats(const struct head_shape *shape, int threads)
{
    size_t rows = shape->rows < HEAD_BLOCK_ROWS ? shape->rows : HEAD_BLOCK_ROWS;

    (void)threads;
    return rows * head_logits_stride(shape);
}

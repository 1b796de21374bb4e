#include "stages/model/head.h"

#include <stdbool.h>

/* Two head_rows make the 64 bytes that a gathered piece is a multiple of. */
static size_t gathered_rows(size_t rows)
{
    return (rows + 1) / 2 * 2;
}

void head_buffers_carve(struct head_buffers *buffers, const struct head_shape *shape, int32_t tp,
                        const struct kernel_ops *kernels, struct arena *arena, struct arena *shared)
{
    size_t most = kernels->head_block_rows;
    size_t rows = shape->rows < most ? shape->rows : most;

    buffers->logits = arena_take_floats(arena, rows * head_logits_stride(shape));
    buffers->losses = arena_take(arena, rows, sizeof(*buffers->losses));
    buffers->rows = arena_take(tp > 1 ? shared : arena, (size_t)tp * gathered_rows(rows),
                               sizeof(struct head_row));
}

static size_t block_rows(const struct head *head)
{
    return device_kernels(head->device)->head_block_rows;
}

/* The block that begins at `first`. */
static struct head_shape block_at(const struct head *head, size_t first)
{
    struct head_shape block = head->shape;
    size_t left = head->shape.rows - first;

    block.rows = left < block_rows(head) ? left : block_rows(head);
    return block;
}

/* Where the mask is not the host's to read a block counts as one with targets: it then adds zeros. */
static bool any_target(const struct head *head, const float *mask, size_t rows)
{
    if (!device_tensors_are_here(head->device)) {
        return true;
    }
    for (size_t i = 0; i < rows; i++) {
        if (mask[i] != 0.0F) {
            return true;
        }
    }
    return false;
}

/* Logits, losses and, where asked for, dlogits of a block; adds to *loss_sum. */
static enum status block_forward(const struct head *head, const struct head_shape *block,
                                 const void *x, const int32_t *targets, const float *mask,
                                 bool gradients, double *loss_sum)
{
    const struct kernel_ops *ops = device_kernels(head->device);
    struct stream *stream = device_stream(head->device);
    struct head_rows all = {
        .rows = head->buffers.rows,
        .stride = gathered_rows(block->rows),
        .shards = (size_t)head->tp->size,
        .shard = (size_t)head->tp->index,
    };

    TRY(ops->head_logits(head->buffers.logits, head->buffers.rows + all.shard * all.stride, x,
                         head->weight, targets, mask, block, head->type, stream));
    TRY(tensor_parallel_gather(head->tp, head->buffers.rows, all.stride * sizeof(struct head_row)));
    TRY(ops->head_loss(head->buffers.logits, head->buffers.losses, &all, targets, mask, block,
                       gradients, head->type, stream));
    return ops->head_add_losses(loss_sum, head->buffers.losses, block->rows, stream);
}

static enum status block_backward(const struct head *head, const struct head_shape *block, void *x)
{
    const struct kernel_ops *ops = device_kernels(head->device);
    struct stream *stream = device_stream(head->device);
    bool in_place = head->type == DTYPE_FP32 && head->tp->size == 1;
    float *dx = in_place ? x : head->hidden;
    size_t elems = block->rows * block->hidden;

    TRY(ops->head_backward(dx, head->gradient, x, head->buffers.logits, head->weight, block,
                           head->type, stream));
    TRY(tensor_parallel_sum(head->tp, dx, elems));
    return in_place ? STATUS_OK : ops->convert(x, head->type, dx, DTYPE_FP32, elems, stream);
}

/* A block of head_train(), from `rows` on. */
static enum status train_block(const struct head *head, const struct head_shape *block, void *rows,
                               const int32_t *targets, const float *mask, double *loss_sum)
{
    if (!any_target(head, mask, block->rows)) {
        return device_zero(head->device, rows,
                           block->rows * block->hidden * dtype_bytes(head->type));
    }
    TRY(block_forward(head, block, rows, targets, mask, true, loss_sum));
    return block_backward(head, block, rows);
}

enum status head_train(const struct head *head, void *x, const int32_t *targets, const float *mask,
                       double *loss_sum)
{
    for (size_t row = 0; row < head->shape.rows; row += block_rows(head)) {
        struct head_shape block = block_at(head, row);

        TRY(train_block(head, &block, dtype_at(x, head->type, row * block.hidden), targets + row,
                        mask + row, loss_sum));
    }
    return STATUS_OK;
}

/* A block of head_train_partial(), with `dx` for its gradient. */
static enum status train_block_partial(const struct head *head, const struct head_shape *block,
                                       float *dx, const void *rows, const int32_t *targets,
                                       const float *mask, double *loss_sum)
{
    if (!any_target(head, mask, block->rows)) {
        return device_zero(head->device, dx, block->rows * block->hidden * sizeof(*dx));
    }
    TRY(block_forward(head, block, rows, targets, mask, true, loss_sum));
    return device_kernels(head->device)
        ->head_backward(dx, head->gradient, rows, head->buffers.logits, head->weight, block,
                        head->type, device_stream(head->device));
}

enum status head_train_partial(const struct head *head, const void *x, const int32_t *targets,
                               const float *mask, double *loss_sum)
{
    for (size_t row = 0; row < head->shape.rows; row += block_rows(head)) {
        struct head_shape block = block_at(head, row);

        TRY(train_block_partial(head, &block, head->hidden + row * block.hidden,
                                dtype_const_at(x, head->type, row * block.hidden), targets + row,
                                mask + row, loss_sum));
    }
    return STATUS_OK;
}

enum status head_evaluate(const struct head *head, const void *x, const int32_t *targets,
                          const float *mask, double *loss_sum)
{
    for (size_t row = 0; row < head->shape.rows; row += block_rows(head)) {
        struct head_shape block = block_at(head, row);

        if (!any_target(head, mask + row, block.rows)) {
            continue;
        }
        TRY(block_forward(head, &block, dtype_const_at(x, head->type, row * head->shape.hidden),
                          targets + row, mask + row, false, loss_sum));
    }
    return STATUS_OK;
}

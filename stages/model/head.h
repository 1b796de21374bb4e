/*
 * head -- the language model's head and its loss over one micro-batch: block of rows by block of
 * rows, so that (N,V) never exists at once.
 *
 *   head_logits, gather, head_loss, head_backward, sum        see tensor/kernels/head.h
 *
 * With tensor parallelism each shard has some rows of the matrix. It shows the others three
 * numbers a row, and the gradient of x is the sum of what all have. Blocks without a target are
 * skipped, by all shards alike, because targets and mask are the same on all.
 *
 * x and its gradient are in the model dtype, logits, losses and the gradient's sum in fp32.
 *
 * Losses are added in double, rows ascending; training and evaluation give equal ones.
 */
#ifndef STAGES_MODEL_HEAD_H
#define STAGES_MODEL_HEAD_H

#include <stdint.h>

#include "base/status.h"
#include "stages/model/tensor_parallel.h"
#include "tensor/arena.h"
#include "tensor/device.h"
#include "tensor/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a block is worked on in; nothing in it outlives the call. */
struct head_buffers {
    float *logits;         /* (block,stride) */
    double *losses;        /* (block) */
    struct head_row *rows; /* (tp,block), the block an even number of rows: pieces of 64 bytes */
};

struct head {
    struct head_shape shape; /* rows: N, of the micro-batch */
    enum dtype type;         /* of x and the weight */
    const void *weight;      /* borrows; (V here,C) */
    float *gradient;         /* borrows; (V here,C); evaluation: unused */
    struct head_buffers buffers;
    /* Borrows: (block,C) where tp > 1, in shared memory, or x is of 16 bits: the gradient of x is
     * made and added up there, and goes to x when it is whole. Of head_train_partial() (N,C). Else,
     * and in evaluation, unused. */
    float *hidden;
    const struct tensor_parallel *tp;
    struct device *device;
};

/* Measure, or place (tensor/arena.h); a block has the kernels' head_block_rows, or all rows. `shape` is the micro-batch's, as in struct head; rows, which
 * the shards show each other, come from `shared` where tp > 1. */
void head_buffers_carve(struct head_buffers *buffers, const struct head_shape *shape, int32_t tp,
                        const struct kernel_ops *kernels, struct arena *arena,
                        struct arena *shared);

/* x (N,C) is read and, block by block, replaced by its gradient; the head's gradient +=;
 * *loss_sum += the sum over unmasked rows of -log p(target), not scaled by loss_seed. loss_sum is of DEVICE_HOST, and
 * whole behind device_wait(). */
enum status head_train(const struct head *head, void *x, const int32_t *targets, const float *mask,
                       double *loss_sum);

/* The same, but x is only read, and head->hidden (N,C) becomes what this shard has of its gradient, a
 * part of the sum over the shards: for callers that want that sum for their own rows. */
enum status head_train_partial(const struct head *head, const void *x, const int32_t *targets,
                               const float *mask, double *loss_sum);

/* The same without gradients; x is only read. */
enum status head_evaluate(const struct head *head, const void *x, const int32_t *targets,
                          const float *mask, double *loss_sum);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_HEAD_H */

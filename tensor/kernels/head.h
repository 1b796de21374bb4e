/*
 * head -- the language model's head and its loss, fused: logits, loss, and their gradients block
 * of rows by block of rows, so that (N,V) never exists at once.
 *
 *   x          (N,C)  train: read, and each block replaced by its gradient; evaluate: read
 *   dwte       (V,C)  accumulated (train only)
 *   loss_sum   ()     overwritten: the sum over rows with mask 1 of -log p(target), in double,
 *                     rows ascending, not scaled by shape->loss_seed
 *   wte        (V,C)  read
 *   targets    (N)    read, each in [0, V), also where masked
 *   mask       (N)    read, 0 or 1
 *   workspace         head_workspace_floats(shape, threads of the stream) floats at a multiple of
 *                     64 bytes, contents neither read nor kept
 *
 * logits = x · wteᵀ; p = softmax(logits); dlogits = (p - onehot(target)) · mask · loss_seed;
 * dwte += dlogitsᵀ · x; dx = dlogits · wte. A masked row has dx = 0 and adds nothing to dwte.
 *
 * Nothing aliases. The block's size depends on the shape alone, and a row's softmax is computed by
 * one member in fixed lanes; what depends on the size of the team is gemm's split. Train and
 * evaluate give equal losses. Fails only where gemm does; x and dwte are then half done.
 */
#ifndef TENSOR_KERNELS_HEAD_H
#define TENSOR_KERNELS_HEAD_H

#include <stdint.h>

#include "base/status.h"
#include "tensor/kernels.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

enum status KERNEL(head_train)(float *x, float *dwte, double *loss_sum_out, const float *wte,
                               const int32_t *targets, const float *mask,
                               const struct head_shape *shape, float *workspace,
                               struct stream *stream);
enum status KERNEL(head_evaluate)(const float *x, double *loss_sum_out, const float *wte,
                                  const int32_t *targets, const float *mask,
                                  const struct head_shape *shape, float *workspace,
                                  struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_HEAD_H */

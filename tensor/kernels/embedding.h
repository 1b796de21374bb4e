/*
 * embedding -- the first layer's input: a word's row plus a position's row.
 *
 *   forward
 *   tokens  (B,T) in [0, V)  read; the caller has checked the range
 *   wte     (V,C)            read
 *   wpe     (T,C)            read; its first T rows where it has more
 *   out     (B,T,C)          overwritten; overlaps nothing
 *   backward
 *   dout    (B,T,C)          read
 *   tokens  (B,T) in [0, V)  read
 *   dwte    (V,C)            accumulated
 *   dwpe    (T,C)            accumulated; overlaps nothing
 *
 * out[b][t] = wte[tokens[b][t]] + wpe[t]
 * dwte[tokens[b][t]] += dout[b][t], dwpe[t] += dout[b][t], in ascending (b,t)
 *
 * The team shares rows forward and columns backward, so neither depends on its size.
 */
#ifndef TENSOR_KERNELS_EMBEDDING_H
#define TENSOR_KERNELS_EMBEDDING_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

/* Cannot fail. */
enum status KERNEL(embedding_forward)(float *out, const int32_t *tokens, const float *wte,
                                      const float *wpe, size_t B, size_t T, size_t C,
                                      struct stream *stream);

/* STATUS_ERR_INVALID, before anything is written, for a token outside [0, V). */
enum status KERNEL(embedding_backward)(float *dwte, float *dwpe, const float *dout,
                                       const int32_t *tokens, size_t B, size_t T, size_t C,
                                       size_t V, struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_EMBEDDING_H */

/*
 * embedding -- the first layer's input: a word's row plus a position's row, and a type's row where
 * the model has token types. Shards of the vocabulary hold consecutive rows of the word table.
 *
 *   forward
 *   tokens  (B,T) in [0, V)      read; the caller has checked the range
 *   types   (B,T) in [0, types)  read, likewise; NULL without token types
 *   wte     (vocab,C)            of `type`, read: the rows of tokens first_token and following
 *   wpe     (T,C)                of `type`, read; its first T rows where it has more
 *   wtt     (types,C)            of `type`, read; NULL without token types
 *   out     (B,T,C)              overwritten, in fp32; overlaps nothing
 *   backward
 *   dout    (B,T,C)              of `type`, read
 *   tokens, types                read
 *   dwte    (vocab,C)            accumulated, in fp32, as the next two
 *   dwpe    (T,C)                accumulated
 *   dwtt    (types,C)            accumulated; NULL without token types; all overlap nothing
 *
 * out[b][t] = (wte[token - first_token] + wpe[t]) + wtt[type] where this shard has the token, and 0
 * where another has it, so that the sum over the shards adds nothing but zeros. It is not rounded
 * to `type`, because that comes after the sum.
 * dwte[token - first_token] += dout[b][t] where this shard has the token; dwpe[t] += dout[b][t] and
 * dwtt[type] += dout[b][t] on every shard, as each has these tables; in ascending (b,t).
 *
 * The team shares rows forward and columns backward, so neither depends on its size. On CUDA a block adds all
 * rows of a token, without atomics and in the same order.
 */
#ifndef TENSOR_KERNELS_EMBEDDING_H
#define TENSOR_KERNELS_EMBEDDING_H

#include <stdint.h>

#include "base/status.h"
#include "tensor/kernels.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Cannot fail. */
enum status KERNEL(embedding_forward)(float *out, const int32_t *tokens, const int32_t *types,
                                      const void *wte, const void *wpe, const void *wtt,
                                      const struct embedding_shape *shape, enum dtype type,
                                      struct stream *stream);

/* STATUS_ERR_INVALID, before anything is written, for a token outside [0, whole_vocab) or a type
 * outside [0, types). On CUDA, where nobody waits to be told, such a token adds to no row of dwte and such a
 * type to none of dwtt: the caller has checked the range. */
enum status KERNEL(embedding_backward)(float *dwte, float *dwpe, float *dwtt, const void *dout,
                                       const int32_t *tokens, const int32_t *types,
                                       const struct embedding_shape *shape, enum dtype type,
                                       struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_EMBEDDING_H */

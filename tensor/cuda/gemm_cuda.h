/*
 * gemm_cuda -- the matrix product of the GPU: tensor/gemm.h's contract over cuBLASLt.
 *
 * Everything is summed in fp32, also where the library splits K, and a 16-bit C is rounded once; with `tf32` the
 * operands of an fp32 product are rounded to TF32. Both operands are of one type, and C is of that type or fp32: what
 * else there is, is refused by name.
 *
 * A product may end in an epilogue: what the library does to its fp32 sums before it rounds them.
 *
 * The library is asked once for each shape what suits it (GEMM_CUDA_PLANS of them are kept). What it answers depends
 * on shapes, types, distances and on whether pointers are multiples of 16 bytes: not on where in memory the
 * matrices lie beyond that, nor on time or load.
 */
#ifndef TENSOR_CUDA_GEMM_CUDA_H
#define TENSOR_CUDA_GEMM_CUDA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gemm;
struct gemm_cuda;
struct stream;

/* A power of two; a model has some twenty shapes. */
#define GEMM_CUDA_PLANS 256

/* What the library may use while a product runs, taken once. */
#define GEMM_CUDA_WORKSPACE_BYTES ((size_t)32 << 20)

/* On the GPU of the calling thread. The caller owns *gemm_out. STATUS_ERR_NO_MEMORY without the workspace,
 * STATUS_ERR_CUDA where the library does not start. */
enum status gemm_cuda_create(bool tf32, struct gemm_cuda **gemm_out);

/* The slot `gemm` of kernels_cuda(). The stream is a queue whose `gemm` gemm_cuda_create() has made; two products of
 * one gemm_cuda run on one stream, or one after another. STATUS_ERR_INVALID as gemm_check(); STATUS_ERR_UNSUPPORTED
 * with shape, types and the library's word where it has nothing for the product; STATUS_ERR_CUDA where it fails. */
enum status gemm_cuda_run(const struct gemm *gemm, struct stream *stream);

/* One of the two, the other NULL. c is of one type with the operands. */
struct gemm_cuda_epilogue {
    const void *bias;       /* (N) of c's type: c = product + bias */
    const void *gelu_input; /* (M,N) of c's type, ldc apart: c = product · gelu'(gelu_input) */
};

/* gemm_cuda_run() with an epilogue, with alpha 1 and beta 0. *made_out is false, and nothing was done, where the library
 * has no algorithm with this epilogue, and where K is 0: the caller makes the product and then the rest, here and
 * whenever shape, types and alignment are these. */
enum status gemm_cuda_run_with(const struct gemm *gemm, const struct gemm_cuda_epilogue *epilogue,
                               struct stream *stream, bool *made_out);

/* "13.0.2"; `bytes` of room. */
void gemm_cuda_version(char *text, size_t bytes);

/* Shapes that the library has been asked for, with and without epilogues. */
size_t gemm_cuda_plans(const struct gemm_cuda *gemm);

/* Nothing runs any more. Nulls the caller's pointer; NULL is fine. */
void gemm_cuda_destroy(struct gemm_cuda **gemm);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_CUDA_GEMM_CUDA_H */

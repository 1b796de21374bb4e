/*
 * gemm_cuda -- the matrix product of the GPU: tensor/gemm.h's contract over cuBLASLt.
 *
 * Everything is summed in fp32, also where the library splits K, and a 16-bit C is rounded once; with `tf32` the
 * operands of an fp32 product are rounded to TF32. Both operands are of one type, and C is of that type or fp32: what
 * else there is, is refused by name.
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

/* "13.0.2"; `bytes` of room. */
void gemm_cuda_version(char *text, size_t bytes);

/* Shapes that the library has been asked for. */
size_t gemm_cuda_plans(const struct gemm_cuda *gemm);

/* Nothing runs any more. Nulls the caller's pointer; NULL is fine. */
void gemm_cuda_destroy(struct gemm_cuda **gemm);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_CUDA_GEMM_CUDA_H */

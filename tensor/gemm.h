/*
 * gemm -- C = alpha·op(A)·op(B) + beta·C on row-major matrices of fp32, bf16 or fp16.
 *
 * A front to oneDNN's dnnl_sgemm, one library thread a call; the team of the stream splits the
 * work into tiles whose edges depend on (op, M, N, K) and the team's size only. So equal shapes,
 * types and teams give equal bits, whatever runs beside it.
 *
 * Everything is multiplied and summed in fp32. A 16-bit operand is widened block by block into the
 * scratch of the member that reads it, a 16-bit C is rounded once (tensor/gemm_tile.h).
 *
 * This is the CPU's product and what all of them are asked with; callers reach the device's own through the
 * slot `gemm` of its table.
 */
#ifndef TENSOR_GEMM_H
#define TENSOR_GEMM_H

#include <stddef.h>

#include "base/status.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

enum gemm_op {
    GEMM_PLAIN,
    GEMM_TRANSPOSED
};

/* The blocks of a product with a 16-bit type: small enough that scratch is some MiB a member,
 * large enough that the library packs and the members widen little beside what they multiply. */
#define GEMM_BLOCK_ROWS    1024
#define GEMM_BLOCK_COLUMNS 1008
#define GEMM_BLOCK_DEPTH   1024

/* A block's lines, whichever way they run, and the pad behind each (of at most 1024 lines). */
#define GEMM_SCRATCH_PAD      16
#define GEMM_SCRATCH_A_FLOATS ((size_t)GEMM_BLOCK_ROWS * GEMM_BLOCK_DEPTH + (size_t)32 * 1024)
#define GEMM_SCRATCH_B_FLOATS ((size_t)GEMM_BLOCK_COLUMNS * GEMM_BLOCK_DEPTH + (size_t)32 * 1024)
#define GEMM_SCRATCH_C_FLOATS ((size_t)GEMM_BLOCK_ROWS * GEMM_BLOCK_COLUMNS + (size_t)32 * 1024)

/* What stream_reserve() has to give each member before a product with a 16-bit type. */
#define GEMM_SCRATCH_FLOATS (GEMM_SCRATCH_A_FLOATS + GEMM_SCRATCH_B_FLOATS + GEMM_SCRATCH_C_FLOATS)

/*
 *   a  op(A) is (M,K), rows `lda` elements apart as stored      read
 *   b  op(B) is (K,N), rows `ldb` elements apart as stored      read
 *   c  (M,N), rows `ldc` elements apart      overwritten; beta != 0: read and accumulated
 *
 * beta = 0 never reads c (a NaN there does not survive); with a 16-bit c it must be 0. M, N or K of
 * 0 is allowed. Distances are in elements. Zeroed types mean fp32.
 */
struct gemm {
    enum gemm_op op_a;
    enum gemm_op op_b;
    enum dtype a_type;
    enum dtype b_type;
    enum dtype c_type;
    size_t M;
    size_t N;
    size_t K;
    float alpha;
    float beta;
    const void *a;
    const void *b;
    void *c;
    size_t lda;
    size_t ldb;
    size_t ldc;
};

/* Rows that overlap (an lda, ldb or ldc that is too small): STATUS_ERR_INVALID with the shape. */
enum status gemm_check(const struct gemm *gemm);

/* "NT of 40 x 60 x 50 (M, N, K), bf16 x bf16 to bf16, lda 50, ldb 50, ldc 60", for messages. */
#define GEMM_TEXT_BYTES 192
const char *gemm_text(const struct gemm *gemm, char text[GEMM_TEXT_BYTES]);

/* Splits over the stream's team, which needs GEMM_SCRATCH_FLOATS for 16-bit types. Rows that
 * overlap (an lda, ldb or ldc that is too small), or a library error: STATUS_ERR_INVALID with the
 * shape. */
enum status gemm_run(const struct gemm *gemm, struct stream *stream);

/* fp32 only, on the calling thread alone: for kernels that already run on a team. */
enum status gemm_run_alone(const struct gemm *gemm);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_GEMM_H */

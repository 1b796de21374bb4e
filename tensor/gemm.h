/*
 * gemm -- C = alpha·op(A)·op(B) + beta·C on row-major fp32 matrices.
 *
 * A front to oneDNN's dnnl_sgemm, one library thread a call; the team of the stream splits the
 * work into tiles whose edges depend on (op, M, N, K) and the team's size only. So equal shapes
 * and teams give equal bits, whatever runs beside it.
 */
#ifndef TENSOR_GEMM_H
#define TENSOR_GEMM_H

#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

enum gemm_op {
    GEMM_PLAIN,
    GEMM_TRANSPOSED
};

/*
 *   a  op(A) is (M,K), rows `lda` elements apart as stored      read
 *   b  op(B) is (K,N), rows `ldb` elements apart as stored      read
 *   c  (M,N), rows `ldc` elements apart      overwritten; beta != 0: read and accumulated
 *
 * beta = 0 never reads c (a NaN there does not survive). M, N or K of 0 is allowed.
 */
struct gemm {
    enum gemm_op op_a;
    enum gemm_op op_b;
    size_t M;
    size_t N;
    size_t K;
    float alpha;
    float beta;
    const float *a;
    const float *b;
    float *c;
    size_t lda;
    size_t ldb;
    size_t ldc;
};

/* Splits over the stream's team. A library error is a status that names the shape. */
enum status gemm_run(const struct gemm *gemm, struct stream *stream);

/* The same on the calling thread alone: for kernels that already run on a team. */
enum status gemm_run_alone(const struct gemm *gemm);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_GEMM_H */

/*
 * fake_cublaslt -- cuBLASLt's products over fake_cuda.h: an operation of a stream that multiplies in plain loops, in
 * fp32, by the columns, distances and transpositions that the layouts say, so that a wrong one is a wrong
 * number. Epilogues go by their formulas: the bias, and gelu' of the tanh form.
 *
 * Refuses what the library refuses: types that it does not multiply, a distance below a column, a pointer less
 * aligned than was said, an algorithm of another product, an epilogue whose matrix has columns not a multiple of 8 elements
 * apart, a workspace that is too small or not the GPU's. Matrices
 * in memory of the GPU must lie within their allocation. Every product overwrites the workspace of its algorithm.
 */
#ifndef TESTS_EMULATED_FAKE_CUBLASLT_H
#define TESTS_EMULATED_FAKE_CUBLASLT_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What an algorithm of the fake takes of workspace. */
#define FAKE_CUBLASLT_WORKSPACE_BYTES ((size_t)4096)

/* On the calling thread: there is no algorithm for products with this number of rows of the result, as the library
 * counts them; 0: there is for all. */
void fake_cublaslt_refuse_rows(size_t rows);

/* On the calling thread: there is no algorithm with an epilogue. */
void fake_cublaslt_refuse_epilogues(bool refuse);

/* How many products with an epilogue the calling thread has asked for. */
size_t fake_cublaslt_epilogues(void);

/* Descriptors, layouts, preferences and handles of the process that nobody has destroyed. */
size_t fake_cublaslt_left(void);

/* How often the library was asked for an algorithm on the calling thread. */
size_t fake_cublaslt_asked(void);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_EMULATED_FAKE_CUBLASLT_H */

/*
 * gemm_problem -- a product of fp32 matrices in memory between guard bands, and what it must give. Every
 * failure is a cmocka failure.
 */
#ifndef TESTS_TENSOR_GEMM_PROBLEM_H
#define TESTS_TENSOR_GEMM_PROBLEM_H

#include <stddef.h>

#include "guarded.h"
#include "tensor/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

struct problem {
    struct gemm gemm;
    struct guarded a;
    struct guarded b;
    struct guarded c;
    size_t pad; /* elements between the rows beyond their length */
};

/* A and B are filled, C is full of NaN; alpha is 1 and beta 0. */
void problem_make(struct problem *p, enum gemm_op op_a, enum gemm_op op_b, size_t M, size_t N,
                  size_t K, size_t pad);
void problem_free(struct problem *p);

/* Holds C against a naive sum in double. `before`: what C was, NULL where it is not read. */
void assert_product(const struct problem *p, const float *before);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_GEMM_PROBLEM_H */

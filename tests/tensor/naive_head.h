/*
 * naive_head -- the language model's head and loss in double precision, as the formulas are
 * written: what the tests of the kernel compare with.
 */
#ifndef TESTS_TENSOR_NAIVE_HEAD_H
#define TESTS_TENSOR_NAIVE_HEAD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct naive_head {
    size_t rows;
    size_t hidden;
    size_t vocab;
    const double *x;        /* (rows, hidden) */
    const double *wte;      /* (vocab, hidden) */
    const int32_t *targets; /* (rows) */
    const float *mask;      /* (rows) */
};

/* The sum over unmasked rows of -log p(target). */
double naive_head_loss(const struct naive_head *head);

/* seed · d(loss)/dx overwrites dx (rows, hidden); seed · d(loss)/dwte is added to dwte (vocab,
 * hidden). */
void naive_head_gradients(const struct naive_head *head, double seed, double *dx, double *dwte);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_NAIVE_HEAD_H */

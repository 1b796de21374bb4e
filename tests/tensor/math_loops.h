/*
 * math_loops -- loops over math_cpu.h, compiled as the kernels are, once for each variant.
 */
#ifndef TESTS_TENSOR_MATH_LOOPS_H
#define TESTS_TENSOR_MATH_LOOPS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out (n) = f(in (n)); they do not overlap. */
typedef void (*math_loop_fn)(float *out, const float *in, size_t elems);

struct math_loops {
    math_loop_fn exp;
    math_loop_fn exp_flushed;
    math_loop_fn log;
    math_loop_fn tanh;
};

extern const struct math_loops math_loops_base;
/* In builds that have the variant only. */
extern const struct math_loops math_loops_v3;

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_MATH_LOOPS_H */

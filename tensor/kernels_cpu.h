/*
 * kernels_cpu -- the CPU's kernel tables by name.
 *
 * kernels_cpu() in kernels.h chooses for a user; this is for who wants a certain variant, such as
 * the tests, which hold every variant of this build against the same expected values.
 */
#ifndef TENSOR_KERNELS_CPU_H
#define TENSOR_KERNELS_CPU_H

#ifdef __cplusplus
extern "C" {
#endif

struct kernel_ops;

extern const struct kernel_ops kernels_cpu_base;
/* In builds by GCC for x86-64 only. */
extern const struct kernel_ops kernels_cpu_v3;

/* The table of "cpu-v3" or "cpu-base"; NULL where this build does not have it or this processor
 * cannot run it. */
const struct kernel_ops *kernels_cpu_find(const char *variant);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_CPU_H */

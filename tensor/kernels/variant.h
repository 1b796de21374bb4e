/*
 * variant -- one source, several instruction sets.
 *
 * A file of CPU kernels is compiled once for each variant, with WEIR_KERNEL_VARIANT naming it
 * (v3, base), and every function it exports is named through KERNEL(). So KERNEL(adam) is adam_v3
 * in one object and adam_base in the other, and both live in one program. Whoever includes a
 * kernel's header without choosing a variant sees the baseline's names.
 */
#ifndef TENSOR_KERNELS_VARIANT_H
#define TENSOR_KERNELS_VARIANT_H

#ifndef WEIR_KERNEL_VARIANT
#define WEIR_KERNEL_VARIANT base
#endif

#define KERNEL_JOINED(name, variant)   name##_##variant
#define KERNEL_EXPANDED(name, variant) KERNEL_JOINED(name, variant)

/* The name of exported function `name` in the variant being compiled. */
#define KERNEL(name) KERNEL_EXPANDED(name, WEIR_KERNEL_VARIANT)

/* Before a loop whose rounds do not depend on each other though its pointers may be equal, as where
 * a result overwrites an operand element by element: the compiler may take rounds together. */
#if defined(__clang__)
#define KERNEL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define KERNEL_INDEPENDENT _Pragma("GCC ivdep")
#else
#define KERNEL_INDEPENDENT
#endif

#endif /* TENSOR_KERNELS_VARIANT_H */

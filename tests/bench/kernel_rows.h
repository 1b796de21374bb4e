/*
 * kernel_rows -- how long the kernels that go row by row take for an element, in every number
 * format, and what a dropout adds.
 *
 * The formats take turns in each round, so that what disturbs the machine disturbs all alike;
 * medians. Lines of `name shape,format value unit`; GB/s of conversions count what is read and
 * written.
 */
#ifndef TESTS_BENCH_KERNEL_ROWS_H
#define TESTS_BENCH_KERNEL_ROWS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kernel_ops;
struct stream;

/* `rows` rows of C elements, and of 4 C for what is inside an MLP. The program ends where memory is
 * short. */
void kernel_rows_bench(const struct kernel_ops *ops, struct stream *stream, size_t rows, size_t C);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_BENCH_KERNEL_ROWS_H */

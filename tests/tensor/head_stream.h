/*
 * head_stream -- the tables of kernels that the tests of the head and of projections are about, and streams for them. Linked for the CPU
 * here and for the emulated GPU in tests/emulated. Every failure is a cmocka failure.
 */
#ifndef TESTS_TENSOR_HEAD_STREAM_H
#define TESTS_TENSOR_HEAD_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kernel_ops;
struct stream;

/* From 0 on; NULL behind the last that this machine has. */
const struct kernel_ops *head_table(size_t number);

/* Equal `threads` are the same way of computing, others another one that must give the same where it says so. */
void head_stream_open(int threads, enum dtype type, struct stream **stream_out);

/* What was asked for has ended. */
void head_stream_wait(struct stream *stream);

void head_stream_close(struct stream **stream);

/* More rows than these teach nothing about this device, and take long. */
size_t head_most_rows(void);

/* By how much of itself a dlogit may be off because it is kept in `type`; 0 where it is kept in fp32. */
double head_dlogits_rounding(enum dtype type);

/* Whether a product may end in what comes behind it, before it is rounded. */
bool head_has_epilogues(void);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_HEAD_STREAM_H */

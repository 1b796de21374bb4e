/*
 * buffer -- memory that the kernels under test and the test itself both reach. Linked for the CPU and for the emulated
 * GPU here, for a real GPU in tests/on_gpu. Every failure is a cmocka failure.
 */
#ifndef TESTS_TENSOR_BUFFER_H
#define TESTS_TENSOR_BUFFER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zeros, at a multiple of 64 bytes; the caller gives them back. */
void *buffer_take(size_t bytes);

/* NULL is fine. */
void buffer_give(void *memory);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_BUFFER_H */

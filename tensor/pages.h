/*
 * pages -- large blocks of the host's memory, straight from the kernel.
 */
#ifndef TENSOR_PAGES_H
#define TENSOR_PAGES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `bytes` >= 0 of zeroed memory that starts on a page, on a huge page where there is at least one, with huge
 * pages where the kernel gives them. Nothing is touched yet. NULL where it cannot be had. */
void *pages_map(size_t bytes);

/* Touches every page, so that it is there. */
void pages_touch(void *memory, size_t bytes);

/* NULL is fine; `bytes` as they were mapped. */
void pages_unmap(void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_PAGES_H */

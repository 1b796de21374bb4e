/*
 * product -- a matrix product of matrices in the host's memory, by the device that the test is about. The tests of
 * the product call this; it is linked for the CPU here and for the emulated GPU in tests/emulated.
 */
#ifndef TESTS_TENSOR_PRODUCT_H
#define TESTS_TENSOR_PRODUCT_H

#include <stdbool.h>

#include "base/status.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gemm;
struct stream;

/* Has ended when it returns. `stream`: the CPU's team. */
enum status product_run(const struct gemm *gemm, struct stream *stream);

/* Whether the device multiplies a by b to c. */
bool product_takes(enum dtype a_type, enum dtype b_type, enum dtype c_type);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_PRODUCT_H */

/* For the tests of the product: the GPU's, over the fakes or real. Matrices go to memory of the GPU, each beginning some elements
 * behind a boundary, and C comes back. */
#include "product.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tensor/cuda/device_cuda.h"
#include "tensor/device.h"
#include "tensor/gemm.h"
#include "tensor/kernels.h"

/* Of a process's tests: what it takes to open it costs more than most of the products. */
struct bench {
    struct device *device;
    size_t runs;
};

struct matrix {
    void *start;
    void *first; /* `shift` elements behind */
    size_t bytes;
};

static struct matrix put(struct device *device, const void *from, enum dtype type, size_t elems,
                         size_t shift)
{
    struct matrix matrix = {.bytes = (elems + shift) * dtype_bytes(type)};

    assert_int_equal(device_take(device, DEVICE_TENSORS, "matrix", matrix.bytes, &matrix.start),
                     STATUS_OK);
    matrix.first = dtype_at(matrix.start, type, shift);
    assert_int_equal(device_copy(device, matrix.first, from, elems * dtype_bytes(type)), STATUS_OK);
    return matrix;
}

static enum status run_on(struct bench *bench, const struct gemm *gemm)
{
    struct device *device = bench->device;
    const size_t shift = bench->runs++ % 5 * 3 % 5;
    const size_t a_rows = gemm->op_a == GEMM_PLAIN ? gemm->M : gemm->K;
    const size_t b_rows = gemm->op_b == GEMM_PLAIN ? gemm->K : gemm->N;
    const size_t c_elems = gemm->M * gemm->ldc;
    struct matrix a = put(device, gemm->a, gemm->a_type, a_rows * gemm->lda, shift);
    struct matrix b = put(device, gemm->b, gemm->b_type, b_rows * gemm->ldb, 0);
    struct matrix c = put(device, gemm->c, gemm->c_type, c_elems, shift / 2);
    struct gemm there = *gemm;
    enum status status;

    there.a = a.first;
    there.b = b.first;
    there.c = c.first;
    status = device_kernels(device)->gemm(&there, device_stream(device));
    assert_int_equal(device_copy(device, gemm->c, c.first, c_elems * dtype_bytes(gemm->c_type)),
                     STATUS_OK);
    assert_int_equal(device_wait(device, NULL, CLOCK_NEVER), STATUS_OK);
    device_give(device, DEVICE_TENSORS, a.start, a.bytes);
    device_give(device, DEVICE_TENSORS, b.start, b.bytes);
    device_give(device, DEVICE_TENSORS, c.start, c.bytes);
    return status;
}

enum status product_run(const struct gemm *gemm, struct stream *stream)
{
    static struct bench bench;
    const struct device_config config = {.threads = 1};

    (void)stream;
    if (bench.device == NULL) {
        assert_int_equal(device_open(device_cuda(), &config, &bench.device), STATUS_OK);
    }
    return run_on(&bench, gemm);
}

bool product_takes(enum dtype a_type, enum dtype b_type, enum dtype c_type)
{
    return a_type == b_type && (c_type == a_type || c_type == DTYPE_FP32);
}

/* No kernel of its own: what cuBLASLt has no algorithm for is a product, then the kernels of bias.cu and gelu.cu. */
#include "tensor/cuda/kernel.cuh"

#include "base/check.h"
#include "tensor/cuda/gemm_cuda.h"
#include "tensor/gemm.h"
#include "tensor/kernels/bias.h"
#include "tensor/kernels/gelu.h"
#include "tensor/kernels/projection.h"

/* c = product + bias; false where the library has no algorithm for it, and c is the product. */
static enum status add_bias(const struct gemm *product, const void *bias, struct stream *stream,
                            bool *added_out)
{
    struct gemm_cuda_epilogue epilogue = {};

    epilogue.bias = bias;
    TRY(gemm_cuda_run_with(product, &epilogue, stream, added_out));
    return *added_out ? STATUS_OK : gemm_cuda_run(product, stream);
}

enum status KERNEL(projection_bias)(const struct gemm *product, const void *bias,
                                    struct stream *stream)
{
    bool added = false;

    ENSURE(product->ldc == product->N, "rows of %zu, %zu apart", product->N, product->ldc);
    TRY(add_bias(product, bias, stream, &added));
    return added ? STATUS_OK
                 : KERNEL(bias_forward)(product->c, bias, product->M, product->N, product->c_type,
                                        stream);
}

enum status KERNEL(projection_gelu)(void *out, const struct gemm *product, const void *bias,
                                    struct stream *stream)
{
    bool added = false;

    ENSURE(product->ldc == product->N, "rows of %zu, %zu apart", product->N, product->ldc);
    TRY(add_bias(product, bias, stream, &added));
    return added ? KERNEL(gelu_forward)(out, product->c, product->M * product->N, product->c_type,
                                        stream)
                 : KERNEL(bias_gelu_forward)(out, product->c, bias, product->M, product->N,
                                             product->c_type, stream);
}

enum status KERNEL(projection_gelu_backward)(const struct gemm *product, float *dbias,
                                             const void *pre, struct stream *stream)
{
    struct gemm_cuda_epilogue epilogue = {};
    bool made = false;

    ENSURE(product->ldc == product->N, "rows of %zu, %zu apart", product->N, product->ldc);
    if (product->c_type != DTYPE_FP32) {
        epilogue.gelu_input = pre;
        TRY(gemm_cuda_run_with(product, &epilogue, stream, &made));
    }
    if (made) {
        return KERNEL(bias_backward)(dbias, product->c, product->M, product->N, product->c_type,
                                     stream);
    }
    TRY(gemm_cuda_run(product, stream));
    return KERNEL(bias_gelu_backward)(product->c, dbias, product->c, pre, product->M, product->N,
                                      product->c_type, stream);
}

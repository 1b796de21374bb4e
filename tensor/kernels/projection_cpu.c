#include "tensor/kernels/projection.h"

#include "base/check.h"
#include "tensor/gemm.h"
#include "tensor/kernels/bias.h"
#include "tensor/kernels/gelu.h"

enum status KERNEL(projection_bias)(const struct gemm *product, const void *bias,
                                    struct stream *stream)
{
    ENSURE(product->ldc == product->N, "rows of %zu, %zu apart", product->N, product->ldc);
    TRY(gemm_run(product, stream));
    return KERNEL(bias_forward)(product->c, bias, product->M, product->N, product->c_type, stream);
}

enum status KERNEL(projection_gelu)(void *out, const struct gemm *product, const void *bias,
                                    struct stream *stream)
{
    ENSURE(product->ldc == product->N, "rows of %zu, %zu apart", product->N, product->ldc);
    TRY(gemm_run(product, stream));
    return KERNEL(bias_gelu_forward)(out, product->c, bias, product->M, product->N, product->c_type,
                                     stream);
}

enum status KERNEL(projection_gelu_backward)(const struct gemm *product, float *dbias,
                                             const void *pre, struct stream *stream)
{
    ENSURE(product->ldc == product->N, "rows of %zu, %zu apart", product->N, product->ldc);
    TRY(gemm_run(product, stream));
    return KERNEL(bias_gelu_backward)(product->c, dbias, product->c, pre, product->M, product->N,
                                      product->c_type, stream);
}

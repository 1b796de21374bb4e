#include "stages/model/linear.h"

#include "tensor/gemm.h"

enum status linear_forward(float *y, const float *x, const float *w,
                           const struct linear_shape *shape, struct device *device)
{
    struct gemm gemm = {
        .op_a = GEMM_PLAIN,
        .op_b = GEMM_PLAIN,
        .M = shape->N,
        .N = shape->M,
        .K = shape->K,
        .alpha = 1.0F,
        .beta = 0.0F,
        .a = x,
        .b = w,
        .c = y,
        .lda = shape->K,
        .ldb = shape->M,
        .ldc = shape->M,
    };

    return gemm_run(&gemm, device_stream(device));
}

enum status linear_backward_input(float *dx, const float *dy, const float *w,
                                  const struct linear_shape *shape, struct device *device)
{
    struct gemm gemm = {
        .op_a = GEMM_PLAIN,
        .op_b = GEMM_TRANSPOSED,
        .M = shape->N,
        .N = shape->K,
        .K = shape->M,
        .alpha = 1.0F,
        .beta = 0.0F,
        .a = dy,
        .b = w,
        .c = dx,
        .lda = shape->M,
        .ldb = shape->M,
        .ldc = shape->K,
    };

    return gemm_run(&gemm, device_stream(device));
}

enum status linear_backward_weight(float *dw, const float *x, const float *dy,
                                   const struct linear_shape *shape, struct device *device)
{
    struct gemm gemm = {
        .op_a = GEMM_TRANSPOSED,
        .op_b = GEMM_PLAIN,
        .M = shape->K,
        .N = shape->M,
        .K = shape->N,
        .alpha = 1.0F,
        .beta = 1.0F,
        .a = x,
        .b = dy,
        .c = dw,
        .lda = shape->K,
        .ldb = shape->M,
        .ldc = shape->M,
    };

    return gemm_run(&gemm, device_stream(device));
}

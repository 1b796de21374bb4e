#include "stages/model/linear.h"

#include "tensor/device.h"
#include "tensor/gemm.h"
#include "tensor/kernels.h"

static struct gemm forward_of(void *y, enum dtype y_type, const void *x, const void *w,
                              const struct linear_shape *shape)
{
    return (struct gemm){
        .op_a = GEMM_PLAIN,
        .op_b = GEMM_PLAIN,
        .a_type = shape->type,
        .b_type = shape->type,
        .c_type = y_type,
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
}

static struct gemm backward_input_of(void *dx, enum dtype dx_type, const void *dy, const void *w,
                                     const struct linear_shape *shape)
{
    return (struct gemm){
        .op_a = GEMM_PLAIN,
        .op_b = GEMM_TRANSPOSED,
        .a_type = shape->type,
        .b_type = shape->type,
        .c_type = dx_type,
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
}

enum status linear_forward(void *y, enum dtype y_type, const void *x, const void *w,
                           const struct linear_shape *shape, struct device *device)
{
    const struct gemm gemm = forward_of(y, y_type, x, w, shape);

    return device_kernels(device)->gemm(&gemm, device_stream(device));
}

enum status linear_forward_bias(void *y, const void *x, const void *w, const void *bias,
                                const struct linear_shape *shape, struct device *device)
{
    const struct gemm gemm = forward_of(y, shape->type, x, w, shape);

    return device_kernels(device)->projection_bias(&gemm, bias, device_stream(device));
}

enum status linear_forward_gelu(void *y, void *pre, const void *x, const void *w, const void *bias,
                                const struct linear_shape *shape, struct device *device)
{
    const struct gemm gemm = forward_of(pre, shape->type, x, w, shape);

    return device_kernels(device)->projection_gelu(y, &gemm, bias, device_stream(device));
}

enum status linear_backward_input(void *dx, enum dtype dx_type, const void *dy, const void *w,
                                  const struct linear_shape *shape, struct device *device)
{
    const struct gemm gemm = backward_input_of(dx, dx_type, dy, w, shape);

    return device_kernels(device)->gemm(&gemm, device_stream(device));
}

enum status linear_backward_gelu(void *dpre, float *dbias, const void *dy, const void *w,
                                 const void *pre, const struct linear_shape *shape,
                                 struct device *device)
{
    const struct gemm gemm = backward_input_of(dpre, shape->type, dy, w, shape);

    return device_kernels(device)->projection_gelu_backward(&gemm, dbias, pre,
                                                            device_stream(device));
}

enum status linear_backward_weight(float *dw, const void *x, const void *dy,
                                   const struct linear_shape *shape, struct device *device)
{
    struct gemm gemm = {
        .op_a = GEMM_TRANSPOSED,
        .op_b = GEMM_PLAIN,
        .a_type = shape->type,
        .b_type = shape->type,
        .c_type = DTYPE_FP32,
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

    return device_kernels(device)->gemm(&gemm, device_stream(device));
}

#include "tensor/cuda/kernels_cuda.h"

#include "tensor/kernels.h"
#include "tensor/kernels/adam.h"
#include "tensor/kernels/add.h"
#include "tensor/kernels/convert.h"
#include "tensor/kernels/layernorm.h"

static const struct kernel_ops kernels = {
    .variant = "cuda",
    .convert = KERNEL(convert),
    .layernorm_forward = KERNEL(layernorm_forward),
    .layernorm_backward = KERNEL(layernorm_backward),
    .add = KERNEL(add),
    .adam = KERNEL(adam),
};

const struct kernel_ops *kernels_cuda(void)
{
    return &kernels;
}

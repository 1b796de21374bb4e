#include "tensor/kernels_cpu.h"

#include "tensor/gemm.h"
#include "tensor/kernels.h"
#include "tensor/kernels/adam.h"
#include "tensor/kernels/add.h"
#include "tensor/kernels/attention.h"
#include "tensor/kernels/bias.h"
#include "tensor/kernels/combine.h"
#include "tensor/kernels/convert.h"
#include "tensor/kernels/count_zeros.h"
#include "tensor/kernels/dropout.h"
#include "tensor/kernels/embedding.h"
#include "tensor/kernels/gelu.h"
#include "tensor/kernels/head.h"
#include "tensor/kernels/layernorm.h"
#include "tensor/kernels/projection.h"
#include "tensor/kernels/residual.h"
#include "tensor/kernels/sgd.h"
#include "tensor/kernels/sum_squares.h"

#define TEXT(word)     #word
#define TEXT_OF(macro) TEXT(macro)

const struct kernel_ops KERNEL(kernels_cpu) = {
    .variant = "cpu-" TEXT_OF(WEIR_KERNEL_VARIANT),
    .convert = KERNEL(convert),
    .gemm = gemm_run,
    .embedding_forward = KERNEL(embedding_forward),
    .embedding_backward = KERNEL(embedding_backward),
    .layernorm_forward = KERNEL(layernorm_forward),
    .layernorm_backward = KERNEL(layernorm_backward),
    .layernorm_partials = KERNEL(layernorm_partials),
    .bias_forward = KERNEL(bias_forward),
    .bias_backward = KERNEL(bias_backward),
    .bias_gelu_forward = KERNEL(bias_gelu_forward),
    .gelu_forward = KERNEL(gelu_forward),
    .bias_gelu_backward = KERNEL(bias_gelu_backward),
    .projection_bias = KERNEL(projection_bias),
    .projection_gelu = KERNEL(projection_gelu),
    .projection_gelu_backward = KERNEL(projection_gelu_backward),
    .bias_residual_forward = KERNEL(bias_residual_forward),
    .dropout_forward = KERNEL(dropout_forward),
    .dropout_backward = KERNEL(dropout_backward),
    .bias_residual_dropout_forward = KERNEL(bias_residual_dropout_forward),
    .attention_forward = KERNEL(attention_forward),
    .attention_backward = KERNEL(attention_backward),
    .attention_slice_forward = KERNEL(attention_slice_forward),
    .attention_slice_backward = KERNEL(attention_slice_backward),
    .attention_workspace = KERNEL(attention_workspace),
    .head_block_rows = HEAD_BLOCK_ROWS,
    .head_logits = KERNEL(head_logits),
    .head_loss = KERNEL(head_loss),
    .head_add_losses = KERNEL(head_add_losses),
    .head_backward = KERNEL(head_backward),
    .add = KERNEL(add),
    .combine = KERNEL(combine),
    .sum_squares = KERNEL(sum_squares),
    .adam = KERNEL(adam),
    .sgd = KERNEL(sgd),
    .count_zeros = KERNEL(count_zeros),
};

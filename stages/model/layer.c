#include "stages/model/layer.h"

#include "stages/model/linear.h"
#include "tensor/kernels.h"

void layer_stash_carve(struct layer_stash *stash, const struct model_shape *shape,
                       struct arena *arena)
{
    size_t N = shape->B * shape->T;
    size_t C = shape->C;
    size_t A = shape->width;

    stash->norm1 = arena_take_floats(arena, N * C);
    stash->mean1 = arena_take_floats(arena, N);
    stash->rstd1 = arena_take_floats(arena, N);
    stash->qkv = arena_take_floats(arena, N * 3 * A);
    stash->attention = arena_take_floats(arena, N * A);
    stash->lse = arena_take_floats(arena, N * shape->heads);
    stash->mid = arena_take_floats(arena, N * C);
    stash->norm2 = arena_take_floats(arena, N * C);
    stash->mean2 = arena_take_floats(arena, N);
    stash->rstd2 = arena_take_floats(arena, N);
    stash->inner = arena_take_floats(arena, N * shape->inner);
    stash->gelu = arena_take_floats(arena, N * shape->inner);
}

void layer_gradients_carve(struct layer_gradients *gradients, const struct model_shape *shape,
                           struct arena *arena)
{
    size_t N = shape->B * shape->T;

    gradients->inner = arena_take_floats(arena, N * shape->inner);
    gradients->mid = arena_take_floats(arena, N * shape->C);
    gradients->qkv = arena_take_floats(arena, N * 3 * shape->width);
}

static struct attention_shape attention_shape_of(const struct model_shape *shape)
{
    return (struct attention_shape){
        .batch = shape->B,
        .positions = shape->T,
        .heads = shape->heads,
        .head_size = shape->D,
    };
}

void layer_scratch_carve(struct layer_scratch *scratch, const struct model_shape *shape,
                         int threads, struct arena *arena, struct arena *shared)
{
    struct attention_shape attention = attention_shape_of(shape);

    scratch->hidden =
        arena_take_floats(shape->shards > 1 ? shared : arena, shape->B * shape->T * shape->C);
    scratch->attention = arena_take_floats(arena, attention_workspace_floats(&attention, threads));
    scratch->norm = arena_take_floats(arena, layernorm_partials_floats(shape->C, threads));
}

/* y = x·w + bias + residual with w row-parallel: each shard has a part of the product, the sum is
 * made where all shards can read, and bias and residual come once. Without shards it is made in y. */
static enum status project_to_residual(float *y, const float *x, const float *w, const float *bias,
                                       const float *residual, const struct linear_shape *shape,
                                       const struct layer_scratch *scratch, struct device *device)
{
    float *partial = scratch->tp->size > 1 ? scratch->hidden : y;

    TRY(linear_forward(partial, x, w, shape, device));
    TRY(tensor_parallel_sum(scratch->tp, partial, shape->N * shape->M));
    return device_kernels(device)->bias_residual_forward(y, partial, bias, residual, shape->N,
                                                         shape->M, device_stream(device));
}

/* scratch->hidden (N,C) = dy·wᵀ with w column-parallel: the gradient of an input that every shard
 * has read is the sum of what they all make of it. */
static enum status gradient_of_copied(const float *dy, const float *w,
                                      const struct linear_shape *shape,
                                      const struct layer_scratch *scratch, struct device *device)
{
    TRY(linear_backward_input(scratch->hidden, dy, w, shape, device));
    return tensor_parallel_sum(scratch->tp, scratch->hidden, shape->N * shape->K);
}

static enum status attention_half(const struct layer_tensors *weights,
                                  const struct layer_stash *stash, const float *x,
                                  const struct model_shape *shape,
                                  const struct layer_scratch *scratch, struct device *device)
{
    const struct kernel_ops *kernels = device_kernels(device);
    struct stream *stream = device_stream(device);
    struct attention_shape attention = attention_shape_of(shape);
    size_t N = shape->B * shape->T;
    size_t C = shape->C;
    size_t A = shape->width;
    struct linear_shape to_qkv = {.N = N, .K = C, .M = 3 * A};
    struct linear_shape to_residual = {.N = N, .K = A, .M = C};

    TRY(kernels->layernorm_forward(stash->norm1, stash->mean1, stash->rstd1, x,
                                   weights->ln_1_weight, weights->ln_1_bias, N, C, shape->eps,
                                   stream));
    TRY(linear_forward(stash->qkv, stash->norm1, weights->c_attn_weight, &to_qkv, device));
    TRY(kernels->bias_forward(stash->qkv, weights->c_attn_bias, N, 3 * A, stream));
    TRY(kernels->attention_forward(stash->attention, stash->lse, stash->qkv, &attention,
                                   scratch->attention, stream));
    return project_to_residual(stash->mid, stash->attention, weights->c_proj_weight,
                               weights->c_proj_bias, x, &to_residual, scratch, device);
}

static enum status mlp_half(const struct layer_tensors *weights, const struct layer_stash *stash,
                            float *y, const struct model_shape *shape,
                            const struct layer_scratch *scratch, struct device *device)
{
    const struct kernel_ops *kernels = device_kernels(device);
    struct stream *stream = device_stream(device);
    size_t N = shape->B * shape->T;
    size_t C = shape->C;
    struct linear_shape to_inner = {.N = N, .K = C, .M = shape->inner};
    struct linear_shape to_residual = {.N = N, .K = shape->inner, .M = C};

    TRY(kernels->layernorm_forward(stash->norm2, stash->mean2, stash->rstd2, stash->mid,
                                   weights->ln_2_weight, weights->ln_2_bias, N, C, shape->eps,
                                   stream));
    TRY(linear_forward(stash->inner, stash->norm2, weights->c_fc_weight, &to_inner, device));
    TRY(kernels->bias_gelu_forward(stash->gelu, stash->inner, weights->c_fc_bias, N, shape->inner,
                                   stream));
    return project_to_residual(y, stash->gelu, weights->m_proj_weight, weights->m_proj_bias,
                               stash->mid, &to_residual, scratch, device);
}

enum status layer_forward(const struct layer_tensors *weights, const struct layer_stash *stash,
                          const float *x, float *y, const struct model_shape *shape,
                          const struct layer_scratch *scratch, struct device *device)
{
    TRY(attention_half(weights, stash, x, shape, scratch, device));
    return mlp_half(weights, stash, y, shape, scratch, device);
}

static enum status mlp_half_backward(const struct layer_tensors *weights,
                                     const struct layer_tensors *sums,
                                     const struct layer_stash *stash,
                                     const struct layer_gradients *kept, const float *dy,
                                     const struct model_shape *shape,
                                     const struct layer_scratch *scratch, struct device *device)
{
    const struct kernel_ops *kernels = device_kernels(device);
    struct stream *stream = device_stream(device);
    size_t N = shape->B * shape->T;
    size_t C = shape->C;
    struct linear_shape to_inner = {.N = N, .K = C, .M = shape->inner};
    struct linear_shape to_residual = {.N = N, .K = shape->inner, .M = C};

    TRY(kernels->bias_backward(sums->m_proj_bias, dy, N, C, stream));
    TRY(linear_backward_input(kept->inner, dy, weights->m_proj_weight, &to_residual, device));
    TRY(kernels->bias_gelu_backward(kept->inner, sums->c_fc_bias, kept->inner, stash->inner, N,
                                    shape->inner, stream));
    TRY(gradient_of_copied(kept->inner, weights->c_fc_weight, &to_inner, scratch, device));
    return kernels->layernorm_backward(kept->mid, sums->ln_2_weight, sums->ln_2_bias,
                                       scratch->hidden, dy, stash->mid, weights->ln_2_weight,
                                       stash->mean2, stash->rstd2, N, C, scratch->norm, stream);
}

static enum status
attention_half_backward(const struct layer_tensors *weights, const struct layer_tensors *sums,
                        const struct layer_stash *stash, const struct layer_gradients *kept,
                        const float *x, float *dx, const struct model_shape *shape,
                        const struct layer_scratch *scratch, struct device *device)
{
    const struct kernel_ops *kernels = device_kernels(device);
    struct stream *stream = device_stream(device);
    struct attention_shape attention = attention_shape_of(shape);
    size_t N = shape->B * shape->T;
    size_t C = shape->C;
    size_t A = shape->width;
    struct linear_shape to_qkv = {.N = N, .K = C, .M = 3 * A};
    struct linear_shape to_residual = {.N = N, .K = A, .M = C};

    TRY(kernels->bias_backward(sums->c_proj_bias, kept->mid, N, C, stream));
    TRY(linear_backward_input(scratch->hidden, kept->mid, weights->c_proj_weight, &to_residual,
                              device));
    TRY(kernels->attention_backward(kept->qkv, scratch->hidden, stash->attention, stash->qkv,
                                    stash->lse, &attention, scratch->attention, stream));
    TRY(kernels->bias_backward(sums->c_attn_bias, kept->qkv, N, 3 * A, stream));
    TRY(gradient_of_copied(kept->qkv, weights->c_attn_weight, &to_qkv, scratch, device));
    return kernels->layernorm_backward(dx, sums->ln_1_weight, sums->ln_1_bias, scratch->hidden,
                                       kept->mid, x, weights->ln_1_weight, stash->mean1,
                                       stash->rstd1, N, C, scratch->norm, stream);
}

enum status layer_backward_input(const struct layer_tensors *weights,
                                 const struct layer_tensors *sums, const struct layer_stash *stash,
                                 const struct layer_gradients *kept, const float *x,
                                 const float *dy, float *dx, const struct model_shape *shape,
                                 const struct layer_scratch *scratch, struct device *device)
{
    TRY(mlp_half_backward(weights, sums, stash, kept, dy, shape, scratch, device));
    return attention_half_backward(weights, sums, stash, kept, x, dx, shape, scratch, device);
}

enum status layer_backward_weight(const struct layer_tensors *sums, const struct layer_stash *stash,
                                  const struct layer_gradients *kept, const float *dy,
                                  const struct model_shape *shape, struct device *device)
{
    size_t N = shape->B * shape->T;
    size_t C = shape->C;
    size_t A = shape->width;
    struct linear_shape mlp_out = {.N = N, .K = shape->inner, .M = C};
    struct linear_shape mlp_in = {.N = N, .K = C, .M = shape->inner};
    struct linear_shape attention_out = {.N = N, .K = A, .M = C};
    struct linear_shape attention_in = {.N = N, .K = C, .M = 3 * A};

    TRY(linear_backward_weight(sums->m_proj_weight, stash->gelu, dy, &mlp_out, device));
    TRY(linear_backward_weight(sums->c_fc_weight, stash->norm2, kept->inner, &mlp_in, device));
    TRY(linear_backward_weight(sums->c_proj_weight, stash->attention, kept->mid, &attention_out,
                               device));
    return linear_backward_weight(sums->c_attn_weight, stash->norm1, kept->qkv, &attention_in,
                                  device);
}

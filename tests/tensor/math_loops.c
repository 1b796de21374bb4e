#include "math_loops.h"

#include "tensor/kernels/math_cpu.h"
#include "tensor/kernels/variant.h"

static void exp_loop(float *restrict out, const float *restrict in, size_t elems)
{
    for (size_t i = 0; i < elems; i++) {
        out[i] = math_exp(in[i]);
    }
}

static void exp_flushed_loop(float *restrict out, const float *restrict in, size_t elems)
{
    for (size_t i = 0; i < elems; i++) {
        out[i] = math_exp_flushed(in[i]);
    }
}

static void log_loop(float *restrict out, const float *restrict in, size_t elems)
{
    for (size_t i = 0; i < elems; i++) {
        out[i] = math_log(in[i]);
    }
}

static void tanh_loop(float *restrict out, const float *restrict in, size_t elems)
{
    for (size_t i = 0; i < elems; i++) {
        out[i] = math_tanh(in[i]);
    }
}

const struct math_loops KERNEL(math_loops) = {
    .exp = exp_loop,
    .exp_flushed = exp_flushed_loop,
    .log = log_loop,
    .tanh = tanh_loop,
};

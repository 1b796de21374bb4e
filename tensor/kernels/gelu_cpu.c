#include "tensor/kernels/gelu.h"

#include "tensor/kernels/math_cpu.h"
#include "tensor/stream.h"

/*
 * Work goes in pieces of this many elements, each computed from local arrays: the compiler sees
 * that they overlap nothing, and a short last piece runs through the same code as the others.
 */
enum {
    PIECE = 64
};

struct forward_call {
    float *out;
    float *pre;
    const float *bias;
    size_t rows;
    size_t F;
};

struct backward_call {
    float *din;
    float *dbias;
    const float *dout;
    const float *pre;
    size_t rows;
    size_t F;
};

/* exp(-2u): sigmoid(2u) = 1 / (1 + exp(-2u)). */
static inline float sigmoid_exponential(float x)
{
    const float twice_root = -2.0F * 0.79788456F;

    return math_exp(twice_root * (x + 0.044715F * (x * x * x)));
}

static void gelu_piece(float *restrict out, const float *restrict pre)
{
    for (size_t i = 0; i < PIECE; i++) {
        out[i] = pre[i] / (1.0F + sigmoid_exponential(pre[i]));
    }
}

/* gelu'(x) = s + x · 2u' · s (1 - s), where s = sigmoid(2u), 1 - s = s · exp(-2u), and both the
 * exponential's overflow and its infinity stand for 1 - s = 1. The small factors come first, so that
 * the slope of a far argument does not overflow. */
static void gelu_backward_piece(float *restrict grad, const float *restrict pre)
{
    for (size_t i = 0; i < PIECE; i++) {
        float x = pre[i];
        float e = sigmoid_exponential(x);
        float s = 1.0F / (1.0F + e);
        float rest = math_select(e > 1e30F, 1.0F, s * e);
        float slope = (2.0F * 0.79788456F) * (1.0F + (3.0F * 0.044715F) * (x * x));

        grad[i] *= s + x * (slope * (s * rest));
    }
}

/* Inlined with `elems` a constant, PIECE, for all pieces of a row but the last. */
__attribute__((always_inline)) static inline void forward_piece(float *out, float *pre,
                                                                const float *bias, size_t elems)
{
    float in[PIECE] = {0};
    float result[PIECE];

    for (size_t i = 0; i < elems; i++) {
        in[i] = pre[i] + bias[i];
    }
    gelu_piece(result, in);
    memcpy(pre, in, elems * sizeof(*in));
    memcpy(out, result, elems * sizeof(*result));
}

__attribute__((always_inline)) static inline void
backward_piece(float *din, float *dbias, const float *dout, const float *pre, size_t elems)
{
    float in[PIECE] = {0};
    float grad[PIECE] = {0};

    memcpy(in, pre, elems * sizeof(*in));
    memcpy(grad, dout, elems * sizeof(*grad));
    gelu_backward_piece(grad, in);
    memcpy(din, grad, elems * sizeof(*grad));
    for (size_t i = 0; i < elems; i++) {
        dbias[i] += grad[i];
    }
}

static void forward_part(void *context, int part, int parts)
{
    const struct forward_call *call = context;
    size_t begin;
    size_t end;

    stream_share(call->rows, 1, part, parts, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        float *pre = call->pre + row * call->F;
        float *out = call->out + row * call->F;
        size_t f = 0;

        for (; f + PIECE <= call->F; f += PIECE) {
            forward_piece(out + f, pre + f, call->bias + f, PIECE);
        }
        if (f < call->F) {
            forward_piece(out + f, pre + f, call->bias + f, call->F - f);
        }
    }
}

static void backward_part(void *context, int part, int parts)
{
    const struct backward_call *call = context;
    size_t begin;
    size_t end;

    stream_share(call->F, PIECE, part, parts, &begin, &end);
    for (size_t row = 0; row < call->rows; row++) {
        const float *dout = call->dout + row * call->F;
        const float *pre = call->pre + row * call->F;
        float *din = call->din + row * call->F;
        size_t f = begin;

        for (; f + PIECE <= end; f += PIECE) {
            backward_piece(din + f, call->dbias + f, dout + f, pre + f, PIECE);
        }
        if (f < end) {
            backward_piece(din + f, call->dbias + f, dout + f, pre + f, end - f);
        }
    }
}

enum status KERNEL(bias_gelu_forward)(float *out, float *pre, const float *bias, size_t rows,
                                      size_t F, struct stream *stream)
{
    struct forward_call call = {
        .out = out,
        .pre = pre,
        .bias = bias,
        .rows = rows,
        .F = F,
    };

    stream_run(stream, forward_part, &call);
    return STATUS_OK;
}

enum status KERNEL(bias_gelu_backward)(float *din, float *dbias, const float *dout,
                                       const float *pre, size_t rows, size_t F,
                                       struct stream *stream)
{
    struct backward_call call = {
        .din = din,
        .dbias = dbias,
        .dout = dout,
        .pre = pre,
        .rows = rows,
        .F = F,
    };

    stream_run(stream, backward_part, &call);
    return STATUS_OK;
}

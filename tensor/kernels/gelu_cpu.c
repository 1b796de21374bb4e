#include "tensor/kernels/gelu.h"

#include <stdbool.h>

#include "tensor/kernels/math_cpu.h"
#include "tensor/kernels/typed_cpu.h"
#include "tensor/stream.h"

/*
 * Work goes in pieces of this many elements, each computed from local arrays: the compiler sees
 * that they overlap nothing, and a short last piece runs through the same code as the others.
 */
enum {
    PIECE = 64
};

struct forward_call {
    void *out;
    void *pre;
    const void *bias;
    size_t rows;
    size_t F;
    enum dtype type;
};

struct elementwise_call {
    void *out;
    const void *pre;
    size_t elems;
    enum dtype type;
};

struct backward_call {
    void *din;
    float *dbias;
    const void *dout;
    const void *pre;
    size_t rows;
    size_t F;
    enum dtype type;
};

/* exp(-2u): sigmoid(2u) = 1 / (1 + exp(-2u)). */
static inline float sigmoid_exponential(float x)
{
    const float twice_root = -2.0F * 0.79788456F;

    return math_exp(twice_root * (x + 0.044715F * (x * x * x)));
}

/* Not inlined, so that all who call it get the same bits. */
__attribute__((noinline)) static void gelu_piece(float *restrict out, const float *restrict pre)
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

/* Whole pieces are taken in place in fp32; all others go through arrays of a piece. */
static inline bool in_place(size_t elems, enum dtype type)
{
    return type == DTYPE_FP32 && elems == PIECE;
}

static inline void add_piece(float *restrict pre, const float *restrict bias)
{
    for (size_t i = 0; i < PIECE; i++) {
        pre[i] += bias[i];
    }
}

/*
 * Pieces are inlined with `type` a constant, and with `elems` one, PIECE, for all of a row but the
 * last. `at` counts from the tensor's begin, `f` from the row's.
 */
__attribute__((always_inline)) static inline void
elementwise_piece(void *out, const void *pre, size_t at, size_t elems, enum dtype type)
{
    float in[PIECE] = {0};
    float result[PIECE];

    if (in_place(elems, type)) {
        gelu_piece((float *)out + at, (const float *)pre + at);
        return;
    }
    typed_load(in, pre, type, at, elems);
    gelu_piece(result, in);
    typed_store(out, type, at, result, elems);
}

/* pre as it is kept is what gelu is computed of. */
__attribute__((always_inline)) static inline void
forward_piece(const struct forward_call *call, size_t at, size_t f, size_t elems, enum dtype type)
{
    float in[PIECE] = {0};
    float bias[PIECE] = {0};

    if (in_place(elems, type)) {
        add_piece((float *)call->pre + at, (const float *)call->bias + f);
    } else {
        typed_load(in, call->pre, type, at, elems);
        typed_load(bias, call->bias, type, f, elems);
        add_piece(in, bias);
        typed_store(call->pre, type, at, in, elems);
    }
    elementwise_piece(call->out, call->pre, at, elems, type);
}

__attribute__((always_inline)) static inline void
backward_piece(const struct backward_call *call, size_t at, size_t f, size_t elems, enum dtype type)
{
    float in[PIECE] = {0};
    float grad[PIECE] = {0};
    float *dbias = call->dbias + f;

    typed_load(in, call->pre, type, at, elems);
    typed_load(grad, call->dout, type, at, elems);
    gelu_backward_piece(grad, in);
    typed_store(call->din, type, at, grad, elems);
    if (type != DTYPE_FP32) {
        typed_load(grad, call->din, type, at, elems);
    }
    for (size_t i = 0; i < elems; i++) {
        dbias[i] += grad[i];
    }
}

__attribute__((always_inline)) static inline void
forward_rows(const struct forward_call *call, size_t begin, size_t end, enum dtype type)
{
    for (size_t row = begin; row < end; row++) {
        const size_t first = row * call->F;
        size_t f = 0;

        for (; f + PIECE <= call->F; f += PIECE) {
            forward_piece(call, first + f, f, PIECE, type);
        }
        if (f < call->F) {
            forward_piece(call, first + f, f, call->F - f, type);
        }
    }
}

__attribute__((always_inline)) static inline void
elementwise_range(const struct elementwise_call *call, size_t begin, size_t end, enum dtype type)
{
    for (; begin + PIECE <= end; begin += PIECE) {
        elementwise_piece(call->out, call->pre, begin, PIECE, type);
    }
    if (begin < end) {
        elementwise_piece(call->out, call->pre, begin, end - begin, type);
    }
}

/* Columns [begin, end) of all rows. */
__attribute__((always_inline)) static inline void
backward_columns(const struct backward_call *call, size_t begin, size_t end, enum dtype type)
{
    for (size_t row = 0; row < call->rows; row++) {
        const size_t first = row * call->F;
        size_t f = begin;

        for (; f + PIECE <= end; f += PIECE) {
            backward_piece(call, first + f, f, PIECE, type);
        }
        if (f < end) {
            backward_piece(call, first + f, f, end - f, type);
        }
    }
}

static void forward_part(void *context, int part, int parts)
{
    const struct forward_call *call = context;
    size_t begin;
    size_t end;

    stream_share(call->rows, 1, part, parts, &begin, &end);
    if (call->type == DTYPE_FP32) {
        forward_rows(call, begin, end, DTYPE_FP32);
    } else if (call->type == DTYPE_BF16) {
        forward_rows(call, begin, end, DTYPE_BF16);
    } else {
        forward_rows(call, begin, end, DTYPE_FP16);
    }
}

static void elementwise_part(void *context, int part, int parts)
{
    const struct elementwise_call *call = context;
    size_t begin;
    size_t end;

    stream_share(call->elems, PIECE, part, parts, &begin, &end);
    if (call->type == DTYPE_FP32) {
        elementwise_range(call, begin, end, DTYPE_FP32);
    } else if (call->type == DTYPE_BF16) {
        elementwise_range(call, begin, end, DTYPE_BF16);
    } else {
        elementwise_range(call, begin, end, DTYPE_FP16);
    }
}

static void backward_part(void *context, int part, int parts)
{
    const struct backward_call *call = context;
    size_t begin;
    size_t end;

    stream_share(call->F, PIECE, part, parts, &begin, &end);
    if (call->type == DTYPE_FP32) {
        backward_columns(call, begin, end, DTYPE_FP32);
    } else if (call->type == DTYPE_BF16) {
        backward_columns(call, begin, end, DTYPE_BF16);
    } else {
        backward_columns(call, begin, end, DTYPE_FP16);
    }
}

enum status KERNEL(bias_gelu_forward)(void *out, void *pre, const void *bias, size_t rows, size_t F,
                                      enum dtype type, struct stream *stream)
{
    struct forward_call call = {
        .out = out, .pre = pre, .bias = bias, .rows = rows, .F = F, .type = type};

    stream_run(stream, forward_part, &call);
    return STATUS_OK;
}

enum status KERNEL(gelu_forward)(void *out, const void *pre, size_t elems, enum dtype type,
                                 struct stream *stream)
{
    struct elementwise_call call = {.out = out, .pre = pre, .elems = elems, .type = type};

    stream_run(stream, elementwise_part, &call);
    return STATUS_OK;
}

enum status KERNEL(bias_gelu_backward)(void *din, float *dbias, const void *dout, const void *pre,
                                       size_t rows, size_t F, enum dtype type,
                                       struct stream *stream)
{
    struct backward_call call = {
        .din = din, .dbias = dbias, .dout = dout, .pre = pre, .rows = rows, .F = F, .type = type};

    stream_run(stream, backward_part, &call);
    return STATUS_OK;
}

#include "tensor/kernels/residual.h"

#include "tensor/stream.h"

struct residual {
    float *out;
    const float *in;
    const float *bias;
    const float *residual;
    size_t rows;
    size_t C;
};

static void forward_part(void *context, int part, int parts)
{
    const struct residual *r = context;
    const float *bias = r->bias;
    size_t row = 0;
    size_t end = 0;

    stream_share(r->rows, 1, part, parts, &row, &end);
    for (; row < end; row++) {
        float *out = r->out + row * r->C;
        const float *in = r->in + row * r->C;
        const float *residual = r->residual + row * r->C;
        KERNEL_INDEPENDENT
        for (size_t c = 0; c < r->C; c++) {
            out[c] = residual[c] + (in[c] + bias[c]);
        }
    }
}

enum status KERNEL(bias_residual_forward)(float *out, const float *in, const float *bias,
                                          const float *residual, size_t rows, size_t C,
                                          struct stream *stream)
{
    struct residual work = {
        .out = out, .in = in, .bias = bias, .residual = residual, .rows = rows, .C = C};

    stream_run(stream, forward_part, &work);
    return STATUS_OK;
}

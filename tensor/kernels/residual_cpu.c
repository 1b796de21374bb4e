#include "tensor/kernels/residual.h"

#include "tensor/kernels/typed_cpu.h"
#include "tensor/stream.h"

struct residual {
    void *out;
    const float *in;
    const void *bias;
    const void *residual;
    enum dtype type;
    size_t rows;
    size_t C;
};

/* Rows [row, end), columns [begin, begin + columns), which are a block. */
static void forward_block(const struct residual *r, size_t row, size_t end, size_t begin,
                          size_t columns)
{
    float bias_buffer[TYPED_BLOCK];
    float residual_buffer[TYPED_BLOCK];
    float out_buffer[TYPED_BLOCK];
    const float *bias = typed_read(r->bias, r->type, begin, columns, bias_buffer);

    for (; row < end; row++) {
        const size_t at = row * r->C + begin;
        const float *in = r->in + at;
        const float *residual = typed_read(r->residual, r->type, at, columns, residual_buffer);
        float *out = typed_place(r->out, r->type, at, out_buffer);
        KERNEL_INDEPENDENT
        for (size_t c = 0; c < columns; c++) {
            out[c] = residual[c] + (in[c] + bias[c]);
        }
        typed_keep(r->out, r->type, at, columns, out_buffer);
    }
}

static void forward_part(void *context, int part, int parts)
{
    const struct residual *r = context;
    const size_t step = typed_step(r->type, r->C);
    size_t row = 0;
    size_t end = 0;

    stream_share(r->rows, 1, part, parts, &row, &end);
    for (size_t c = 0; c < r->C; c += step) {
        forward_block(r, row, end, c, typed_elems(c, r->C, step));
    }
}

enum status KERNEL(bias_residual_forward)(void *out, const float *in, const void *bias,
                                          const void *residual, size_t rows, size_t C,
                                          enum dtype type, struct stream *stream)
{
    struct residual work = {.out = out,
                            .in = in,
                            .bias = bias,
                            .residual = residual,
                            .type = type,
                            .rows = rows,
                            .C = C};

    stream_run(stream, forward_part, &work);
    return STATUS_OK;
}

#include "tensor/kernels/embedding.h"

#include "tensor/stream.h"

#define COLUMN_GRAIN 16

struct embedding {
    float *out;        /* (B,T,C) */
    const float *dout; /* (B,T,C) */
    const int32_t *tokens;
    const float *wte;
    const float *wpe;
    float *dwte;
    float *dwpe;
    size_t rows; /* B·T */
    size_t T;
    size_t C;
};

static void add_rows(float *restrict out, const float *restrict a, const float *restrict b,
                     size_t C)
{
    for (size_t c = 0; c < C; c++) {
        out[c] = a[c] + b[c];
    }
}

static void accumulate_row(float *restrict sum, const float *restrict in, size_t C)
{
    for (size_t c = 0; c < C; c++) {
        sum[c] += in[c];
    }
}

static void forward_part(void *context, int part, int parts)
{
    const struct embedding *e = context;
    size_t row = 0;
    size_t end = 0;

    stream_share(e->rows, 1, part, parts, &row, &end);
    for (; row < end; row++) {
        add_rows(e->out + row * e->C, e->wte + (size_t)e->tokens[row] * e->C,
                 e->wpe + row % e->T * e->C, e->C);
    }
}

static void backward_part(void *context, int part, int parts)
{
    const struct embedding *e = context;
    size_t begin = 0;
    size_t end = 0;

    stream_share(e->C, COLUMN_GRAIN, part, parts, &begin, &end);
    for (size_t row = 0; row < e->rows; row++) {
        const float *dout = e->dout + row * e->C + begin;
        accumulate_row(e->dwte + (size_t)e->tokens[row] * e->C + begin, dout, end - begin);
        accumulate_row(e->dwpe + row % e->T * e->C + begin, dout, end - begin);
    }
}

enum status KERNEL(embedding_forward)(float *out, const int32_t *tokens, const float *wte,
                                      const float *wpe, size_t B, size_t T, size_t C,
                                      struct stream *stream)
{
    struct embedding embedding = {
        .out = out, .tokens = tokens, .wte = wte, .wpe = wpe, .rows = B * T, .T = T, .C = C};

    stream_run(stream, forward_part, &embedding);
    return STATUS_OK;
}

enum status KERNEL(embedding_backward)(float *dwte, float *dwpe, const float *dout,
                                       const int32_t *tokens, size_t B, size_t T, size_t C,
                                       size_t V, struct stream *stream)
{
    struct embedding embedding = {
        .dout = dout, .tokens = tokens, .dwte = dwte, .dwpe = dwpe, .rows = B * T, .T = T, .C = C};

    for (size_t row = 0; row < embedding.rows; row++) {
        if (tokens[row] < 0 || (size_t)tokens[row] >= V) {
            return status_fail(STATUS_ERR_INVALID,
                               "embedding gradient: token %d of row %zu, expected 0 to %zu",
                               (int)tokens[row], row, V - 1);
        }
    }
    stream_run(stream, backward_part, &embedding);
    return STATUS_OK;
}

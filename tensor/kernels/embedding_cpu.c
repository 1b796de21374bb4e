#include "tensor/kernels/embedding.h"

#include <string.h>

#include "tensor/kernels/typed_cpu.h"
#include "tensor/stream.h"

#define COLUMN_GRAIN 16

struct embedding {
    const struct embedding_shape *shape;
    enum dtype type;
    float *out;       /* (B,T,C) */
    const void *dout; /* (B,T,C) */
    const int32_t *tokens;
    const int32_t *types;
    const void *wte;
    const void *wpe;
    const void *wtt;
    float *dwte;
    float *dwpe;
    float *dwtt;
    size_t rows; /* B·T */
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

/* A token's row of the table here; vocab or more where another shard has it. */
static size_t word_row(const struct embedding *e, size_t row)
{
    return (size_t)e->tokens[row] - e->shape->first_token;
}

static void forward_row(const struct embedding *e, size_t row)
{
    const size_t C = e->shape->hidden;
    const size_t step = typed_step(e->type, C);
    size_t word = word_row(e, row);
    float *out = e->out + row * C;
    float word_buffer[TYPED_BLOCK];
    float buffer[TYPED_BLOCK];

    if (word >= e->shape->vocab) {
        memset(out, 0, C * sizeof(*out));
        return;
    }
    for (size_t c = 0; c < C; c += step) {
        const size_t elems = typed_elems(c, C, step);
        const size_t position = row % e->shape->positions;
        add_rows(out + c, typed_read(e->wte, e->type, word * C + c, elems, word_buffer),
                 typed_read(e->wpe, e->type, position * C + c, elems, buffer), elems);
        if (e->types != NULL) {
            const size_t at = (size_t)e->types[row] * C + c;
            accumulate_row(out + c, typed_read(e->wtt, e->type, at, elems, buffer), elems);
        }
    }
}

static void forward_part(void *context, int part, int parts)
{
    const struct embedding *e = context;
    size_t row = 0;
    size_t end = 0;

    stream_share(e->rows, 1, part, parts, &row, &end);
    for (; row < end; row++) {
        forward_row(e, row);
    }
}

/* The columns [begin, begin + elems) of a row's gradient, which are a block. */
static void backward_block(const struct embedding *e, size_t row, size_t begin, size_t elems)
{
    const size_t C = e->shape->hidden;
    const size_t word = word_row(e, row);
    float buffer[TYPED_BLOCK];
    const float *dout = typed_read(e->dout, e->type, row * C + begin, elems, buffer);

    if (word < e->shape->vocab) {
        accumulate_row(e->dwte + word * C + begin, dout, elems);
    }
    accumulate_row(e->dwpe + row % e->shape->positions * C + begin, dout, elems);
    if (e->types != NULL) {
        accumulate_row(e->dwtt + (size_t)e->types[row] * C + begin, dout, elems);
    }
}

static void backward_part(void *context, int part, int parts)
{
    const struct embedding *e = context;
    size_t begin = 0;
    size_t end = 0;

    stream_share(e->shape->hidden, COLUMN_GRAIN, part, parts, &begin, &end);
    for (size_t row = 0; row < e->rows; row++) {
        const size_t step = typed_step(e->type, end - begin);
        for (size_t c = begin; c < end; c += step) {
            backward_block(e, row, c, typed_elems(c, end, step));
        }
    }
}

static enum status check_ids(const int32_t *ids, size_t rows, size_t count, const char *what)
{
    for (size_t row = 0; row < rows; row++) {
        if (ids[row] < 0 || (size_t)ids[row] >= count) {
            return status_fail(STATUS_ERR_INVALID,
                               "embedding gradient: %s %d of row %zu, expected [0, %zu)", what,
                               (int)ids[row], row, count);
        }
    }
    return STATUS_OK;
}

enum status KERNEL(embedding_forward)(float *out, const int32_t *tokens, const int32_t *types,
                                      const void *wte, const void *wpe, const void *wtt,
                                      const struct embedding_shape *shape, enum dtype type,
                                      struct stream *stream)
{
    struct embedding embedding = {
        .shape = shape,
        .type = type,
        .out = out,
        .tokens = tokens,
        .types = types,
        .wte = wte,
        .wpe = wpe,
        .wtt = wtt,
        .rows = shape->batch * shape->positions,
    };

    stream_run(stream, forward_part, &embedding);
    return STATUS_OK;
}

enum status KERNEL(embedding_backward)(float *dwte, float *dwpe, float *dwtt, const void *dout,
                                       const int32_t *tokens, const int32_t *types,
                                       const struct embedding_shape *shape, enum dtype type,
                                       struct stream *stream)
{
    struct embedding embedding = {
        .shape = shape,
        .type = type,
        .dout = dout,
        .tokens = tokens,
        .types = types,
        .dwte = dwte,
        .dwpe = dwpe,
        .dwtt = dwtt,
        .rows = shape->batch * shape->positions,
    };

    TRY(check_ids(tokens, embedding.rows, shape->whole_vocab, "token"));
    if (types != NULL) {
        TRY(check_ids(types, embedding.rows, shape->types, "token type"));
    }
    stream_run(stream, backward_part, &embedding);
    return STATUS_OK;
}

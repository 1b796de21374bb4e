#include "tensor/kernels/dropout.h"

#include "tensor/kernels/philox_cpu.h"
#include "tensor/kernels/typed_cpu.h"
#include "tensor/stream.h"

struct drop {
    const struct dropout *dropout;
    float scale;
    void *out;
    const void *in;
    enum dtype in_type;
    const void *bias;     /* NULL: out = k · in */
    const void *residual; /* where there is a bias */
    size_t rows;
    size_t C;
    enum dtype type;
};

/* The factors of the rows that are gone through, with the mask of the sample that is on. */
struct factors {
    struct philox_keys keys;
    const struct drop *drop;
    uint64_t sample;
};

static void factors_begin(struct factors *factors, uint64_t sample)
{
    const struct dropout *dropout = factors->drop->dropout;

    factors->sample = sample;
    philox_keys_init(&factors->keys,
                     rng_mask_of(dropout->seed, dropout->site, dropout->layer, sample));
}

/* k (elems) of the columns from `column` of a row; rows ascend. */
static void factors_make(struct factors *factors, float *restrict k, size_t row, size_t column,
                         size_t elems)
{
    const struct dropout *dropout = factors->drop->dropout;
    const size_t r = dropout->first_row + row;
    const uint64_t sample = dropout->first_sample + r / dropout->positions;
    const uint64_t position = dropout->first_position + r % dropout->positions;
    const uint16_t threshold = (uint16_t)dropout->threshold;
    const float scale = factors->drop->scale;
    uint16_t numbers[TYPED_BLOCK];

    if (sample != factors->sample) {
        factors_begin(factors, sample);
    }
    philox_numbers(numbers, &factors->keys, position * factors->drop->C + column, elems);
    for (size_t i = 0; i < elems; i++) {
        k[i] = numbers[i] >= threshold ? scale : 0.0F;
    }
}

static void scale_block(float *out, const float *in, const float *restrict k, size_t elems)
{
    KERNEL_INDEPENDENT
    for (size_t i = 0; i < elems; i++) {
        out[i] = k[i] * in[i];
    }
}

static void add_block(float *out, const float *in, const float *bias, const float *residual,
                      const float *restrict k, size_t elems)
{
    KERNEL_INDEPENDENT
    for (size_t i = 0; i < elems; i++) {
        out[i] = residual[i] + k[i] * (in[i] + bias[i]);
    }
}

/* Rows [row, end), columns [begin, begin + columns), which are a block. */
static void drop_block(const struct drop *drop, size_t row, size_t end, size_t begin,
                       size_t columns)
{
    float bias_buffer[TYPED_BLOCK];
    float in_buffer[TYPED_BLOCK];
    float buffer[TYPED_BLOCK];
    float k[TYPED_BLOCK];
    const float *bias = NULL;
    struct factors factors = {.drop = drop};

    if (drop->bias != NULL) {
        bias = typed_read(drop->bias, drop->type, begin, columns, bias_buffer);
    }
    factors_begin(&factors, drop->dropout->first_sample);
    for (; row < end; row++) {
        const size_t at = row * drop->C + begin;
        const float *in = typed_read(drop->in, drop->in_type, at, columns, in_buffer);
        float *out = typed_place(drop->out, drop->type, at, buffer);
        factors_make(&factors, k, row, begin, columns);
        if (bias == NULL) {
            scale_block(out, in, k, columns);
        } else {
            /* The buffer of the residual is that of the result: an element is read first. */
            add_block(out, in, bias, typed_read(drop->residual, drop->type, at, columns, buffer), k,
                      columns);
        }
        typed_keep(drop->out, drop->type, at, columns, buffer);
    }
}

static void drop_part(void *context, int part, int parts)
{
    const struct drop *drop = context;
    size_t row = 0;
    size_t end = 0;

    stream_share(drop->rows, 1, part, parts, &row, &end);
    if (row == end) {
        return;
    }
    for (size_t c = 0; c < drop->C; c += TYPED_BLOCK) {
        drop_block(drop, row, end, c, typed_elems(c, drop->C, TYPED_BLOCK));
    }
}

enum status KERNEL(dropout_forward)(void *out, const float *in, size_t rows, size_t C,
                                    const struct dropout *dropout, enum dtype type,
                                    struct stream *stream)
{
    struct drop drop = {.dropout = dropout,
                        .scale = rng_mask_scale(dropout->threshold),
                        .out = out,
                        .in = in,
                        .in_type = DTYPE_FP32,
                        .rows = rows,
                        .C = C,
                        .type = type};

    stream_run(stream, drop_part, &drop);
    return STATUS_OK;
}

enum status KERNEL(dropout_backward)(void *din, const void *dout, size_t rows, size_t C,
                                     const struct dropout *dropout, enum dtype type,
                                     struct stream *stream)
{
    struct drop drop = {.dropout = dropout,
                        .scale = rng_mask_scale(dropout->threshold),
                        .out = din,
                        .in = dout,
                        .in_type = type,
                        .rows = rows,
                        .C = C,
                        .type = type};

    stream_run(stream, drop_part, &drop);
    return STATUS_OK;
}

enum status KERNEL(bias_residual_dropout_forward)(void *out, const float *in, const void *bias,
                                                  const void *residual, size_t rows, size_t C,
                                                  const struct dropout *dropout, enum dtype type,
                                                  struct stream *stream)
{
    struct drop drop = {.dropout = dropout,
                        .scale = rng_mask_scale(dropout->threshold),
                        .out = out,
                        .in = in,
                        .in_type = DTYPE_FP32,
                        .bias = bias,
                        .residual = residual,
                        .rows = rows,
                        .C = C,
                        .type = type};

    stream_run(stream, drop_part, &drop);
    return STATUS_OK;
}

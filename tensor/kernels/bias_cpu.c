#include "tensor/kernels/bias.h"

#include "tensor/kernels/typed_cpu.h"
#include "tensor/stream.h"

/* Columns summed side by side: their sums fit the first cache beside the rows that pass by. */
#define TILE_COLUMNS 1024
#define COLUMN_GRAIN 16

struct bias {
    void *inout;
    const void *bias;
    float *dbias;
    const void *dout;
    enum dtype type;
    size_t rows;
    size_t K;
};

static void add_bias(float *restrict inout, const float *restrict bias, size_t columns)
{
    for (size_t k = 0; k < columns; k++) {
        inout[k] += bias[k];
    }
}

/* Rows [row, end) of a 16-bit format, columns [begin, begin + columns), which are a block. */
static void forward_block(const struct bias *b, size_t row, size_t end, size_t begin,
                          size_t columns)
{
    float bias[TYPED_BLOCK];
    float buffer[TYPED_BLOCK];

    typed_load_block(bias, b->bias, b->type, begin, columns);
    for (; row < end; row++) {
        const size_t at = row * b->K + begin;
        typed_load_block(buffer, b->inout, b->type, at, columns);
        add_bias(buffer, bias, columns);
        typed_store_block(b->inout, b->type, at, buffer, columns);
    }
}

static void forward_part(void *context, int part, int parts)
{
    const struct bias *b = context;
    size_t row = 0;
    size_t end = 0;

    stream_share(b->rows, 1, part, parts, &row, &end);
    if (b->type == DTYPE_FP32) {
        for (; row < end; row++) {
            add_bias((float *)b->inout + row * b->K, b->bias, b->K);
        }
        return;
    }
    for (size_t k = 0; k < b->K; k += TYPED_BLOCK) {
        forward_block(b, row, end, k, typed_elems(k, b->K, TYPED_BLOCK));
    }
}

/* sum[k] += the rows [0, rows) of column k, which lie `stride` apart, in ascending order; four
 * rows at a time, so that the sums are loaded and stored a quarter as often. */
static void add_rows(float *restrict sum, const float *restrict in, size_t rows, size_t columns,
                     size_t stride)
{
    size_t row = 0;

    for (; row + 4 <= rows; row += 4) {
        const float *restrict first = in + row * stride;
        for (size_t k = 0; k < columns; k++) {
            sum[k] = sum[k] + first[k] + first[stride + k] + first[2 * stride + k] +
                     first[3 * stride + k];
        }
    }
    for (; row < rows; row++) {
        for (size_t k = 0; k < columns; k++) {
            sum[k] += in[row * stride + k];
        }
    }
}

/* The rows [row, row + rows), columns [begin, begin + columns) of dout, added likewise. */
static void add_block(float *sum, const struct bias *b, size_t row, size_t rows, size_t begin,
                      size_t columns)
{
    float wide[4 * TILE_COLUMNS];

    if (b->type == DTYPE_FP32) {
        add_rows(sum, (const float *)b->dout + row * b->K + begin, rows, columns, b->K);
        return;
    }
    for (size_t done = 0; done < rows; done += 4) {
        const size_t together = typed_elems(done, rows, 4);
        for (size_t i = 0; i < together; i++) {
            typed_load_block(wide + i * TILE_COLUMNS, b->dout, b->type,
                             (row + done + i) * b->K + begin, columns);
        }
        add_rows(sum, wide, together, columns, TILE_COLUMNS);
    }
}

static void sum_tile(const struct bias *b, size_t begin, size_t columns)
{
    float total[TILE_COLUMNS] = {0.0F};

    for (size_t row = 0; row < b->rows; row += BIAS_BLOCK_ROWS) {
        const size_t left = b->rows - row;
        float block[TILE_COLUMNS] = {0.0F};
        add_block(block, b, row, left < BIAS_BLOCK_ROWS ? left : BIAS_BLOCK_ROWS, begin, columns);
        for (size_t k = 0; k < columns; k++) {
            total[k] += block[k];
        }
    }
    for (size_t k = 0; k < columns; k++) {
        b->dbias[begin + k] += total[k];
    }
}

static void backward_part(void *context, int part, int parts)
{
    const struct bias *b = context;
    size_t begin = 0;
    size_t end = 0;

    stream_share(b->K, COLUMN_GRAIN, part, parts, &begin, &end);
    for (; begin < end; begin += TILE_COLUMNS) {
        const size_t left = end - begin;
        sum_tile(b, begin, left < TILE_COLUMNS ? left : TILE_COLUMNS);
    }
}

enum status KERNEL(bias_forward)(void *inout, const void *bias, size_t rows, size_t K,
                                 enum dtype type, struct stream *stream)
{
    struct bias work = {.inout = inout, .bias = bias, .type = type, .rows = rows, .K = K};

    stream_run(stream, forward_part, &work);
    return STATUS_OK;
}

enum status KERNEL(bias_backward)(float *dbias, const void *dout, size_t rows, size_t K,
                                  enum dtype type, struct stream *stream)
{
    struct bias work = {.dbias = dbias, .dout = dout, .type = type, .rows = rows, .K = K};

    stream_run(stream, backward_part, &work);
    return STATUS_OK;
}

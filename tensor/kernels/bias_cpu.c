#include "tensor/kernels/bias.h"

#include "tensor/stream.h"

/* Columns summed side by side: their sums fit the first cache beside the rows that pass by. */
#define TILE_COLUMNS 1024
#define COLUMN_GRAIN 16

struct bias {
    float *inout;
    const float *bias;
    float *dbias;
    const float *dout;
    size_t rows;
    size_t K;
};

static void forward_part(void *context, int part, int parts)
{
    const struct bias *b = context;
    size_t row = 0;
    size_t end = 0;

    stream_share(b->rows, 1, part, parts, &row, &end);
    for (; row < end; row++) {
        float *restrict inout = b->inout + row * b->K;
        const float *restrict bias = b->bias;
        for (size_t k = 0; k < b->K; k++) {
            inout[k] += bias[k];
        }
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

static void sum_tile(const struct bias *b, size_t begin, size_t columns)
{
    float total[TILE_COLUMNS] = {0.0F};

    for (size_t row = 0; row < b->rows; row += BIAS_BLOCK_ROWS) {
        const size_t left = b->rows - row;
        float block[TILE_COLUMNS] = {0.0F};
        add_rows(block, b->dout + row * b->K + begin,
                 left < BIAS_BLOCK_ROWS ? left : BIAS_BLOCK_ROWS, columns, b->K);
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

enum status KERNEL(bias_forward)(float *inout, const float *bias, size_t rows, size_t K,
                                 struct stream *stream)
{
    struct bias work = {.inout = inout, .bias = bias, .rows = rows, .K = K};

    stream_run(stream, forward_part, &work);
    return STATUS_OK;
}

enum status KERNEL(bias_backward)(float *dbias, const float *dout, size_t rows, size_t K,
                                  struct stream *stream)
{
    struct bias work = {.dbias = dbias, .dout = dout, .rows = rows, .K = K};

    stream_run(stream, backward_part, &work);
    return STATUS_OK;
}

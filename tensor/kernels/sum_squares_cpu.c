#include "tensor/kernels/sum_squares.h"

#include "tensor/stream.h"

/* Partial sums of a block, kept apart so that the compiler can add them side by side. */
#define LANES 16

/* Blocks begin on multiples of this many elements. */
#define BLOCK_GRAIN ((size_t)64)

struct squares {
    const float *in;
    size_t elems;
    size_t block_elems;
    double sums[SUM_SQUARES_BLOCKS];
};

static double sum_block(const float *in, size_t elems)
{
    double lanes[LANES] = {0.0};
    size_t i = 0;

    for (; i + LANES <= elems; i += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            const double x = in[i + k];
            lanes[k] += x * x;
        }
    }
    for (size_t k = 0; i + k < elems; k++) {
        const double x = in[i + k];
        lanes[k] += x * x;
    }
    for (size_t half = LANES / 2; half > 0; half /= 2) {
        for (size_t k = 0; k < half; k++) {
            lanes[k] += lanes[k + half];
        }
    }
    return lanes[0];
}

static void sum_part(void *context, int part, int parts)
{
    struct squares *squares = context;
    size_t block = 0;
    size_t block_end = 0;

    stream_share(SUM_SQUARES_BLOCKS, 1, part, parts, &block, &block_end);
    for (; block < block_end; block++) {
        const size_t begin = block * squares->block_elems;
        if (begin >= squares->elems) {
            squares->sums[block] = 0.0;
            continue;
        }
        const size_t left = squares->elems - begin;
        squares->sums[block] = sum_block(squares->in + begin,
                                         left < squares->block_elems ? left : squares->block_elems);
    }
}

enum status KERNEL(sum_squares)(double *sum_out, const float *in, size_t elems,
                                struct stream *stream)
{
    const size_t fair = elems / SUM_SQUARES_BLOCKS + 1;
    struct squares squares = {.in = in,
                              .elems = elems,
                              .block_elems = (fair + BLOCK_GRAIN - 1) / BLOCK_GRAIN * BLOCK_GRAIN};
    double sum = 0.0;

    stream_run(stream, sum_part, &squares);
    for (size_t block = 0; block < SUM_SQUARES_BLOCKS; block++) {
        sum += squares.sums[block];
    }
    *sum_out = sum;
    return STATUS_OK;
}

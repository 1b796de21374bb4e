#include "tensor/kernels/dropout.h"

#include "tensor/cuda/pack.cuh"
#include "tensor/cuda/philox.cuh"
#include "tensor/rng.h"

static_assert(PACK == MASK_NUMBERS, "a thread uses all numbers of a counter");

template <typename OUT, typename IN> struct tensors {
    OUT *out;
    const IN *in;
    const OUT *bias; /* NULL: out = k · in */
    const OUT *residual;
    size_t rows;
    size_t C;
};

/* The elements of `row` at columns c to c + WIDTH - 1, with these factors. */
template <typename OUT, typename IN, int WIDTH>
static __device__ __forceinline__ void drop(const tensors<OUT, IN> &t, size_t row, size_t c,
                                            const float (&k)[WIDTH])
{
    size_t at = row * t.C + c;
    float x[WIDTH];

    pack_read(x, t.in + at);
    if (t.bias == NULL) {
        UNROLL
        for (int i = 0; i < WIDTH; i++) {
            x[i] = k[i] * x[i];
        }
    } else {
        float b[WIDTH];
        float before[WIDTH];

        pack_read(b, t.bias + c);
        pack_read(before, t.residual + at);
        UNROLL
        for (int i = 0; i < WIDTH; i++) {
            x[i] = fmaf(k[i], x[i] + b[i], before[i]);
        }
    }
    pack_write(t.out + at, x);
}

/* A warp takes a row, a thread the elements of a counter, which is a whole pack where rows are, because then
 * they begin on one. */
template <typename OUT, typename IN, int WIDTH>
__global__ void drop_rows(tensors<OUT, IN> t, struct dropout by, float scale)
{
    size_t row = pack_row();
    size_t r = by.first_row + row;

    if (row >= t.rows) {
        return;
    }
    uint64_t key = mask_key(by.seed, by.site, by.layer, by.first_sample + r / by.positions);
    uint64_t first = (by.first_position + r % by.positions) * t.C;
    uint64_t last = (first + t.C - 1) / MASK_NUMBERS;

    for (uint64_t counter = first / MASK_NUMBERS + threadIdx.x; counter <= last;
         counter += WARP_LANES) {
        mask_numbers numbers(key, counter);
        float k[MASK_NUMBERS];

        UNROLL
        for (unsigned i = 0; i < MASK_NUMBERS; i++) {
            k[i] = numbers.at(i) >= by.threshold ? scale : 0.0F;
        }
        size_t c = counter * MASK_NUMBERS - first; /* huge before the row */
        if constexpr (WIDTH == PACK) {
            drop(t, row, c, k);
        } else {
            UNROLL
            for (unsigned i = 0; i < MASK_NUMBERS; i++) {
                if (c + i < t.C) {
                    const float alone[1] = {k[i]};

                    drop(t, row, c + i, alone);
                }
            }
        }
    }
}

template <typename OUT, typename IN>
static enum status launch_drop(const tensors<OUT, IN> &t, const struct dropout *dropout,
                               struct stream *stream)
{
    const struct dropout by = *dropout;
    const float scale = rng_mask_scale(by.threshold);

    if (t.rows == 0 || t.C == 0) {
        return STATUS_OK;
    }
    BY_WIDTH(
        in_packs(t.C, t.out, t.in, t.bias, t.residual),
        LAUNCH((drop_rows<OUT, IN, WIDTH>), PACK_GRID(t.rows), PACK_BLOCK, stream, t, by, scale));
}

enum status KERNEL(dropout_forward)(void *out, const float *in, size_t rows, size_t C,
                                    const struct dropout *dropout, enum dtype type,
                                    struct stream *stream)
{
    BY_TYPE(type, return launch_drop(tensors<NUMBER, float>{(NUMBER *)out, in, NULL, NULL, rows, C},
                                     dropout, stream));
}

enum status KERNEL(dropout_backward)(void *din, const void *dout, size_t rows, size_t C,
                                     const struct dropout *dropout, enum dtype type,
                                     struct stream *stream)
{
    BY_TYPE(type, return launch_drop(tensors<NUMBER, NUMBER>{(NUMBER *)din, (const NUMBER *)dout,
                                                             NULL, NULL, rows, C},
                                     dropout, stream));
}

enum status KERNEL(bias_residual_dropout_forward)(void *out, const float *in, const void *bias,
                                                  const void *residual, size_t rows, size_t C,
                                                  const struct dropout *dropout, enum dtype type,
                                                  struct stream *stream)
{
    BY_TYPE(type, return launch_drop(tensors<NUMBER, float>{(NUMBER *)out, in, (const NUMBER *)bias,
                                                            (const NUMBER *)residual, rows, C},
                                     dropout, stream));
}

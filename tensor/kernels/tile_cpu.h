/*
 * tile -- a small matrix product that stays in registers, for kernels with a blocking of their
 * own.
 *
 * Calls are inlined with constant `rows` and `vectors`, so that the accumulators are registers:
 * rows * vectors + vectors + 1 of them must fit 16. For kernel files (*_cpu.c) only.
 *
 * The vector type is the compiler's own (no intrinsics), as wide as the variant's registers. Each
 * element of c is summed over the steps in ascending order by one lane, so its bits do not depend
 * on the tile's shape or on the vector's width.
 */
#ifndef TENSOR_KERNELS_TILE_CPU_H
#define TENSOR_KERNELS_TILE_CPU_H

#include <stddef.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __AVX__
#define TILE_LANES 8
#else
#define TILE_LANES 4
#endif

#define TILE_MAX_ROWS    6
#define TILE_MAX_VECTORS 3

typedef float tile_vector __attribute__((vector_size(4 * TILE_LANES)));

/* c[i][j] = (add ? c[i][j] : 0) + sum over k of a[i][k] * b[k][j], for i < rows and
 * j < vectors * TILE_LANES. a's element (i,k) lies at a + i * a_row + k * a_step, rows of b are
 * b_row apart, those of c c_row. c must not overlap a or b. */
__attribute__((always_inline)) static inline void
tile_product(float *c, size_t c_row, const float *a, size_t a_row, size_t a_step, const float *b,
             size_t b_row, size_t steps, int rows, int vectors, int add)
{
    const tile_vector zero = {0};
    tile_vector sum[TILE_MAX_ROWS][TILE_MAX_VECTORS];
    tile_vector wide[TILE_MAX_VECTORS];

#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++) {
            sum[i][j] = zero;
            if (add) {
                memcpy(&sum[i][j], c + (size_t)i * c_row + (size_t)(j * TILE_LANES),
                       sizeof(tile_vector));
            }
        }
    }
    for (size_t k = 0; k < steps; k++) {
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++) {
            memcpy(&wide[j], b + k * b_row + (size_t)(j * TILE_LANES), sizeof(tile_vector));
        }
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            tile_vector factor = a[(size_t)i * a_row + k * a_step] - zero;
#pragma GCC unroll 3
            for (int j = 0; j < vectors; j++) {
                sum[i][j] += factor * wide[j];
            }
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++) {
            memcpy(c + (size_t)i * c_row + (size_t)(j * TILE_LANES), &sum[i][j],
                   sizeof(tile_vector));
        }
    }
}

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_TILE_CPU_H */

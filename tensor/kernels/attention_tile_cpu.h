/*
 * attention_tile -- the three products of attention on blocks, and the moves in and out of them.
 * For attention's kernel files only; attention_blocks.h has the shapes.
 */
#ifndef TENSOR_KERNELS_ATTENTION_TILE_CPU_H
#define TENSOR_KERNELS_ATTENTION_TILE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "tensor/kernels/attention_blocks.h"
#include "tensor/kernels/tile_cpu.h"
#include "tensor/kernels/typed_cpu.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Columns of one tile: a panel and a block of head columns, in registers of this variant. */
enum {
    ATTENTION_PANEL_STEP = 3 * TILE_LANES,
    ATTENTION_COLUMN_STEP = 2 * TILE_LANES
};

enum {
    ATTENTION_ROWS_AHEAD = 8 /* rows that are on their way while one is copied */
};

/* score (keys, panel) = key (keys, D) · panel (D, panel). `keys` is a multiple of 4. */
static inline void attention_scores(float *score, const float *key, size_t key_row,
                                    const float *panel, size_t D, size_t keys)
{
    for (size_t k = 0; k < keys; k += ATTENTION_SCORE_ROWS) {
        for (size_t q = 0; q < ATTENTION_PANEL; q += ATTENTION_PANEL_STEP) {
            tile_product(score + k * ATTENTION_QUERIES + q, ATTENTION_QUERIES, key + k * key_row,
                         key_row, 1, panel + q, ATTENTION_PANEL, D, ATTENTION_SCORE_ROWS, 3, 0);
        }
    }
}

/* result (panel, columns) += scoreᵀ (panel, keys) · value (keys, columns). `hidden` of the keys are
 * masked for the panel's first query, one fewer for each further query; a group of queries ends
 * with the last key that one of them sees. */
static inline void attention_sum_over_keys(float *result, const float *score, const float *value,
                                           size_t columns, size_t keys, size_t hidden)
{
    for (size_t q = 0; q < ATTENTION_PANEL; q += ATTENTION_VALUE_ROWS) {
        size_t last = q + ATTENTION_VALUE_ROWS - 1;
        size_t seen = hidden > last ? keys - hidden + last : keys;

        for (size_t d = 0; d < columns; d += ATTENTION_COLUMN_STEP) {
            tile_product(result + q * columns + d, columns, score + q, 1, ATTENTION_QUERIES,
                         value + d, columns, seen, ATTENTION_VALUE_ROWS, 2, 1);
        }
    }
}

/* result (6 keys, columns) += score (6 keys, queries) · value (queries, columns). */
static inline void attention_sum_over_queries(float *result, const float *score, const float *value,
                                              size_t columns, size_t queries)
{
    for (size_t d = 0; d < columns; d += ATTENTION_COLUMN_STEP) {
        tile_product(result + d, columns, score, ATTENTION_QUERIES, 1, value + d, columns, queries,
                     ATTENTION_VALUE_ROWS, 2, 1);
    }
}

/* A tensor in rows: its number format, and how many elements its rows are apart. */
struct attention_rows {
    const void *tensor;
    enum dtype type;
    size_t stride;
};

/* Asks for elements [at, at + D) of the tensor. Rows of one head lie far apart, further than the
 * processor guesses by itself. */
static inline void attention_ask_row(const struct attention_rows *from, size_t at, size_t D)
{
    const char *row = dtype_const_at(from->tensor, from->type, at);
    size_t bytes = D * dtype_bytes(from->type);

    for (size_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(row + i);
    }
}

/* to (padded_rows, columns) = scale · from (rows, D), which begins with element `at` of its tensor;
 * the rest of `to` is zero. */
static inline void attention_copy_rows(float *to, size_t padded_rows, size_t columns,
                                       const struct attention_rows *from, size_t at, size_t rows,
                                       size_t D, float scale)
{
    for (size_t i = 0; i < rows; i++) {
        float *row = to + i * columns;
        const float *source;

        if (i + ATTENTION_ROWS_AHEAD < rows) {
            attention_ask_row(from, at + (i + ATTENTION_ROWS_AHEAD) * from->stride, D);
        }
        source = typed_read(from->tensor, from->type, at + i * from->stride, D, row);

        KERNEL_INDEPENDENT
        for (size_t d = 0; d < D; d++) {
            row[d] = scale * source[d];
        }
        memset(row + D, 0, (columns - D) * sizeof(*row));
    }
    memset(to + rows * columns, 0, (padded_rows - rows) * columns * sizeof(*to));
}

/* K and V of one head into the workspace, as far as the slice sees: from rows of K|V of whole sequences
 * (`apart`), or from those of Q|K|V. What a panel may read behind them is zero. */
static inline void attention_copy_keys(float *base, const struct attention_blocks *blocks,
                                       const struct attention_shape *shape,
                                       const struct attention_slice *slice, const void *keys,
                                       bool apart, enum dtype type, size_t batch, size_t head)
{
    size_t C = shape->heads * shape->head_size;
    const struct attention_rows from = {keys, type, (apart ? 2 : 3) * C};
    size_t key = batch * shape->positions * from.stride + head * shape->head_size;
    size_t seen = slice->first + slice->queries;
    size_t padded = (seen + ATTENTION_PANEL - 1) / ATTENTION_PANEL * ATTENTION_PANEL;

    key += apart ? 0 : C;
    attention_copy_rows(base + blocks->key, padded, blocks->columns, &from, key, seen,
                        shape->head_size, 1.0F);
    attention_copy_rows(base + blocks->value, padded, blocks->columns, &from, key + C, seen,
                        shape->head_size, 1.0F);
}

/* Elements [at, at + D) of `tensor` = scale · from (D), rounded once; `from` may be overwritten. */
static inline void attention_write_row(void *tensor, enum dtype type, size_t at, float *from,
                                       size_t D, float scale)
{
    float *scaled = typed_place(tensor, type, at, from);

    KERNEL_INDEPENDENT
    for (size_t d = 0; d < D; d++) {
        scaled[d] = scale * from[d];
    }
    typed_keep(tensor, type, at, D, from);
}

/* panel (panels, D, ATTENTION_PANEL) = the transpose of the first D columns of `from`, whose rows
 * are `columns` long. */
static inline void attention_copy_panels(float *panel, size_t panels, const float *from,
                                         size_t columns, size_t D)
{
    for (size_t p = 0; p < panels; p++) {
        const float *rows = from + p * ATTENTION_PANEL * columns;
        float *to = panel + p * ATTENTION_PANEL * D;

        for (size_t d = 0; d < D; d++) {
            for (size_t q = 0; q < ATTENTION_PANEL; q++) {
                to[d * ATTENTION_PANEL + q] = rows[q * columns + d];
            }
        }
    }
}

/* How many keys of the block from `first_key` on the panel's last query sees, at most a block. A
 * multiple of ATTENTION_PANEL, as blocks and panels begin at multiples of it. */
static inline size_t attention_keys_seen(size_t first_query, size_t first_key)
{
    size_t end = first_query + ATTENTION_PANEL;
    size_t keys = end > first_key ? end - first_key : 0;

    return keys < (size_t)ATTENTION_KEYS ? keys : (size_t)ATTENTION_KEYS;
}

/* How many of these keys come after the panel's first query: the last ones. */
static inline size_t attention_keys_hidden(size_t first_query, size_t first_key, size_t keys)
{
    size_t end = first_key + keys;

    return end > first_query + 1 ? end - first_query - 1 : 0;
}

/* Makes the scores of keys that come after their query -inf, whose weight is 0. */
static inline void attention_mask(float *score, size_t keys, size_t hidden)
{
    for (size_t i = 0; i < hidden; i++) {
        float *row = score + (keys - hidden + i) * ATTENTION_QUERIES;

        for (size_t q = 0; q <= i && q < ATTENTION_PANEL; q++) {
            row[q] = -__builtin_inff();
        }
    }
}

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_ATTENTION_TILE_CPU_H */

/*
 * attention_blocks -- how the attention kernels cut one head into blocks, and the workspace that
 * follows from it. Private to the attention files.
 *
 * Scores are kept transposed, keys by queries: a block of ATTENTION_QUERIES queries lies side by
 * side in a row, in panels of ATTENTION_PANEL that fill the registers of a tile, and the softmax
 * over keys runs down the rows in all lanes at once. Every size is a function of the shape alone.
 */
#ifndef TENSOR_KERNELS_ATTENTION_BLOCKS_H
#define TENSOR_KERNELS_ATTENTION_BLOCKS_H

#include <stddef.h>

#include "tensor/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ATTENTION_PANEL = 24,   /* queries of one tile of scores */
    ATTENTION_QUERIES = 48, /* queries of a block, a multiple of ATTENTION_PANEL */
    /* Keys of a block: a multiple of ATTENTION_QUERIES, so that a block's first key is seen by
     * every query that meets the block. */
    ATTENTION_KEYS = 48,
    ATTENTION_COLUMNS = 16,   /* head columns of one tile of values */
    ATTENTION_SCORE_ROWS = 4, /* keys of one tile of scores */
    ATTENTION_VALUE_ROWS = 6  /* queries or keys of one tile of values */
};

/* Where the buffers of one head lie in a member's workspace, in floats from its start. */
struct attention_blocks {
    size_t columns;     /* D up to a multiple of ATTENTION_COLUMNS; the rest is zero */
    size_t rows;        /* T up to a multiple of ATTENTION_PANEL; the rest is zero */
    size_t key;         /* (rows, columns) */
    size_t value;       /* (rows, columns) */
    size_t dkey;        /* (rows, columns), backward only */
    size_t dvalue;      /* (rows, columns), backward only */
    size_t query;       /* (ATTENTION_QUERIES, columns), backward only */
    size_t dout;        /* (ATTENTION_QUERIES, columns), backward only */
    size_t result;      /* (ATTENTION_QUERIES, columns): out or dQ */
    size_t query_panel; /* (ATTENTION_QUERIES / ATTENTION_PANEL, D, ATTENTION_PANEL) */
    size_t dout_panel;  /* likewise, backward only */
    size_t score;       /* (ATTENTION_KEYS, ATTENTION_QUERIES) */
    size_t dscore;      /* (ATTENTION_KEYS, ATTENTION_QUERIES), backward only */
    size_t floats;      /* all of it */
};

void attention_blocks_plan(const struct attention_shape *shape,
                           struct attention_blocks *blocks_out);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_ATTENTION_BLOCKS_H */

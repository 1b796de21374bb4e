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

/* The queries of one block. Blocks begin at multiples of ATTENTION_QUERIES of the sequence, wherever a
 * slice does, so that a query meets the same keys in the same blocks and panels; queries of the block
 * before the slice are zero, like those behind the last one. */
struct attention_block {
    size_t first;       /* position of the block */
    size_t skipped;     /* its queries before the slice */
    size_t queries;     /* its queries in the slice; 0: there are no more blocks */
    size_t end;         /* position behind the last of them */
    size_t first_panel; /* of those with a query of the slice */
    size_t panels;      /* with those before the first one */
    size_t row;         /* of the slice: that of its first query */
    size_t slice_end;   /* position */
    size_t slice_first; /* position */
};

static inline void attention_block_set(struct attention_block *block, size_t first)
{
    size_t begin = first > block->slice_first ? first : block->slice_first;
    size_t end = first + ATTENTION_QUERIES;

    end = end < block->slice_end ? end : block->slice_end;
    block->first = first;
    block->skipped = begin - first;
    block->queries = end > begin ? end - begin : 0;
    block->end = end;
    block->first_panel = block->skipped / ATTENTION_PANEL;
    block->panels = (end - first + ATTENTION_PANEL - 1) / ATTENTION_PANEL;
    block->row = begin - block->slice_first;
}

static inline struct attention_block attention_block_first(const struct attention_slice *slice)
{
    struct attention_block block;

    block.slice_first = slice->first;
    block.slice_end = slice->first + slice->queries;
    attention_block_set(&block, slice->first / ATTENTION_QUERIES * ATTENTION_QUERIES);
    return block;
}

static inline void attention_block_next(struct attention_block *block)
{
    attention_block_set(block, block->first + ATTENTION_QUERIES);
}

void attention_blocks_plan(const struct attention_shape *shape,
                           struct attention_blocks *blocks_out);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_ATTENTION_BLOCKS_H */

#include "tensor/kernels/attention_blocks.h"

_Static_assert(ATTENTION_PANEL % ATTENTION_VALUE_ROWS == 0 &&
                   ATTENTION_PANEL % ATTENTION_SCORE_ROWS == 0,
               "a panel of keys is cut into whole tiles");
_Static_assert(ATTENTION_QUERIES % ATTENTION_PANEL == 0 && ATTENTION_KEYS % ATTENTION_QUERIES == 0,
               "the masks count from blocks that begin together");

static size_t round_up(size_t elems, size_t grain)
{
    return (elems + grain - 1) / grain * grain;
}

/* Takes `elems` floats; each buffer begins at a multiple of a cache line. */
static size_t take(struct attention_blocks *blocks, size_t elems)
{
    size_t begin = blocks->floats;

    blocks->floats = begin + round_up(elems, 16);
    return begin;
}

void attention_blocks_plan(const struct attention_shape *shape, struct attention_blocks *blocks_out)
{
    struct attention_blocks blocks = {
        .columns = round_up(shape->head_size, ATTENTION_COLUMNS),
        .rows = round_up(shape->positions, ATTENTION_PANEL),
    };
    size_t head = blocks.rows * blocks.columns;
    size_t block = ATTENTION_QUERIES * blocks.columns;
    size_t panels = ATTENTION_QUERIES * shape->head_size;
    size_t scores = (size_t)ATTENTION_KEYS * ATTENTION_QUERIES;

    blocks.key = take(&blocks, head);
    blocks.value = take(&blocks, head);
    blocks.dkey = take(&blocks, head);
    blocks.dvalue = take(&blocks, head);
    blocks.query = take(&blocks, block);
    blocks.dout = take(&blocks, block);
    blocks.result = take(&blocks, block);
    blocks.query_panel = take(&blocks, panels);
    blocks.dout_panel = take(&blocks, panels);
    blocks.score = take(&blocks, scores);
    blocks.dscore = take(&blocks, scores);
    *blocks_out = blocks;
}

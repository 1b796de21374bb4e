#include "tensor/kernels/attention.h"

#include <math.h>

#include "tensor/kernels/attention_blocks.h"
#include "tensor/kernels/attention_keep_cpu.h"
#include "tensor/kernels/attention_tile_cpu.h"
#include "tensor/kernels/math_cpu.h"
#include "tensor/stream.h"

struct forward_call {
    void *out;
    float *lse;
    const void *qkv; /* of the slice */
    void *keys;      /* of the whole sequences; NULL: in qkv, as the slice is all */
    const struct attention_shape *shape;
    struct attention_slice slice;
    const struct attention_dropout *dropout; /* NULL: none */
    enum dtype type;
    struct attention_blocks blocks;
    float *workspace;
};

/* The softmax of one block of queries while the keys pass by. */
struct running_softmax {
    float max[ATTENTION_QUERIES];
    float sum[ATTENTION_QUERIES];
};

/* Turns a panel's scores into exp(score - max) with the new running maximum, and leaves in
 * `rescale` what everything summed before must be multiplied by. */
static void softmax_step(float *score, size_t keys, float *max, float *sum, float *rescale)
{
    float peak[ATTENTION_PANEL];
    float total[ATTENTION_PANEL];

    for (size_t q = 0; q < ATTENTION_PANEL; q++) {
        peak[q] = max[q];
    }
    for (size_t k = 0; k < keys; k++) {
        const float *row = score + k * ATTENTION_QUERIES;

        for (size_t q = 0; q < ATTENTION_PANEL; q++) {
            peak[q] = row[q] > peak[q] ? row[q] : peak[q];
        }
    }
    for (size_t q = 0; q < ATTENTION_PANEL; q++) {
        rescale[q] = math_exp_flushed(max[q] - peak[q]);
        total[q] = sum[q] * rescale[q];
    }
    for (size_t k = 0; k < keys; k++) {
        float *row = score + k * ATTENTION_QUERIES;

        for (size_t q = 0; q < ATTENTION_PANEL; q++) {
            float p = math_exp_flushed(row[q] - peak[q]);

            row[q] = p;
            total[q] += p;
        }
    }
    for (size_t q = 0; q < ATTENTION_PANEL; q++) {
        max[q] = peak[q];
        sum[q] = total[q];
    }
}

/* Makes the weights of a panel that dropout does not keep zero. */
static void drop_weights(float *weight, size_t keys, const struct attention_keep *keep,
                         size_t first_query, size_t first_key)
{
    uint16_t numbers[ATTENTION_KEEP_NUMBERS];

    for (size_t k = 0; k < keys; k++) {
        if (k % ATTENTION_KEEP_EDGE == 0) {
            attention_keep_numbers(numbers, keep, first_query, first_key + k);
        }
        attention_keep_row(weight + k * ATTENTION_QUERIES, numbers, k % ATTENTION_KEEP_EDGE,
                           keep->threshold);
    }
}

static void panel_forward(const struct forward_call *call, float *base,
                          struct running_softmax *softmax, const struct attention_keep *keep,
                          size_t first_query, size_t panel, size_t first_key)
{
    const struct attention_blocks *blocks = &call->blocks;
    size_t D = call->shape->head_size;
    size_t columns = blocks->columns;
    size_t offset = panel * ATTENTION_PANEL;
    size_t keys = attention_keys_seen(first_query + offset, first_key);
    size_t hidden = attention_keys_hidden(first_query + offset, first_key, keys);
    float *score = base + blocks->score + offset;
    float *result = base + blocks->result + offset * columns;
    float rescale[ATTENTION_PANEL];

    attention_scores(score, base + blocks->key + first_key * columns, columns,
                     base + blocks->query_panel + offset * D, D, keys);
    attention_mask(score, keys, hidden);
    softmax_step(score, keys, softmax->max + offset, softmax->sum + offset, rescale);
    if (keep != NULL) {
        drop_weights(score, keys, keep, first_query + offset, first_key);
    }
    for (size_t q = 0; q < ATTENTION_PANEL; q++) {
        for (size_t d = 0; d < columns; d++) {
            result[q * columns + d] *= rescale[q];
        }
    }
    attention_sum_over_keys(result, score, base + blocks->value + first_key * columns, columns,
                            keys, hidden);
}

/* Divides by the sums and writes the rows of one block of queries, the first of which is element
 * `at` of out. */
static void block_finish(const struct forward_call *call, float *base,
                         const struct running_softmax *softmax, size_t at, float *lse,
                         const struct attention_block *block)
{
    size_t D = call->shape->head_size;
    size_t stride = call->shape->heads * D;
    float *result = base + call->blocks.result + block->skipped * call->blocks.columns;
    const float *max = softmax->max + block->skipped;
    const float *sum = softmax->sum + block->skipped;
    float kept = call->dropout != NULL ? rng_mask_scale(call->dropout->threshold) : 1.0F;

    for (size_t q = 0; q < block->queries; q++) {
        attention_write_row(call->out, call->type, at + q * stride,
                            result + q * call->blocks.columns, D, kept / sum[q]);
        lse[q] = max[q] + math_log(sum[q]);
    }
}

/* K and V of one head, as far as the slice's last query sees; the slice's own go to `keys` first. */
static void copy_keys(const struct forward_call *call, float *base, size_t batch, size_t head)
{
    const struct attention_slice *slice = &call->slice;
    size_t D = call->shape->head_size;
    size_t C = call->shape->heads * D;

    for (size_t i = 0; call->keys != NULL && i < 2 * slice->queries; i++) {
        size_t row = batch * slice->queries + i / 2;
        size_t to = batch * call->shape->positions + slice->first + i / 2;

        memcpy(dtype_at(call->keys, call->type, (2 * to + i % 2) * C + head * D),
               dtype_const_at(call->qkv, call->type, (3 * row + 1 + i % 2) * C + head * D),
               D * dtype_bytes(call->type));
    }
    attention_copy_keys(base, &call->blocks, call->shape, slice,
                        call->keys != NULL ? call->keys : call->qkv, call->keys != NULL, call->type,
                        batch, head);
}

static void head_forward(const struct forward_call *call, float *base, size_t batch, size_t head)
{
    const struct attention_shape *shape = call->shape;
    const struct attention_blocks *blocks = &call->blocks;
    const struct attention_slice *slice = &call->slice;
    size_t D = shape->head_size;
    size_t C = shape->heads * D;
    const struct attention_rows qkv = {call->qkv, call->type, 3 * C};
    size_t query = batch * slice->queries * 3 * C + head * D;
    size_t out = batch * slice->queries * C + head * D;
    float *lse = call->lse + (batch * shape->heads + head) * slice->queries;
    float scale = (float)(1.0 / sqrt((double)D));
    struct attention_block block = attention_block_first(slice);
    struct attention_keep mask;
    const struct attention_keep *keep =
        attention_keep_init(&mask, call->dropout, shape, batch, head);

    copy_keys(call, base, batch, head);
    for (; block.queries > 0; attention_block_next(&block)) {
        struct running_softmax softmax;
        size_t padded = block.panels * ATTENTION_PANEL;
        float *rows = base + blocks->result;

        for (size_t q = 0; q < ATTENTION_QUERIES; q++) {
            softmax.max[q] = -INFINITY;
            softmax.sum[q] = 0.0F;
        }
        memset(rows, 0, block.skipped * blocks->columns * sizeof(*rows));
        attention_copy_rows(rows + block.skipped * blocks->columns, padded - block.skipped,
                            blocks->columns, &qkv, query + block.row * 3 * C, block.queries, D,
                            scale);
        attention_copy_panels(base + blocks->query_panel, block.panels, rows, blocks->columns, D);
        memset(rows, 0, padded * blocks->columns * sizeof(*rows));
        for (size_t k0 = 0; k0 < block.end; k0 += ATTENTION_KEYS) {
            for (size_t panel = block.first_panel; panel < block.panels; panel++) {
                panel_forward(call, base, &softmax, keep, block.first, panel, k0);
            }
        }
        block_finish(call, base, &softmax, out + block.row * C, lse + block.row, &block);
    }
}

static void forward_part(void *context, int part, int parts)
{
    const struct forward_call *call = context;
    float *base = call->workspace + (size_t)part * call->blocks.floats;
    size_t begin;
    size_t end;

    stream_share(call->shape->batch * call->shape->heads, 1, part, parts, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        head_forward(call, base, i / call->shape->heads, i % call->shape->heads);
    }
}

static enum status run_forward(struct forward_call *call, struct stream *stream)
{
    attention_blocks_plan(call->shape, &call->blocks);
    stream_run(stream, forward_part, call);
    return STATUS_OK;
}

enum status KERNEL(attention_forward)(void *out, float *lse, const void *qkv,
                                      const struct attention_shape *shape,
                                      const struct attention_dropout *dropout, float *workspace,
                                      enum dtype type, struct stream *stream)
{
    struct forward_call call = {
        .out = out,
        .lse = lse,
        .qkv = qkv,
        .shape = shape,
        .slice = {.queries = shape->positions},
        .dropout = dropout,
        .type = type,
        .workspace = workspace,
    };

    return run_forward(&call, stream);
}

enum status KERNEL(attention_slice_forward)(void *out, float *lse, void *keys, const void *qkv,
                                            const struct attention_shape *shape,
                                            const struct attention_slice *slice,
                                            const struct attention_dropout *dropout,
                                            float *workspace, enum dtype type,
                                            struct stream *stream)
{
    struct forward_call call = {
        .out = out,
        .lse = lse,
        .qkv = qkv,
        .keys = keys,
        .shape = shape,
        .slice = *slice,
        .dropout = dropout,
        .type = type,
        .workspace = workspace,
    };

    return run_forward(&call, stream);
}

size_t KERNEL(attention_workspace)(const struct attention_shape *shape, int threads)
{
    struct attention_blocks blocks;

    attention_blocks_plan(shape, &blocks);
    return blocks.floats * (size_t)threads;
}

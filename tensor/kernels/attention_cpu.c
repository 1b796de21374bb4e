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
    const void *qkv;
    const struct attention_shape *shape;
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
                         size_t queries)
{
    size_t D = call->shape->head_size;
    size_t stride = call->shape->heads * D;
    float *result = base + call->blocks.result;
    float kept = call->dropout != NULL ? rng_mask_scale(call->dropout->threshold) : 1.0F;

    for (size_t q = 0; q < queries; q++) {
        attention_write_row(call->out, call->type, at + q * stride,
                            result + q * call->blocks.columns, D, kept / softmax->sum[q]);
        lse[q] = softmax->max[q] + math_log(softmax->sum[q]);
    }
}

static void head_forward(const struct forward_call *call, float *base, size_t batch, size_t head)
{
    const struct attention_shape *shape = call->shape;
    const struct attention_blocks *blocks = &call->blocks;
    size_t T = shape->positions;
    size_t D = shape->head_size;
    size_t C = shape->heads * D;
    const struct attention_rows qkv = {call->qkv, call->type, 3 * C};
    size_t query = batch * T * 3 * C + head * D;
    size_t out = batch * T * C + head * D;
    float *lse = call->lse + (batch * shape->heads + head) * T;
    float scale = (float)(1.0 / sqrt((double)D));
    struct attention_keep mask;
    const struct attention_keep *keep =
        attention_keep_init(&mask, call->dropout, shape, batch, head);

    attention_copy_rows(base + blocks->key, blocks->rows, blocks->columns, &qkv, query + C, T, D,
                        1.0F);
    attention_copy_rows(base + blocks->value, blocks->rows, blocks->columns, &qkv, query + 2 * C, T,
                        D, 1.0F);
    for (size_t q0 = 0; q0 < T; q0 += ATTENTION_QUERIES) {
        struct running_softmax softmax;
        size_t queries = T - q0 < ATTENTION_QUERIES ? T - q0 : ATTENTION_QUERIES;
        size_t panels = (queries + ATTENTION_PANEL - 1) / ATTENTION_PANEL;
        float *rows = base + blocks->result;

        for (size_t q = 0; q < ATTENTION_QUERIES; q++) {
            softmax.max[q] = -INFINITY;
            softmax.sum[q] = 0.0F;
        }
        attention_copy_rows(rows, panels * ATTENTION_PANEL, blocks->columns, &qkv,
                            query + q0 * 3 * C, queries, D, scale);
        attention_copy_panels(base + blocks->query_panel, panels, rows, blocks->columns, D);
        memset(rows, 0, panels * ATTENTION_PANEL * blocks->columns * sizeof(*rows));
        for (size_t k0 = 0; k0 < q0 + queries; k0 += ATTENTION_KEYS) {
            for (size_t panel = 0; panel < panels; panel++) {
                panel_forward(call, base, &softmax, keep, q0, panel, k0);
            }
        }
        block_finish(call, base, &softmax, out + q0 * C, lse + q0, queries);
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
        .dropout = dropout,
        .type = type,
        .workspace = workspace,
    };

    attention_blocks_plan(shape, &call.blocks);
    stream_run(stream, forward_part, &call);
    return STATUS_OK;
}

size_t KERNEL(attention_workspace)(const struct attention_shape *shape, int threads)
{
    struct attention_blocks blocks;

    attention_blocks_plan(shape, &blocks);
    return blocks.floats * (size_t)threads;
}

#include <math.h>

#include "tensor/kernels/attention.h"
#include "tensor/kernels/attention_blocks.h"
#include "tensor/kernels/attention_tile_cpu.h"
#include "tensor/kernels/math_cpu.h"
#include "tensor/stream.h"

struct backward_call {
    float *dqkv;
    const float *dout;
    const float *out;
    const float *qkv;
    const float *lse;
    const struct attention_shape *shape;
    struct attention_blocks blocks;
    float *workspace;
};

/* One number a query of the block: its log-sum-exp, and dout·out. Rows past the last query have
 * zeros in both and in dout, so that they add zero to every gradient. */
struct query_numbers {
    float lse[ATTENTION_QUERIES];
    float inner[ATTENTION_QUERIES];
};

/* Sums in 16 fixed lanes, so that the loop is vector code. */
static float inner_product(const float *a, const float *b, size_t elems)
{
    float lanes[16] = {0};
    float total = 0.0F;
    size_t i = 0;

    for (; i + 16 <= elems; i += 16) {
        for (size_t j = 0; j < 16; j++) {
            lanes[j] += a[i + j] * b[i + j];
        }
    }
    for (; i < elems; i++) {
        lanes[i % 16] += a[i] * b[i];
    }
    for (size_t j = 0; j < 16; j++) {
        total += lanes[j];
    }
    return total;
}

/* score becomes p = exp(score - lse), dscore becomes p · (dscore - inner). What a row needs again
 * lies in arrays of this function, which the compiler knows to overlap nothing. */
static void softmax_backward(float *score, float *dscore, size_t keys, const float *lse,
                             const float *inner)
{
    float shift[ATTENTION_PANEL];
    float centre[ATTENTION_PANEL];

    memcpy(shift, lse, sizeof(shift));
    memcpy(centre, inner, sizeof(centre));
    for (size_t k = 0; k < keys; k++) {
        float *s = score + k * ATTENTION_QUERIES;
        float *ds = dscore + k * ATTENTION_QUERIES;
        float p[ATTENTION_PANEL];

        for (size_t q = 0; q < ATTENTION_PANEL; q++) {
            p[q] = math_exp_flushed(s[q] - shift[q]);
        }
        memcpy(s, p, sizeof(p));
        for (size_t q = 0; q < ATTENTION_PANEL; q++) {
            ds[q] = p[q] * (ds[q] - centre[q]);
        }
    }
}

/* P and dS of one panel against one block of keys, and its part of dQ. */
static void panel_backward(const struct backward_call *call, float *base,
                           const struct query_numbers *numbers, size_t first_query, size_t panel,
                           size_t first_key)
{
    const struct attention_blocks *blocks = &call->blocks;
    size_t D = call->shape->head_size;
    size_t columns = blocks->columns;
    size_t offset = panel * ATTENTION_PANEL;
    size_t keys = attention_keys_seen(first_query + offset, first_key);
    size_t hidden = attention_keys_hidden(first_query + offset, first_key, keys);
    float *score = base + blocks->score + offset;
    float *dscore = base + blocks->dscore + offset;
    const float *key = base + blocks->key + first_key * columns;

    attention_scores(score, key, columns, base + blocks->query_panel + offset * D, D, keys);
    attention_scores(dscore, base + blocks->value + first_key * columns, columns,
                     base + blocks->dout_panel + offset * D, D, keys);
    attention_mask(score, keys, hidden);
    softmax_backward(score, dscore, keys, numbers->lse + offset, numbers->inner + offset);
    attention_sum_over_keys(base + blocks->result + offset * columns, dscore, key, columns, keys,
                            hidden);
}

/* dV += Pᵀ·dO and dK += dSᵀ·Q of one block of queries against one block of keys. A group of keys
 * begins with the first query that sees its first key. */
static void keys_backward(const struct backward_call *call, float *base, size_t first_query,
                          size_t panels, size_t first_key)
{
    const struct attention_blocks *blocks = &call->blocks;
    size_t columns = blocks->columns;
    size_t last_panel = first_query + (panels - 1) * ATTENTION_PANEL;
    size_t keys = attention_keys_seen(last_panel, first_key);

    for (size_t k = 0; k < keys; k += ATTENTION_VALUE_ROWS) {
        size_t key = first_key + k;
        size_t skipped = key > first_query ? key - first_query : 0;
        size_t queries = panels * ATTENTION_PANEL - skipped;
        size_t score = k * ATTENTION_QUERIES + skipped;

        attention_sum_over_queries(base + blocks->dvalue + key * columns,
                                   base + blocks->score + score,
                                   base + blocks->dout + skipped * columns, columns, queries);
        attention_sum_over_queries(base + blocks->dkey + key * columns,
                                   base + blocks->dscore + score,
                                   base + blocks->query + skipped * columns, columns, queries);
    }
}

/* Copies Q (scaled) and dO of one block and readies its numbers and its dQ. */
static void block_begin(const struct backward_call *call, float *base, size_t batch, size_t head,
                        size_t first_query, size_t queries, size_t panels,
                        struct query_numbers *numbers)
{
    const struct attention_blocks *blocks = &call->blocks;
    const struct attention_shape *shape = call->shape;
    size_t D = shape->head_size;
    size_t C = shape->heads * D;
    size_t columns = blocks->columns;
    size_t padded = panels * ATTENTION_PANEL;
    size_t at = (batch * shape->positions + first_query) * C + head * D;
    size_t at_qkv = (batch * shape->positions + first_query) * 3 * C + head * D;
    const float *lse = call->lse + (batch * shape->heads + head) * shape->positions + first_query;
    float scale = (float)(1.0 / sqrt((double)D));

    attention_copy_rows(base + blocks->query, padded, columns, call->qkv + at_qkv, 3 * C, queries,
                        D, scale);
    attention_copy_panels(base + blocks->query_panel, panels, base + blocks->query, columns, D);
    attention_copy_rows(base + blocks->dout, padded, columns, call->dout + at, C, queries, D, 1.0F);
    attention_copy_panels(base + blocks->dout_panel, panels, base + blocks->dout, columns, D);
    memset(base + blocks->result, 0, padded * columns * sizeof(*base));
    memset(numbers, 0, sizeof(*numbers));
    for (size_t q = 0; q < queries; q++) {
        numbers->lse[q] = lse[q];
        numbers->inner[q] = inner_product(call->dout + at + q * C, call->out + at + q * C, D);
    }
}

/* to (rows, D), rows `stride` apart = scale · from (rows, columns). */
static void write_rows(float *to, size_t stride, const float *from, size_t columns, size_t rows,
                       size_t D, float scale)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t d = 0; d < D; d++) {
            to[i * stride + d] = scale * from[i * columns + d];
        }
    }
}

static void head_backward(const struct backward_call *call, float *base, size_t batch, size_t head)
{
    const struct attention_blocks *blocks = &call->blocks;
    size_t T = call->shape->positions;
    size_t D = call->shape->head_size;
    size_t C = call->shape->heads * D;
    size_t columns = blocks->columns;
    const float *query = call->qkv + batch * T * 3 * C + head * D;
    float *dquery = call->dqkv + batch * T * 3 * C + head * D;
    float scale = (float)(1.0 / sqrt((double)D));

    attention_copy_rows(base + blocks->key, blocks->rows, columns, query + C, 3 * C, T, D, 1.0F);
    attention_copy_rows(base + blocks->value, blocks->rows, columns, query + 2 * C, 3 * C, T, D,
                        1.0F);
    memset(base + blocks->dkey, 0, blocks->rows * columns * sizeof(*base));
    memset(base + blocks->dvalue, 0, blocks->rows * columns * sizeof(*base));
    for (size_t q0 = 0; q0 < T; q0 += ATTENTION_QUERIES) {
        struct query_numbers numbers;
        size_t queries = T - q0 < ATTENTION_QUERIES ? T - q0 : ATTENTION_QUERIES;
        size_t panels = (queries + ATTENTION_PANEL - 1) / ATTENTION_PANEL;

        block_begin(call, base, batch, head, q0, queries, panels, &numbers);
        for (size_t k0 = 0; k0 < q0 + queries; k0 += ATTENTION_KEYS) {
            for (size_t panel = 0; panel < panels; panel++) {
                panel_backward(call, base, &numbers, q0, panel, k0);
            }
            keys_backward(call, base, q0, panels, k0);
        }
        write_rows(dquery + q0 * 3 * C, 3 * C, base + blocks->result, columns, queries, D, scale);
    }
    write_rows(dquery + C, 3 * C, base + blocks->dkey, columns, T, D, 1.0F);
    write_rows(dquery + 2 * C, 3 * C, base + blocks->dvalue, columns, T, D, 1.0F);
}

static void backward_part(void *context, int part, int parts)
{
    const struct backward_call *call = context;
    float *base = call->workspace + (size_t)part * call->blocks.floats;
    size_t begin;
    size_t end;

    stream_share(call->shape->batch * call->shape->heads, 1, part, parts, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        head_backward(call, base, i / call->shape->heads, i % call->shape->heads);
    }
}

enum status KERNEL(attention_backward)(float *dqkv, const float *dout, const float *out,
                                       const float *qkv, const float *lse,
                                       const struct attention_shape *shape, float *workspace,
                                       struct stream *stream)
{
    struct backward_call call = {
        .dqkv = dqkv,
        .dout = dout,
        .out = out,
        .qkv = qkv,
        .lse = lse,
        .shape = shape,
        .workspace = workspace,
    };

    attention_blocks_plan(shape, &call.blocks);
    stream_run(stream, backward_part, &call);
    return STATUS_OK;
}

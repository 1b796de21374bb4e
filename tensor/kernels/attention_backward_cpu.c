#include <math.h>

#include "tensor/kernels/attention.h"
#include "tensor/kernels/attention_blocks.h"
#include "tensor/kernels/attention_keep_cpu.h"
#include "tensor/kernels/attention_tile_cpu.h"
#include "tensor/kernels/math_cpu.h"
#include "tensor/stream.h"

struct backward_call {
    void *dqkv;
    const float *dout;
    const void *out;
    const void *qkv;  /* of the slice */
    const void *keys; /* of the whole sequences; NULL: in qkv, as the slice is all */
    float *dkeys;     /* of the whole sequences; NULL likewise */
    const float *lse;
    const struct attention_shape *shape;
    struct attention_slice slice;
    const struct attention_dropout *dropout; /* NULL: none */
    enum dtype type;
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

/* score becomes p = exp(score - lse), dscore becomes p · (dscore - inner); where there is dropout,
 * dscore and then p are zero where it does not keep the weight. What a row needs again lies in
 * arrays of this function, which the compiler knows to overlap nothing. */
__attribute__((always_inline)) static inline void
softmax_backward(float *score, float *dscore, size_t keys, const float *lse, const float *inner,
                 const struct attention_keep *keep, size_t first_query, size_t first_key)
{
    uint16_t numbers[ATTENTION_KEEP_NUMBERS];
    float shift[ATTENTION_PANEL];
    float centre[ATTENTION_PANEL];

    memcpy(shift, lse, sizeof(shift));
    memcpy(centre, inner, sizeof(centre));
    for (size_t k = 0; k < keys; k++) {
        float *s = score + k * ATTENTION_QUERIES;
        float *ds = dscore + k * ATTENTION_QUERIES;
        float p[ATTENTION_PANEL];

        if (keep != NULL && k % ATTENTION_KEEP_EDGE == 0) {
            attention_keep_numbers(numbers, keep, first_query, first_key + k);
        }
        for (size_t q = 0; q < ATTENTION_PANEL; q++) {
            p[q] = math_exp_flushed(s[q] - shift[q]);
        }
        memcpy(s, p, sizeof(p));
        if (keep != NULL) {
            attention_keep_row(s, numbers, k % ATTENTION_KEEP_EDGE, keep->threshold);
            attention_keep_row(ds, numbers, k % ATTENTION_KEEP_EDGE, keep->threshold);
        }
        for (size_t q = 0; q < ATTENTION_PANEL; q++) {
            ds[q] = p[q] * (ds[q] - centre[q]);
        }
    }
}

/* P and dS of one panel against one block of keys, and its part of dQ. */
static void panel_backward(const struct backward_call *call, float *base,
                           const struct query_numbers *numbers, const struct attention_keep *keep,
                           size_t first_query, size_t panel, size_t first_key)
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
    if (keep == NULL) {
        softmax_backward(score, dscore, keys, numbers->lse + offset, numbers->inner + offset, NULL,
                         0, 0);
    } else {
        softmax_backward(score, dscore, keys, numbers->lse + offset, numbers->inner + offset, keep,
                         first_query + offset, first_key);
    }
    attention_sum_over_keys(base + blocks->result + offset * columns, dscore, key, columns, keys,
                            hidden);
}

/* dV += Pᵀ·dO and dK += dSᵀ·Q of one block of queries against one block of keys. A group of keys
 * begins with the first query that sees its first key, or with the first panel that there is. */
static void keys_backward(const struct backward_call *call, float *base,
                          const struct attention_block *block, size_t first_key)
{
    const struct attention_blocks *blocks = &call->blocks;
    size_t columns = blocks->columns;
    size_t last_panel = block->first + (block->panels - 1) * ATTENTION_PANEL;
    size_t keys = attention_keys_seen(last_panel, first_key);
    size_t least = block->first_panel * ATTENTION_PANEL;

    for (size_t k = 0; k < keys; k += ATTENTION_VALUE_ROWS) {
        size_t key = first_key + k;
        size_t unseen = key > block->first ? key - block->first : 0;
        size_t skipped = unseen > least ? unseen : least;
        size_t queries = block->panels * ATTENTION_PANEL - skipped;
        size_t score = k * ATTENTION_QUERIES + skipped;

        attention_sum_over_queries(base + blocks->dvalue + key * columns,
                                   base + blocks->score + score,
                                   base + blocks->dout + skipped * columns, columns, queries);
        attention_sum_over_queries(base + blocks->dkey + key * columns,
                                   base + blocks->dscore + score,
                                   base + blocks->query + skipped * columns, columns, queries);
    }
}

/* Copies Q and dO (scaled) of one block and readies its numbers and its dQ. */
static void block_begin(const struct backward_call *call, float *base, size_t batch, size_t head,
                        const struct attention_block *block, struct query_numbers *numbers)
{
    const struct attention_blocks *blocks = &call->blocks;
    const struct attention_shape *shape = call->shape;
    size_t D = shape->head_size;
    size_t C = shape->heads * D;
    size_t columns = blocks->columns;
    size_t panels = block->panels;
    size_t padded = panels * ATTENTION_PANEL;
    size_t skipped = block->skipped * columns;
    size_t row_of_slice = batch * call->slice.queries + block->row;
    size_t at = row_of_slice * C + head * D;
    size_t at_qkv = row_of_slice * 3 * C + head * D;
    const struct attention_rows qkv = {call->qkv, call->type, 3 * C};
    const struct attention_rows dout = {call->dout, DTYPE_FP32, C};
    float kept = call->dropout != NULL ? rng_mask_scale(call->dropout->threshold) : 1.0F;
    const float *lse = call->lse + (batch * shape->heads + head) * call->slice.queries + block->row;
    float scale = (float)(1.0 / sqrt((double)D));

    memset(base + blocks->query, 0, skipped * sizeof(*base));
    attention_copy_rows(base + blocks->query + skipped, padded - block->skipped, columns, &qkv,
                        at_qkv, block->queries, D, scale);
    attention_copy_panels(base + blocks->query_panel, panels, base + blocks->query, columns, D);
    memset(base + blocks->dout, 0, skipped * sizeof(*base));
    attention_copy_rows(base + blocks->dout + skipped, padded - block->skipped, columns, &dout, at,
                        block->queries, D, kept);
    attention_copy_panels(base + blocks->dout_panel, panels, base + blocks->dout, columns, D);
    memset(numbers, 0, sizeof(*numbers));
    for (size_t q = 0; q < block->queries; q++) {
        const float *row = typed_read(call->out, call->type, at + q * C, D, base + blocks->result);

        numbers->lse[block->skipped + q] = lse[q];
        numbers->inner[block->skipped + q] = inner_product(call->dout + at + q * C, row, D);
    }
    memset(base + blocks->result, 0, padded * columns * sizeof(*base));
}

/* Rows of dqkv (rows, D), the first of which is element `at`, = scale · from (rows, columns). */
static void write_rows(const struct backward_call *call, size_t at, float *from, size_t rows,
                       float scale)
{
    size_t D = call->shape->head_size;
    size_t stride = 3 * call->shape->heads * D;

    for (size_t i = 0; i < rows; i++) {
        attention_write_row(call->dqkv, call->type, at + i * stride,
                            from + i * call->blocks.columns, D, scale);
    }
}

/* What this slice makes of dK (part 0) or dV (part 1) of one head, in `own` (seen, columns), joins that
 * of later slices: rows before the slice stay sums, its own are complete and go to dqkv. */
static void keep_sums(const struct backward_call *call, float *own, size_t batch, size_t head,
                      size_t part)
{
    const struct attention_slice *slice = &call->slice;
    size_t T = call->shape->positions;
    size_t D = call->shape->head_size;
    size_t C = call->shape->heads * D;
    size_t columns = call->blocks.columns;
    size_t seen = slice->first + slice->queries;
    size_t to = batch * slice->queries * 3 * C + (1 + part) * C + head * D;

    for (size_t i = 0; call->dkeys != NULL && i < seen; i++) {
        float *sum = call->dkeys + (batch * T + i) * 2 * C + part * C + head * D;
        float *row = own + i * columns;

        for (size_t d = 0; seen < T && d < D; d++) {
            row[d] += sum[d];
        }
        if (i < slice->first) {
            memcpy(sum, row, D * sizeof(*sum));
        }
    }
    write_rows(call, to, own + slice->first * columns, slice->queries, 1.0F);
}

static void head_backward(const struct backward_call *call, float *base, size_t batch, size_t head)
{
    const struct attention_blocks *blocks = &call->blocks;
    size_t D = call->shape->head_size;
    size_t C = call->shape->heads * D;
    size_t columns = blocks->columns;
    size_t query = batch * call->slice.queries * 3 * C + head * D;
    float scale = (float)(1.0 / sqrt((double)D));
    struct attention_block block = attention_block_first(&call->slice);
    struct attention_keep mask;
    const struct attention_keep *keep =
        attention_keep_init(&mask, call->dropout, call->shape, batch, head);

    attention_copy_keys(base, blocks, call->shape, &call->slice,
                        call->keys != NULL ? call->keys : call->qkv, call->keys != NULL, call->type,
                        batch, head);
    memset(base + blocks->dkey, 0, blocks->rows * columns * sizeof(*base));
    memset(base + blocks->dvalue, 0, blocks->rows * columns * sizeof(*base));
    for (; block.queries > 0; attention_block_next(&block)) {
        struct query_numbers numbers;

        block_begin(call, base, batch, head, &block, &numbers);
        for (size_t k0 = 0; k0 < block.end; k0 += ATTENTION_KEYS) {
            for (size_t panel = block.first_panel; panel < block.panels; panel++) {
                panel_backward(call, base, &numbers, keep, block.first, panel, k0);
            }
            keys_backward(call, base, &block, k0);
        }
        write_rows(call, query + block.row * 3 * C, base + blocks->result + block.skipped * columns,
                   block.queries, scale);
    }
    keep_sums(call, base + blocks->dkey, batch, head, 0);
    keep_sums(call, base + blocks->dvalue, batch, head, 1);
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

static enum status run_backward(struct backward_call *call, struct stream *stream)
{
    attention_blocks_plan(call->shape, &call->blocks);
    stream_run(stream, backward_part, call);
    return STATUS_OK;
}

enum status KERNEL(attention_backward)(void *dqkv, const float *dout, const void *out,
                                       const void *qkv, const float *lse,
                                       const struct attention_shape *shape,
                                       const struct attention_dropout *dropout, float *workspace,
                                       enum dtype type, struct stream *stream)
{
    struct backward_call call = {
        .dqkv = dqkv,
        .dout = dout,
        .out = out,
        .qkv = qkv,
        .lse = lse,
        .shape = shape,
        .slice = {.queries = shape->positions},
        .dropout = dropout,
        .type = type,
        .workspace = workspace,
    };

    return run_backward(&call, stream);
}

enum status KERNEL(attention_slice_backward)(void *dqkv, float *dkeys, const float *dout,
                                             const void *out, const void *keys, const void *qkv,
                                             const float *lse, const struct attention_shape *shape,
                                             const struct attention_slice *slice,
                                             const struct attention_dropout *dropout,
                                             float *workspace, enum dtype type,
                                             struct stream *stream)
{
    struct backward_call call = {
        .dqkv = dqkv,
        .dkeys = dkeys,
        .dout = dout,
        .out = out,
        .keys = keys,
        .qkv = qkv,
        .lse = lse,
        .shape = shape,
        .slice = *slice,
        .dropout = dropout,
        .type = type,
        .workspace = workspace,
    };

    return run_backward(&call, stream);
}

#include "sharded_head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "buffer.h"
#include "head_stream.h"

static void round_to(struct guarded *floats, enum dtype type)
{
    for (size_t i = 0; i < floats->elems; i++) {
        floats->floats[i] = dtype_round(type, floats->floats[i]);
    }
}

void head_case_make(struct head_case *c, const struct head_shape *shape, enum dtype type)
{
    c->shape = *shape;
    c->type = type;
    if (c->shape.rows > head_most_rows()) {
        c->shape.rows = head_most_rows();
    }
    shape = &c->shape;
    guarded_make(&c->x, shape->rows * shape->hidden);
    guarded_make(&c->wte, shape->vocab * shape->hidden);
    guarded_make(&c->dwte, shape->vocab * shape->hidden);
    guarded_make(&c->mask, shape->rows);
    guarded_fill(&c->x, 21, 1.0F);
    guarded_fill(&c->wte, 22, 1.0F);
    guarded_fill(&c->dwte, 23, 1.0F);
    round_to(&c->x, type);
    round_to(&c->wte, type);
    c->targets = buffer_take(shape->rows * sizeof(*c->targets));
    for (size_t i = 0; i < shape->rows; i++) {
        c->mask.floats[i] = i % 3 == 1 ? 0.0F : 1.0F;
        c->targets[i] = (int32_t)(i * 7919 % shape->vocab);
    }
}

void head_case_free(struct head_case *c)
{
    guarded_free(&c->x);
    guarded_free(&c->wte);
    guarded_free(&c->dwte);
    guarded_free(&c->mask);
    buffer_give(c->targets);
}

void sharded_head_make(struct sharded_head *head, const struct kernel_ops *ops, struct head_case *c,
                       int threads, size_t count)
{
    size_t part = (c->shape.vocab + count - 1) / count;

    *head = (struct sharded_head){.ops = ops, .c = c, .count = count, .stride = c->shape.rows + 1};
    head_stream_open(threads, c->type, &head->stream);
    head->x = c->x.floats;
    head->wte = c->wte.floats;
    if (c->type != DTYPE_FP32) {
        head->x = buffer_take(c->x.elems * sizeof(uint16_t));
        head->wte = buffer_take(c->wte.elems * sizeof(uint16_t));
    }
    head->rows = buffer_take(count * head->stride * sizeof(*head->rows));
    memset(head->rows, 0xFF, count * head->stride * sizeof(*head->rows));
    for (size_t s = 0; s < count; s++) {
        struct head_shard *shard = &head->shards[s];
        size_t end = (s + 1) * part < c->shape.vocab ? (s + 1) * part : c->shape.vocab;

        shard->shape = c->shape;
        shard->shape.first_token = s * part < end ? s * part : end;
        shard->shape.vocab = end - shard->shape.first_token;
        shard->first = shard->shape.first_token * c->shape.hidden;
        guarded_make(&shard->logits, c->shape.rows * head_logits_stride(&shard->shape));
        guarded_make(&shard->dx, c->x.elems);
    }
}

void sharded_head_free(struct sharded_head *head)
{
    for (size_t s = 0; s < head->count; s++) {
        guarded_free(&head->shards[s].logits);
        guarded_free(&head->shards[s].dx);
    }
    if (head->c->type != DTYPE_FP32) {
        buffer_give(head->x);
        buffer_give(head->wte);
    }
    buffer_give(head->rows);
    head_stream_close(&head->stream);
}

static void pack(void *out, const struct guarded *in, enum dtype type)
{
    uint16_t *bits = out;

    for (size_t i = 0; i < in->elems && type != DTYPE_FP32; i++) {
        bits[i] = type == DTYPE_BF16 ? dtype_to_bf16(in->floats[i]) : dtype_to_fp16(in->floats[i]);
    }
}

static void pack_both(const struct sharded_head *head)
{
    pack(head->x, &head->c->x, head->c->type);
    pack(head->wte, &head->c->wte, head->c->type);
}

void sharded_head_logits(struct sharded_head *head)
{
    struct head_case *c = head->c;

    pack_both(head);
    for (size_t s = 0; s < head->count; s++) {
        struct head_shard *shard = &head->shards[s];

        assert_int_equal(head->ops->head_logits(shard->logits.floats, head->rows + s * head->stride,
                                                head->x, dtype_at(head->wte, c->type, shard->first),
                                                c->targets, c->mask.floats, &shard->shape, c->type,
                                                head->stream),
                         STATUS_OK);
    }
    head_stream_wait(head->stream);
}

double sharded_head_loss(struct sharded_head *head, bool gradients)
{
    struct head_case *c = head->c;
    double *losses = buffer_take(2 * c->shape.rows * sizeof(*losses));
    double sum = 0.0;

    for (size_t s = 0; s < head->count; s++) {
        struct head_shard *shard = &head->shards[s];
        struct head_rows all = {head->rows, head->stride, head->count, s};
        double *found = losses + (s == 0 ? 0 : c->shape.rows);

        assert_int_equal(head->ops->head_loss(shard->logits.floats, found, &all, c->targets,
                                              c->mask.floats, &shard->shape, gradients, c->type,
                                              head->stream),
                         STATUS_OK);
        head_stream_wait(head->stream);
        assert_memory_equal(found, losses, c->shape.rows * sizeof(*losses));
    }
    for (size_t i = 0; i < c->shape.rows; i++) {
        sum += losses[i];
    }
    buffer_give(losses);
    return sum;
}

void sharded_head_backward(struct sharded_head *head)
{
    struct head_case *c = head->c;

    pack_both(head);
    for (size_t s = 0; s < head->count; s++) {
        struct head_shard *shard = &head->shards[s];
        float *dx = head->count > 1 ? shard->dx.floats : c->x.floats;

        assert_int_equal(head->ops->head_backward(dx, c->dwte.floats + shard->first, head->x,
                                                  shard->logits.floats,
                                                  dtype_at(head->wte, c->type, shard->first),
                                                  &shard->shape, c->type, head->stream),
                         STATUS_OK);
    }
    head_stream_wait(head->stream);
    for (size_t i = 0; i < c->x.elems && head->count > 1; i++) {
        c->x.floats[i] = head->shards[0].dx.floats[i];
        for (size_t s = 1; s < head->count; s++) {
            c->x.floats[i] += head->shards[s].dx.floats[i];
        }
    }
}

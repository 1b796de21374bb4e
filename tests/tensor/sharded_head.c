#include "sharded_head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tensor/stream.h"

void head_case_make(struct head_case *c, const struct head_shape *shape)
{
    c->shape = *shape;
    guarded_make(&c->x, shape->rows * shape->hidden);
    guarded_make(&c->wte, shape->vocab * shape->hidden);
    guarded_make(&c->dwte, shape->vocab * shape->hidden);
    guarded_make(&c->mask, shape->rows);
    guarded_fill(&c->x, 21, 1.0F);
    guarded_fill(&c->wte, 22, 1.0F);
    guarded_fill(&c->dwte, 23, 1.0F);
    c->targets = calloc(shape->rows, sizeof(*c->targets));
    assert_non_null(c->targets);
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
    free(c->targets);
}

void sharded_head_make(struct sharded_head *head, const struct kernel_ops *ops, struct head_case *c,
                       int threads, size_t count)
{
    size_t part = (c->shape.vocab + count - 1) / count;

    *head = (struct sharded_head){.ops = ops, .c = c, .count = count, .stride = c->shape.rows + 1};
    assert_int_equal(stream_create(threads, &head->stream), STATUS_OK);
    head->rows = malloc(count * head->stride * sizeof(*head->rows));
    assert_non_null(head->rows);
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
    free(head->rows);
    stream_destroy(&head->stream);
}

void sharded_head_logits(struct sharded_head *head)
{
    struct head_case *c = head->c;

    for (size_t s = 0; s < head->count; s++) {
        struct head_shard *shard = &head->shards[s];

        assert_int_equal(head->ops->head_logits(shard->logits.floats, head->rows + s * head->stride,
                                                c->x.floats, c->wte.floats + shard->first,
                                                c->targets, c->mask.floats, &shard->shape,
                                                head->stream),
                         STATUS_OK);
    }
}

double sharded_head_loss(struct sharded_head *head, bool gradients)
{
    struct head_case *c = head->c;
    double *losses = calloc(2 * c->shape.rows, sizeof(*losses));
    double sum = 0.0;

    assert_non_null(losses);
    for (size_t s = 0; s < head->count; s++) {
        struct head_shard *shard = &head->shards[s];
        struct head_rows all = {head->rows, head->stride, head->count, s};
        double *found = losses + (s == 0 ? 0 : c->shape.rows);

        assert_int_equal(head->ops->head_loss(shard->logits.floats, found, &all, c->targets,
                                              c->mask.floats, &shard->shape, gradients,
                                              head->stream),
                         STATUS_OK);
        assert_memory_equal(found, losses, c->shape.rows * sizeof(*losses));
    }
    for (size_t i = 0; i < c->shape.rows; i++) {
        sum += losses[i];
    }
    free(losses);
    return sum;
}

void sharded_head_backward(struct sharded_head *head)
{
    struct head_case *c = head->c;

    for (size_t s = 0; s < head->count; s++) {
        struct head_shard *shard = &head->shards[s];
        float *dx = head->count > 1 ? shard->dx.floats : c->x.floats;

        assert_int_equal(head->ops->head_backward(
                             dx, c->dwte.floats + shard->first, c->x.floats, shard->logits.floats,
                             c->wte.floats + shard->first, &shard->shape, head->stream),
                         STATUS_OK);
    }
    for (size_t i = 0; i < c->x.elems && head->count > 1; i++) {
        c->x.floats[i] = head->shards[0].dx.floats[i];
        for (size_t s = 1; s < head->count; s++) {
            c->x.floats[i] += head->shards[s].dx.floats[i];
        }
    }
}

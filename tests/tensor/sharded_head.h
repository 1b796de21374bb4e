/*
 * sharded_head -- the head's kernels over one or several shards of the vocabulary, with the test
 * in the place of the shards' communication. Every failure is a cmocka failure.
 */
#ifndef TESTS_TENSOR_SHARDED_HEAD_H
#define TESTS_TENSOR_SHARDED_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guarded.h"
#include "tensor/dtype.h"
#include "tensor/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SHARDED_HEAD_MOST 4

/* x and wte hold numbers of the case's type, in fp32. */
struct head_case {
    struct head_shape shape;
    enum dtype type;
    struct guarded x;
    struct guarded wte;
    struct guarded dwte;
    struct guarded mask;
    int32_t *targets;
};

/* One shard of the vocabulary, between the kernels' calls. */
struct head_shard {
    struct head_shape shape;
    size_t first; /* element of wte and dwte */
    struct guarded logits;
    struct guarded dx;
};

/* A case in `count` shards of ceil(V / count) tokens, the last ones with less or none; the test
 * does what the shards' communication does. */
struct sharded_head {
    const struct kernel_ops *ops;
    struct head_case *c; /* borrows */
    struct stream *stream;
    void *x;   /* what the kernels read: in a 16-bit type a copy in it, made before each call */
    void *wte; /* likewise */
    struct head_shard shards[SHARDED_HEAD_MOST];
    size_t count;
    struct head_row *rows; /* (count, stride) */
    size_t stride;
};

/* Every third row is masked; targets are scattered over the vocabulary. */
void head_case_make(struct head_case *c, const struct head_shape *shape, enum dtype type);
void head_case_free(struct head_case *c);

void sharded_head_make(struct sharded_head *head, const struct kernel_ops *ops, struct head_case *c,
                       int threads, size_t count);
void sharded_head_free(struct sharded_head *head);

/* Logits and rows of each shard. */
void sharded_head_logits(struct sharded_head *head);

/* The sum of the losses, which all shards must find alike. */
double sharded_head_loss(struct sharded_head *head, bool gradients);

/* x becomes its gradient, in fp32 of any type: in place with one shard, else the sum of what the
 * shards have. */
void sharded_head_backward(struct sharded_head *head);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_SHARDED_HEAD_H */

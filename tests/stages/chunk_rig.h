/*
 * chunk_rig -- a GPT cut into chunks on one thread, without plan, lanes or engine: the tests call F,
 * I and W of its micro-batches themselves.
 *
 * A message is copied from the chunk's out buffer to a landing buffer, and the out buffer is filled
 * with what no result survives (NaN), as are slots and gradient sets before their first use: who reads
 * what is not theirs to read is found out.
 */
#ifndef TESTS_STAGES_CHUNK_RIG_H
#define TESTS_STAGES_CHUNK_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stages/config.h"
#include "stages/model/chunk.h"

#define CHUNK_RIG_CHUNKS_MOST       4
#define CHUNK_RIG_MICROBATCHES_MOST 4
#define CHUNK_RIG_PIECES_MOST       20

/* Zero is what stands in the comment. */
struct chunk_rig_case {
    int64_t layers[CHUNK_RIG_CHUNKS_MOST]; /* of each chunk */
    int32_t chunks;
    int32_t slices;       /* of a sequence: 1 */
    int64_t hidden;       /* 16 */
    int64_t heads;        /* 2 */
    int64_t positions;    /* 8 */
    int64_t vocab;        /* 37 */
    int64_t batch;        /* of a micro-batch: 2 */
    int32_t microbatches; /* 3 */
    int threads;          /* 1 */
    bool untied;
    enum dtype type; /* fp32 */
    double dropout;
    enum recompute recompute[CHUNK_RIG_CHUNKS_MOST];
};

/* What stands between F, I and W of a micro-batch. Of its slices F goes through the first one first, I and W
 * through the last one. */
enum chunk_rig_order {
    ORDER_ONE_BY_ONE,    /* nothing: one slot a slice, one gradient set */
    ORDER_FORWARD_FIRST, /* F of all others: a slot each, one gradient set */
    ORDER_SPLIT,         /* F of all, I of all, W of all: a slot and a gradient set each */
    CHUNK_RIG_ORDERS
};

struct chunk_rig_ends {
    void *landing_f; /* (N,C); the chunk's input */
    void *landing_b; /* (N,C); the gradient of its output */
};

struct chunk_rig {
    struct config *config;
    struct chunk_rig_case is;
    enum chunk_rig_order order;
    struct model_shape shape;
    struct device *device;
    struct params params;
    struct head_memory head;
    struct workspace workspace;
    struct chunk chunks[CHUNK_RIG_CHUNKS_MOST];
    struct chunk_rig_ends ends[CHUNK_RIG_PIECES_MOST][CHUNK_RIG_CHUNKS_MOST];
    void *out;       /* (N,C) */
    int32_t *tokens; /* (m,B,T), slice after slice of each micro-batch */
    int32_t *targets;
    float *mask;
    float loss_seed;
    int64_t consumed; /* samples before the first one */
};

/* Fails the test where something cannot be made. */
void chunk_rig_make(struct chunk_rig *rig, const struct chunk_rig_case *is,
                    enum chunk_rig_order order);

/* The loss of all micro-batches, with their gradients in rig->params and rig->head. */
double chunk_rig_train(struct chunk_rig *rig);

/* The loss without gradients. */
double chunk_rig_evaluate(struct chunk_rig *rig);

void chunk_rig_free(struct chunk_rig *rig);

#endif /* TESTS_STAGES_CHUNK_RIG_H */

/*
 * shape -- the sizes of a GPT, and which part of it a rank holds.
 *
 * Letters as everywhere: B sequences of a micro-batch, T positions, C hidden, H heads, D = C/H,
 * F inner size of the MLP, V vocabulary, L layers, N = B·T rows.
 */
#ifndef STAGES_MODEL_SHAPE_H
#define STAGES_MODEL_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stages/config.h"

#ifdef __cplusplus
extern "C" {
#endif

struct model_shape {
    size_t B;
    size_t T;
    size_t C;
    size_t H;
    size_t D;
    size_t F;
    size_t V;
    size_t L;
    size_t positions; /* rows of the position table, >= T */
    float eps;        /* of the layer norms */
    float init_std;
};

/* One contiguous run of layers on a rank. */
struct chunk_range {
    int32_t first_layer;
    int32_t layers;     /* 0 is allowed: such a chunk hands its input on */
    bool has_embedding; /* virtual stage 0 */
    bool has_head;      /* the last virtual stage */
};

void model_shape_of(const struct config *config, struct model_shape *shape_out);

/* The layers of virtual stage `virtual_stage`. */
void chunk_range_of(const struct config *config, int32_t virtual_stage,
                    struct chunk_range *range_out);

/* Parameters of the whole model: V·C + positions·C + L·(12·C² + 13·C for F = 4C) + 2·C, tied head. */
uint64_t model_parameters(const struct model_shape *shape);

/* FLOPs of a training step a token: 6·parameters (position table apart, the tied matrix once, as
 * the head) + 12·L·C·T for attention, the count that llm.c and the Megatron papers of 2021 use
 * (not halved for the causal mask). */
double model_flops_per_token(const struct model_shape *shape);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_SHAPE_H */

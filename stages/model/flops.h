/*
 * flops -- what virtual stages compute, counted and not measured.
 *
 * Products of matrices and attention of one micro-batch on one shard; what goes element by element is
 * left out, the embedding with it. Attention counts half, for its causal mask. The head is all in F of
 * the last virtual stage: logits, dX and dW. Costs for choices that every rank must make alike, and
 * before anything has run; `weir plan` and a run's trace know better.
 */
#ifndef STAGES_MODEL_FLOPS_H
#define STAGES_MODEL_FLOPS_H

#include <stdint.h>

#include "stages/config.h"
#include "stages/model/recompute.h"

#ifdef __cplusplus
extern "C" {
#endif

struct flops {
    double F;
    double I; /* what F's results are made again with included */
    double W;
};

/* One layer, a position of a sequence. */
struct flops flops_of_layer(const struct config *config, enum recompute recompute);

/* The head, a position of a sequence: all in F. */
double flops_of_head(const struct config *config);

/* A micro-batch in virtual stage `virtual_stage`. */
struct flops flops_of_stage(const struct config *config, int32_t virtual_stage);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_FLOPS_H */

/*
 * recompute -- what of a micro-batch F leaves out of its slot and I makes again.
 *
 *   none       a slot keeps all that the backward reads
 *   selective  what costs little: both norms' outputs, the attention and its log-sum-exps (from
 *              the kept Q, K, V), GELU's output (from its kept input)
 *   full       everything: a slot keeps the chunk's input, and I runs the layers once more
 *
 * What I makes again lives in the gradient set of the micro-batch, from its I to its W, so that as
 * many micro-batches have it at once as have gradients. The routines and their order are F's, so
 * every bit is F's.
 */
#ifndef STAGES_MODEL_RECOMPUTE_H
#define STAGES_MODEL_RECOMPUTE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Each leaves out what the one before it does, and more. */
enum recompute {
    RECOMPUTE_NONE,
    RECOMPUTE_SELECTIVE,
    RECOMPUTE_FULL
};

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_RECOMPUTE_H */

/*
 * slices -- how a sequence is cut for the pipeline (parallel.sequence_slices, Seq1F1B).
 *
 * A token costs a layer 4·C + 2·F for its products and 2·(t + 1) for the attention of position t to
 * itself and everything before it, in units of 2·C FLOPs; the backward costs both alike. Slices have
 * equal costs as nearly as whole tokens allow, because a pipeline runs at the pace of its slowest
 * piece; so earlier slices are longer. What cuts a sequence is its length and the layer's sizes alone,
 * so that every rank cuts it alike.
 */
#ifndef STAGES_MODEL_SLICES_H
#define STAGES_MODEL_SLICES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLICES_MOST 64

struct slices {
    size_t count;                  /* k >= 1 */
    size_t first[SLICES_MOST + 1]; /* position of each slice; behind the last one T */
};

/* Cuts T positions into `count` slices, each of at least one: 1 <= count <= SLICES_MOST, count <= T.
 * Each boundary is where the cost before it is nearest to its share of the whole, the earlier one of
 * two. */
void slices_cut(struct slices *slices, size_t count, size_t T, size_t C, size_t F);

size_t slices_longest(const struct slices *slices);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_SLICES_H */

/*
 * own_rows -- the residual stream of a micro-batch by rows: from a shard's own rows to all rows and
 * back (sequence parallelism, Korthikanti et al. 2022).
 *
 *   own_rows_gather()   what a product reads that is split over the shards by its output's columns, or
 *                       its dY where it is split by its input's rows: all rows, of own ones
 *   own_rows_sum()      what such a product makes: of partial sums over all rows, the whole sums of
 *                       own ones
 *   own_rows_reduce()   what each shard has added up over its own rows, once a step: gradients of
 *                       layer norms and of biases behind row-parallel products
 *
 * Without sequence parallelism the own rows are all: nothing is gathered, sums are made of all rows,
 * and nothing is left to reduce. The sums have the same bits either way.
 */
#ifndef STAGES_MODEL_OWN_ROWS_H
#define STAGES_MODEL_OWN_ROWS_H

#include <stddef.h>

#include "base/status.h"
#include "mixedprec/params.h"
#include "stages/model/layer.h"
#include "stages/model/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* own (n,C) in the model dtype; *all_out (N,C) is it, or lies in the scratch until the next call. */
enum status own_rows_gather(const struct model_shape *shape, const struct layer_scratch *scratch,
                            const void *own, const void **all_out);

/* scratch->hidden (N,C), or `partial` in its place without shards: *own_out (n,C) lends the sums. */
enum status own_rows_sum(const struct model_shape *shape, const struct layer_scratch *scratch,
                         float *partial, float **own_out);

/* Gradients of `params` with by_rows become the sums over the shards, in ascending order. Before
 * replicas are summed. Works in scratch->hidden. */
enum status own_rows_reduce(const struct model_shape *shape, const struct layer_scratch *scratch,
                            const struct params *params);

/* Elements that own_rows_reduce() sums. */
size_t own_rows_reduced(const struct params *params);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_OWN_ROWS_H */

/*
 * workspace -- what the actions of a rank work in, one at a time: nothing in it outlives an action.
 *
 * One for all chunks of a rank. What the tensor-parallel shards read of one another lies in a block
 * that they share; without shards that block is empty.
 */
#ifndef STAGES_MODEL_WORKSPACE_H
#define STAGES_MODEL_WORKSPACE_H

#include <stdbool.h>

#include "base/status.h"
#include "stages/model/head.h"
#include "stages/model/layer.h"
#include "stages/model/shape.h"
#include "stages/model/tensor_parallel.h"
#include "tensor/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

struct workspace {
    struct tensor_parallel tp;
    struct layer_scratch scratch;
    struct head_buffers head; /* with a head only */
    /* What F makes of a layer and does not keep; with recompute only. */
    struct layer_stash stash;
    void *output;               /* (n,C); with full recompute only */
    uint64_t shared_rows_bytes; /* so far, of tensor_parallel_share() */
    struct arena arena;         /* owns */
    struct arena shared;        /* placed by the engine where tp > 1 */
};

/* Plans both blocks; `has_head`: a chunk of this rank has the head; `recompute`: of the chunk that
 * leaves out most; `kernels`: those that will work in it. */
void workspace_measure(struct workspace *workspace, const struct model_shape *shape, bool has_head,
                       enum recompute recompute, const struct kernel_ops *kernels, int threads);

/* After both blocks have memory. */
void workspace_place(struct workspace *workspace, const struct model_shape *shape, bool has_head,
                     enum recompute recompute, const struct kernel_ops *kernels, int threads);

void workspace_release(struct workspace *workspace);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_WORKSPACE_H */

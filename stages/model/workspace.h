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
    struct arena arena;       /* owns */
    struct arena shared;      /* placed by the engine where tp > 1 */
};

/* Plans both blocks; `has_head`: a chunk of this rank has the head. */
void workspace_measure(struct workspace *workspace, const struct model_shape *shape, bool has_head,
                       int threads);

/* After both blocks have memory. */
void workspace_place(struct workspace *workspace, const struct model_shape *shape, bool has_head,
                     int threads);

void workspace_release(struct workspace *workspace);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_WORKSPACE_H */

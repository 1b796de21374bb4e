#include "stages/model/workspace.h"

static void carve(struct workspace *workspace, const struct model_shape *shape, bool has_head,
                  enum recompute recompute, const struct kernel_ops *kernels, int threads)
{
    struct head_shape head = {.rows = model_rows(shape), .hidden = shape->C, .vocab = shape->vocab};

    layer_scratch_carve(&workspace->scratch, shape, kernels, threads, &workspace->arena,
                        &workspace->shared);
    workspace->scratch.tp = &workspace->tp;
    workspace->tp.shared_bytes = &workspace->shared_rows_bytes;
    if (has_head) {
        head_buffers_carve(&workspace->head, &head, (int32_t)shape->shards, kernels,
                           &workspace->arena, &workspace->shared);
    }
    layer_stash_carve_again(&workspace->stash, shape, recompute, &workspace->arena);
    if (recompute == RECOMPUTE_FULL) {
        workspace->output = model_take(shape, &workspace->arena, model_own_rows(shape) * shape->C);
    }
}

void workspace_measure(struct workspace *workspace, const struct model_shape *shape, bool has_head,
                       enum recompute recompute, const struct kernel_ops *kernels, int threads)
{
    arena_measure(&workspace->arena, "workspace");
    arena_measure(&workspace->shared, "shared workspace");
    carve(workspace, shape, has_head, recompute, kernels, threads);
}

void workspace_place(struct workspace *workspace, const struct model_shape *shape, bool has_head,
                     enum recompute recompute, const struct kernel_ops *kernels, int threads)
{
    carve(workspace, shape, has_head, recompute, kernels, threads);
}

void workspace_release(struct workspace *workspace)
{
    arena_release(&workspace->arena);
    arena_release(&workspace->shared);
}

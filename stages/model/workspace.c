#include "stages/model/workspace.h"

static void carve(struct workspace *workspace, const struct model_shape *shape, bool has_head,
                  int threads)
{
    struct head_shape head = {
        .rows = shape->B * shape->T, .hidden = shape->C, .vocab = shape->vocab};

    layer_scratch_carve(&workspace->scratch, shape, threads, &workspace->arena, &workspace->shared);
    workspace->scratch.tp = &workspace->tp;
    if (has_head) {
        head_buffers_carve(&workspace->head, &head, (int32_t)shape->shards, &workspace->arena,
                           &workspace->shared);
    }
}

void workspace_measure(struct workspace *workspace, const struct model_shape *shape, bool has_head,
                       int threads)
{
    arena_measure(&workspace->arena, "workspace");
    arena_measure(&workspace->shared, "shared workspace");
    carve(workspace, shape, has_head, threads);
}

void workspace_place(struct workspace *workspace, const struct model_shape *shape, bool has_head,
                     int threads)
{
    carve(workspace, shape, has_head, threads);
}

void workspace_release(struct workspace *workspace)
{
    arena_release(&workspace->arena);
    arena_release(&workspace->shared);
}

#include "tests/emulated/gpu_run.h"

#include "tensor/cuda/device_cuda.h"
#include "tests/emulated/gpu_order.h"

static void begin_rank(void *context)
{
    const uint64_t *seed = context;

    gpu_begin(*seed);
}

struct rig_hooks gpu_run_hooks(uint64_t *seed)
{
    return (struct rig_hooks){.context = seed, .backend = device_cuda(), .on_begin = begin_rank};
}

void gpu_run_train(const struct base_run *base, uint64_t seed, struct rig_result *run)
{
    const struct rig_hooks hooks = gpu_run_hooks(&seed);
    struct base_run on = *base;

    on.hooks = &hooks;
    base_train(&on, run);
}

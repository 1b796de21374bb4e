#include "tests/emulated/nccl_job.h"

/* cmocka.h needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "collectives/cuda/comm_nccl.h"
#include "stages/engine.h"
#include "tensor/cuda/device_cuda.h"
#include "tests/emulated/fake_cuda.h"
#include "tests/emulated/fake_nccl.h"
#include "tests/emulated/gpu_order.h"

/* Of the job that runs: read by its ranks. */
static uint64_t order_seed;

void nccl_job_order(uint64_t seed)
{
    order_seed = seed;
}

static void begin_rank(void *context)
{
    (void)context;
    gpu_begin(order_seed);
    fake_cuda_share();
}

static void over_nccl(void *context, struct engine_options *options)
{
    (void)context;
    options->plane = ENGINE_PLANE_NCCL;
    options->open_nccl = comm_nccl_open;
}

struct rig_hooks nccl_job_hooks(void)
{
    return (struct rig_hooks){
        .backend = device_cuda(), .on_begin = begin_rank, .on_open = over_nccl};
}

struct rig_hooks nccl_job_staged_hooks(void)
{
    return (struct rig_hooks){.backend = device_cuda(), .on_begin = begin_rank};
}

void nccl_job_train(const struct base_run *base, struct rig_hooks hooks, uint64_t seed,
                    struct rig_result *run)
{
    struct base_run on = *base;

    order_seed = seed;
    on.hooks = &hooks;
    base_train(&on, run);
    assert_int_equal(fake_nccl_left(), 0);
}

void nccl_job_catch_forgotten_waits(const struct base_run *base, struct rig_hooks hooks)
{
    static struct rig_result right;
    static struct rig_result run;
    int caught = 0;

    nccl_job_train(base, hooks, 1, &right);
    for (uint64_t seed = 1; seed <= 5 && caught == 0; seed++) {
        struct base_run on = *base;
        char text[256];

        order_seed = seed;
        on.hooks = &hooks;
        fake_cuda_forget_waits(1);
        base_try(&on, &run);
        fake_cuda_forget_waits(0);
        caught += run.status < 0 || !rig_same(&right, &run, text, sizeof(text));
        rig_release(&run);
    }
    rig_release(&right);
    assert_true(caught > 0);
}

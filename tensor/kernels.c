#include "tensor/kernels.h"

#include <stdbool.h>
#include <string.h>

#include "tensor/kernels/layernorm.h"
#include "tensor/kernels_cpu.h"

#ifdef WEIR_KERNELS_V3
static bool processor_runs_v3(void)
{
    return __builtin_cpu_supports("x86-64-v3");
}
#endif

const struct kernel_ops *kernels_cpu_find(const char *variant)
{
#ifdef WEIR_KERNELS_V3
    if (strcmp(variant, kernels_cpu_v3.variant) == 0) {
        return processor_runs_v3() ? &kernels_cpu_v3 : NULL;
    }
#endif
    return strcmp(variant, kernels_cpu_base.variant) == 0 ? &kernels_cpu_base : NULL;
}

const struct kernel_ops *kernels_cpu(void)
{
    const struct kernel_ops *fastest = kernels_cpu_find("cpu-v3");

    return fastest != NULL ? fastest : &kernels_cpu_base;
}

/* A pair of sums for each block of rows; how many blocks there are does not depend on the team. */
size_t layernorm_partials_floats(size_t C, int threads)
{
    (void)threads;
    return (size_t)2 * LAYERNORM_MOST_BLOCKS * C;
}

#include "tensor/kernels.h"

#include <string.h>
#ifdef WEIR_KERNELS_V3
#include <stdbool.h>
#if __GNUC__ < 12
#include <cpuid.h>
#endif
#endif

#include "tensor/kernels_cpu.h"

#ifdef WEIR_KERNELS_V3
#if __GNUC__ >= 12
/* The builtin has asked the processor and the system at start: no instruction that a virtual
 * machine intercepts, so that a product may ask for the table each time. */
static bool processor_runs_v3(void)
{
    return __builtin_cpu_supports("x86-64-v3") != 0;
}
#else
/* All that the compiler may use in files compiled for x86-64-v3 and the baseline lacks. The
 * builtin also asks whether the system saves the wide registers; three small features it does not
 * know in these compilers. */
static bool processor_runs_v3(void)
{
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;

    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2") ||
        !__builtin_cpu_supports("popcnt")) {
        return false;
    }
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & bit_F16C) == 0 ||
        (ecx & bit_MOVBE) == 0) {
        return false;
    }
    return __get_cpuid(0x80000001U, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_LZCNT) != 0;
}
#endif
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

size_t head_logits_stride(const struct head_shape *shape)
{
    return (shape->vocab + 15) / 16 * 16;
}

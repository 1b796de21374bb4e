#include "stages/backends.h"

#include <stdio.h>

#include "stages/config.h"
#include "tensor/device.h"

#define LOOK_BYTES 256

#ifdef WEIR_CUDA

#include "tensor/cuda/device_cuda.h"

static int32_t look(char *words, size_t bytes)
{
    return device_cuda_look(words, bytes);
}

static const struct device_backend *gpu(void)
{
    return device_cuda();
}

#else

static int32_t look(char *words, size_t bytes)
{
    (void)snprintf(words, bytes, "this build computes on CPUs only");
    return 0;
}

static const struct device_backend *gpu(void)
{
    return NULL;
}

#endif

#ifdef WEIR_NCCL

#include "collectives/cuda/comm_nccl.h"

backend_nccl_fn backend_nccl(void)
{
    comm_nccl_prepare();
    return comm_nccl_open;
}

static bool has_nccl(void)
{
    return true;
}

#else

backend_nccl_fn backend_nccl(void)
{
    return NULL;
}

static bool has_nccl(void)
{
    return false;
}

#endif

int32_t backend_gpus(void)
{
    char words[LOOK_BYTES];

    return look(words, sizeof(words));
}

bool backend_plans_nccl(const struct device_backend *backend, int32_t local_ranks)
{
    return has_nccl() && !device_backend_tensors_are_here(backend) && backend_gpus() >= local_ranks;
}

int32_t backend_ordinal(int32_t local_rank)
{
    const int32_t gpus = backend_gpus();

    return gpus > 0 ? local_rank % gpus : 0;
}

const struct device_backend *backend_planned(const struct config *config)
{
    const enum config_device asked = config->parallel.device;

    if (gpu() == NULL || asked == CONFIG_DEVICE_CPU ||
        (asked == CONFIG_DEVICE_AUTO && backend_gpus() == 0)) {
        return device_cpu();
    }
    return gpu();
}

enum status backend_choose(const struct config *config, const struct device_backend **backend_out)
{
    char words[LOOK_BYTES];

    if (config->parallel.device == CONFIG_DEVICE_CUDA && gpu() == NULL) {
        return status_fail(STATUS_ERR_REFUSED,
                           "parallel.device: cuda: this build of weir computes on CPUs only; cmake "
                           "--preset cuda builds the other");
    }
    if (config->parallel.device == CONFIG_DEVICE_CUDA && look(words, sizeof(words)) == 0) {
        return status_fail(STATUS_ERR_REFUSED, "parallel.device: cuda: %s", words);
    }
    *backend_out = backend_planned(config);
    return STATUS_OK;
}

void backend_explain(const struct config *config, char *text, size_t bytes)
{
    char words[LOOK_BYTES];

    text[0] = '\0';
    if (config->parallel.device == CONFIG_DEVICE_AUTO && gpu() != NULL) {
        const int32_t gpus = look(words, sizeof(words));

        (void)snprintf(text, bytes, "parallel.device: auto is %s: %s", gpus > 0 ? "cuda" : "cpu",
                       words);
    }
}

/* For the tests of kernels on a real GPU: managed memory, which both sides reach by the same pointer. */
#include "buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

static void check(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fail_msg("%s: %s", what, cudaGetErrorString(error));
    }
}

void *buffer_take(size_t bytes)
{
    void *memory = NULL;

    check(cudaMallocManaged(&memory, bytes > 0 ? bytes : 1, cudaMemAttachGlobal),
          "memory of a test");
    memset(memory, 0, bytes);
    return memory;
}

void buffer_give(void *memory)
{
    check(cudaFree(memory), "giving memory of a test back");
}

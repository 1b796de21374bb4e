/* For the tests of the head and of projections: the GPU's kernels on a stream of a device, in as many orders of blocks and threads as there
 * would be teams where the GPU is emulated, as often where it is real. */
#include "head_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tensor/cuda/device_cuda.h"
#include "tensor/cuda/kernels_cuda.h"
#include "tensor/device.h"
#include "tests/emulated/gpu_order.h"

static struct device *device(void)
{
    static struct device *opened;
    const struct device_config config = {.threads = 1};

    if (opened == NULL) {
        assert_int_equal(device_open(device_cuda(), &config, &opened), STATUS_OK);
    }
    return opened;
}

const struct kernel_ops *head_table(size_t number)
{
    return number == 0 ? kernels_cuda() : NULL;
}

void head_stream_open(int threads, enum dtype type, struct stream **stream_out)
{
    (void)type;
    gpu_order_kernels((uint64_t)(threads - 1));
    *stream_out = device_stream(device());
}

void head_stream_wait(struct stream *stream)
{
    assert_ptr_equal(stream, device_stream(device()));
    assert_int_equal(device_wait(device(), NULL, CLOCK_NEVER), STATUS_OK);
}

void head_stream_close(struct stream **stream)
{
    *stream = NULL;
}

/* A row is a block's, and knows nothing of others. */
size_t head_most_rows(void)
{
    return 16;
}

double head_dlogits_rounding(enum dtype type)
{
    switch (type) {
    case DTYPE_BF16:
        return 0x1p-9;
    case DTYPE_FP16:
        return 0x1p-12;
    default:
        return 0.0;
    }
}

bool head_has_epilogues(void)
{
    return true;
}

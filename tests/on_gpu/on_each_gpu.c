/* For the tests of kernels: those of a real GPU, as often as there would be teams, so that what must not depend on the
 * team must be the same every time. */
#include "on_each.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tensor/cuda/device_cuda.h"
#include "tensor/device.h"

/* A check reads what a kernel wrote as soon as the call returns: with this variable it does so when the
 * kernel has ended. */
#define BLOCKING "CUDA_LAUNCH_BLOCKING"

static struct device *device(void)
{
    static struct device *opened;
    const struct device_config config = {.threads = 1};
    const char *blocking = getenv(BLOCKING);

    if (blocking == NULL || strcmp(blocking, "1") != 0) {
        fail_msg("%s is not 1 in the environment, as ctest and tests/gpu set it", BLOCKING);
    }
    if (opened == NULL && device_open(device_cuda(), &config, &opened) < 0) {
        fail_msg("%s", status_last()->message);
    }
    return opened;
}

void on_each_variant_and_team(on_each_fn check, void *context)
{
    for (int threads = 1; threads <= ON_EACH_MOST_THREADS; threads++) {
        check(device_kernels(device()), device_stream(device()), threads, context);
        assert_int_equal(device_wait(device(), NULL, CLOCK_NEVER), STATUS_OK);
    }
}

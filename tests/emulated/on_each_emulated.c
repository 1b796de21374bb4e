/* For the tests of kernels: the GPU's, emulated, in as many orders of blocks and threads as there would be
 * teams. */
#include "on_each.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/cuda/kernels_cuda.h"
#include "tensor/stream.h"
#include "tests/emulated/cuda_on_host_seed.h"

void on_each_variant_and_team(on_each_fn check, void *context)
{
    for (int threads = 1; threads <= ON_EACH_MOST_THREADS; threads++) {
        struct stream *stream = NULL;

        assert_int_equal(stream_create(threads, &stream), STATUS_OK);
        cuda_on_host_seed((uint64_t)(threads - 1));
        check(kernels_cuda(), stream, threads, context);
        stream_destroy(&stream);
    }
}

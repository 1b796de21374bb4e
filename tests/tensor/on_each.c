#include "on_each.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/kernels.h"
#include "tensor/kernels_cpu.h"
#include "tensor/stream.h"

void on_each_variant_and_team(on_each_fn check, void *context)
{
    static const char *const variants[] = {"cpu-base", "cpu-v3"};

    for (size_t v = 0; v < sizeof(variants) / sizeof(variants[0]); v++) {
        const struct kernel_ops *ops = kernels_cpu_find(variants[v]);
        for (int threads = 1; ops != NULL && threads <= ON_EACH_MOST_THREADS; threads++) {
            struct stream *stream = NULL;
            assert_int_equal(stream_create(threads, &stream), STATUS_OK);
            check(ops, stream, threads, context);
            stream_destroy(&stream);
        }
    }
}

#include "head_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/gemm.h"
#include "tensor/kernels.h"
#include "tensor/kernels_cpu.h"
#include "tensor/stream.h"

const struct kernel_ops *head_table(size_t number)
{
    static const char *const variants[] = {"cpu-base", "cpu-v3"};

    return number < 2 ? kernels_cpu_find(variants[number]) : NULL;
}

void head_stream_open(int threads, enum dtype type, struct stream **stream_out)
{
    assert_int_equal(stream_create(threads, stream_out), STATUS_OK);
    if (type != DTYPE_FP32) {
        assert_int_equal(stream_reserve(*stream_out, GEMM_SCRATCH_FLOATS), STATUS_OK);
    }
}

void head_stream_wait(struct stream *stream)
{
    (void)stream;
}

void head_stream_close(struct stream **stream)
{
    stream_destroy(stream);
}

size_t head_most_rows(void)
{
    return SIZE_MAX;
}

double head_dlogits_rounding(enum dtype type)
{
    (void)type;
    return 0.0;
}

bool head_has_epilogues(void)
{
    return false;
}

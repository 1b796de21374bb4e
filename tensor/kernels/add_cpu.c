#include "tensor/kernels/add.h"

#include "tensor/stream.h"

#define GRAIN 1024

struct sum {
    float *out;
    const float *a;
    const float *b;
    size_t elems;
};

static void add_part(void *context, int part, int parts)
{
    const struct sum *sum = context;
    float *out = sum->out;
    const float *a = sum->a;
    const float *b = sum->b;
    size_t begin = 0;
    size_t end = 0;

    stream_share(sum->elems, GRAIN, part, parts, &begin, &end);
    KERNEL_INDEPENDENT
    for (size_t i = begin; i < end; i++) {
        out[i] = a[i] + b[i];
    }
}

enum status KERNEL(add)(float *out, const float *a, const float *b, size_t elems,
                        struct stream *stream)
{
    struct sum sum = {.out = out, .a = a, .b = b, .elems = elems};

    stream_run(stream, add_part, &sum);
    return STATUS_OK;
}

#include "tensor/kernels/count_zeros.h"

#include "tensor/stream.h"

#define GRAIN 1024

struct zeros {
    const float *in;
    size_t elems;
    size_t counts[STREAM_MAX_THREADS]; /* of each member */
};

static void count_part(void *context, int part, int parts)
{
    struct zeros *zeros = context;
    const float *in = zeros->in;
    size_t count = 0;
    size_t begin = 0;
    size_t end = 0;

    stream_share(zeros->elems, GRAIN, part, parts, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        count += in[i] == 0.0F ? 1 : 0;
    }
    zeros->counts[part] = count;
}

enum status KERNEL(count_zeros)(size_t *count_out, const float *in, size_t elems,
                                struct stream *stream)
{
    struct zeros zeros = {.in = in, .elems = elems};

    *count_out = 0;
    stream_run(stream, count_part, &zeros);
    for (int part = 0; part < stream_threads(stream); part++) {
        *count_out += zeros.counts[part];
    }
    return STATUS_OK;
}

#include "tensor/kernels/convert.h"

#include "tensor/kernels/typed_cpu.h"
#include "tensor/stream.h"

struct convert {
    void *out;
    const void *in;
    enum dtype out_type;
    enum dtype in_type;
    size_t elems;
};

static void convert_part(void *context, int part, int parts)
{
    const struct convert *c = context;
    float buffer[TYPED_BLOCK];
    size_t at = 0;
    size_t end = 0;

    stream_share(c->elems, TYPED_BLOCK, part, parts, &at, &end);
    if (c->out_type == c->in_type) {
        memcpy(dtype_at(c->out, c->out_type, at), dtype_const_at(c->in, c->in_type, at),
               (end - at) * dtype_bytes(c->in_type));
    } else if (c->out_type == DTYPE_FP32) {
        typed_load((float *)c->out + at, c->in, c->in_type, at, end - at);
    } else if (c->in_type == DTYPE_FP32) {
        typed_store(c->out, c->out_type, at, (const float *)c->in + at, end - at);
    } else {
        for (; at < end; at += TYPED_BLOCK) {
            const size_t elems = typed_elems(at, end, TYPED_BLOCK);
            typed_load(buffer, c->in, c->in_type, at, elems);
            typed_store(c->out, c->out_type, at, buffer, elems);
        }
    }
}

enum status KERNEL(convert)(void *out, enum dtype out_type, const void *in, enum dtype in_type,
                            size_t elems, struct stream *stream)
{
    struct convert convert = {
        .out = out, .in = in, .out_type = out_type, .in_type = in_type, .elems = elems};

    if (elems == 0 || out == in) {
        return STATUS_OK;
    }
    if (stream == NULL) {
        convert_part(&convert, 0, 1);
    } else {
        stream_run(stream, convert_part, &convert);
    }
    return STATUS_OK;
}

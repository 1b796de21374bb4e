#include "tensor/cuda/kernel.cuh"

#include "tensor/kernels/convert.h"

#define THREADS 256
#define BLOCKS  4096

template <typename OUT, typename IN>
__global__ void convert_elements(OUT *out, const IN *in, size_t elems)
{
    FOR_EACH(i, elems)
    {
        narrow(&out[i], widen(in[i]));
    }
}

/* Between equal formats the bits, a NaN's too. */
template <typename NUMBER>
__global__ void copy_elements(NUMBER *out, const NUMBER *in, size_t elems)
{
    FOR_EACH(i, elems)
    {
        out[i] = in[i];
    }
}

template <typename OUT, typename IN>
static enum status launch_convert(OUT *out, const IN *in, size_t elems, struct stream *stream)
{
    LAUNCH((convert_elements<OUT, IN>), grid_of(elems, THREADS, BLOCKS), THREADS, stream, out, in,
           elems);
}

template <typename OUT>
static enum status convert_to(OUT *out, const void *in, enum dtype in_type, size_t elems,
                              struct stream *stream)
{
    BY_TYPE(in_type, return launch_convert(out, (const NUMBER *)in, elems, stream));
}

template <typename NUMBER>
static enum status launch_copy(NUMBER *out, const NUMBER *in, size_t elems, struct stream *stream)
{
    LAUNCH(copy_elements<NUMBER>, grid_of(elems, THREADS, BLOCKS), THREADS, stream, out, in, elems);
}

enum status KERNEL(convert)(void *out, enum dtype out_type, const void *in, enum dtype in_type,
                            size_t elems, struct stream *stream)
{
    if (elems == 0 || (out == in && out_type == in_type)) {
        return STATUS_OK;
    }
    if (out_type == in_type) {
        BY_TYPE(out_type, return launch_copy((NUMBER *)out, (const NUMBER *)in, elems, stream));
    }
    BY_TYPE(out_type, return convert_to((NUMBER *)out, in, in_type, elems, stream));
}

#include "tensor/kernels/combine.h"

#include <math.h>
#include <string.h>

/* Floats of a block. The same block of eight inputs and the sum fit into the nearest cache. */
#define BLOCK ((size_t)512)

typedef void (*fold_fn)(float *out, const float *a, const float *b, size_t elems);
typedef void (*pair_fn)(float *first, float *second, const float *a, const float *b, size_t elems);

/* A NaN that is `a` stays, because nothing is compared with it; one that is `b` is not <= a. */
static inline float larger(float a, float b)
{
    return a >= b || isnan(a) ? a : b;
}

static void fold_sum(float *out, const float *a, const float *b, size_t elems)
{
    KERNEL_INDEPENDENT
    for (size_t i = 0; i < elems; i++) {
        out[i] = a[i] + b[i];
    }
}

static void fold_max(float *out, const float *a, const float *b, size_t elems)
{
    KERNEL_INDEPENDENT
    for (size_t i = 0; i < elems; i++) {
        out[i] = larger(a[i], b[i]);
    }
}

/* Two tensors into two, what two ranks do: no block between. */
static void pair_sum(float *first, float *second, const float *a, const float *b, size_t elems)
{
    KERNEL_INDEPENDENT
    for (size_t i = 0; i < elems; i++) {
        const float sum = a[i] + b[i];
        first[i] = sum;
        second[i] = sum;
    }
}

static void pair_max(float *first, float *second, const float *a, const float *b, size_t elems)
{
    KERNEL_INDEPENDENT
    for (size_t i = 0; i < elems; i++) {
        const float most = larger(a[i], b[i]);
        first[i] = most;
        second[i] = most;
    }
}

/* The general way: folds a block of all inputs, then writes it to all outputs. */
static void combine_block(float *const *outs, size_t out_count, const float *const *ins,
                          size_t in_count, size_t begin, size_t elems, fold_fn fold)
{
    float block[BLOCK];
    const float *folded = ins[0] + begin;

    for (size_t k = 1; k < in_count; k++) {
        fold(block, folded, ins[k] + begin, elems);
        folded = block;
    }
    for (size_t k = 0; k < out_count; k++) {
        /* With one input an output may be that input. */
        memmove(outs[k] + begin, folded, elems * sizeof(float));
    }
}

enum status KERNEL(combine)(float *const *outs, size_t out_count, const float *const *ins,
                            size_t in_count, size_t elems, enum combine_op op)
{
    const fold_fn fold = op == COMBINE_SUM ? fold_sum : fold_max;
    const pair_fn pair = op == COMBINE_SUM ? pair_sum : pair_max;

    if (in_count == 2 && out_count == 1) {
        fold(outs[0], ins[0], ins[1], elems);
        return STATUS_OK;
    }
    if (in_count == 2 && out_count == 2) {
        pair(outs[0], outs[1], ins[0], ins[1], elems);
        return STATUS_OK;
    }
    for (size_t begin = 0; begin < elems; begin += BLOCK) {
        const size_t left = elems - begin;

        combine_block(outs, out_count, ins, in_count, begin, left < BLOCK ? left : BLOCK, fold);
    }
    return STATUS_OK;
}

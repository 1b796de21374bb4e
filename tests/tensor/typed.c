#include "typed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* A NaN in both 16-bit formats. */
#define NAN_HALF ((uint16_t)0x7FFFU)

/* A half float behind an odd count of 16-bit numbers belongs to the band. */
static uint16_t *odd_half(const struct typed *typed)
{
    if (typed->type == DTYPE_FP32 || typed->elems % 2 == 0) {
        return NULL;
    }
    return (uint16_t *)typed->data + typed->elems;
}

void typed_make(struct typed *typed, enum dtype type, size_t elems)
{
    typed->type = type;
    typed->elems = elems;
    guarded_make(&typed->memory, type == DTYPE_FP32 ? elems : (elems + 1) / 2);
    typed->data = typed->memory.floats;
    if (type != DTYPE_FP32) {
        for (size_t i = 0; i < (elems + 1) / 2 * 2; i++) {
            ((uint16_t *)typed->data)[i] = NAN_HALF;
        }
    }
}

float typed_at(const struct typed *typed, size_t index)
{
    if (typed->type == DTYPE_FP32) {
        return ((const float *)typed->data)[index];
    }
    const uint16_t bits = ((const uint16_t *)typed->data)[index];
    return typed->type == DTYPE_BF16 ? dtype_from_bf16(bits) : dtype_from_fp16(bits);
}

void typed_set(struct typed *typed, size_t index, float number)
{
    if (typed->type == DTYPE_FP32) {
        ((float *)typed->data)[index] = number;
    } else {
        ((uint16_t *)typed->data)[index] =
            typed->type == DTYPE_BF16 ? dtype_to_bf16(number) : dtype_to_fp16(number);
    }
}

void typed_fill(struct typed *typed, uint32_t seed, float range)
{
    struct guarded numbers;

    guarded_make(&numbers, typed->elems);
    guarded_fill(&numbers, seed, range);
    for (size_t i = 0; i < typed->elems; i++) {
        typed_set(typed, i, numbers.floats[i]);
    }
    guarded_free(&numbers);
}

void typed_copy(struct typed *typed, const struct typed *from)
{
    typed_make(typed, from->type, from->elems);
    if (from->elems != 0) {
        memcpy(typed->data, from->data, from->elems * dtype_bytes(from->type));
    }
}

void typed_round(struct typed *typed, enum dtype type, const struct guarded *from)
{
    typed_make(typed, type, from->elems);
    for (size_t i = 0; i < from->elems; i++) {
        typed_set(typed, i, from->floats[i]);
    }
}

void typed_widen(struct guarded *floats, const struct typed *from)
{
    guarded_make(floats, from->elems);
    for (size_t i = 0; i < from->elems; i++) {
        floats->floats[i] = typed_at(from, i);
    }
}

void typed_equal(const struct typed *a, const struct typed *b)
{
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->elems, b->elems);
    assert_memory_equal(a->data, b->data, a->elems * dtype_bytes(a->type));
}

void typed_free(struct typed *typed)
{
    const uint16_t *half = odd_half(typed);

    if (half != NULL && *half != NAN_HALF) {
        fail_msg("the band behind %zu numbers of %s was written to", typed->elems,
                 dtype_text(typed->type));
    }
    guarded_free(&typed->memory);
    typed->data = NULL;
}

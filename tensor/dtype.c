#include "tensor/dtype.h"

#include <string.h>

#include "base/check.h"

size_t dtype_bytes(enum dtype type)
{
    return type == DTYPE_FP32 ? 4 : 2;
}

const char *dtype_text(enum dtype type)
{
    static const char *const texts[DTYPES] = {"fp32", "bf16", "fp16"};

    ENSURE(type >= 0 && type < DTYPES, "number format %d", (int)type);
    return texts[type];
}

double dtype_largest(enum dtype type)
{
    static const double largest[DTYPES] = {0x1.fffffep127, 0x1.fep127, 65504.0};

    ENSURE(type >= 0 && type < DTYPES, "number format %d", (int)type);
    return largest[type];
}

static uint32_t bits_of(float number)
{
    uint32_t bits = 0;

    memcpy(&bits, &number, sizeof(bits));
    return bits;
}

static float number_of(uint32_t bits)
{
    float number = 0.0F;

    memcpy(&number, &bits, sizeof(number));
    return number;
}

float dtype_from_bf16(uint16_t bits)
{
    return number_of((uint32_t)bits << 16);
}

uint16_t dtype_to_bf16(float number)
{
    uint32_t bits = bits_of(number);

    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
        /* A NaN whose upper half has no fraction must not become an infinity. */
        return (uint16_t)((bits >> 16) | 0x0040U);
    }
    return (uint16_t)((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

float dtype_from_fp16(uint16_t bits)
{
    uint32_t sign = ((uint32_t)bits & 0x8000U) << 16;
    uint32_t exponent = ((uint32_t)bits >> 10) & 0x1FU;
    uint32_t fraction = (uint32_t)bits & 0x3FFU;

    if (exponent == 0x1FU) {
        uint32_t quiet = fraction != 0 ? 0x00400000U : 0;

        return number_of(sign | 0x7F800000U | quiet | (fraction << 13));
    }
    if (exponent == 0) {
        /* A multiple of 2^-24, exact in fp32. */
        float magnitude = (float)fraction * 0x1p-24F;

        return sign != 0 ? -magnitude : magnitude;
    }
    return number_of(sign | ((exponent + 112U) << 23) | (fraction << 13));
}

uint16_t dtype_to_fp16(float number)
{
    uint32_t bits = bits_of(number);
    uint32_t sign = (bits >> 16) & 0x8000U;
    uint32_t magnitude = bits & 0x7FFFFFFFU;

    if (magnitude > 0x7F800000U) {
        return (uint16_t)(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
    }
    if (magnitude >= 0x477FF000U) {
        return (uint16_t)(sign | 0x7C00U); /* 65520 and more round to 2^16 */
    }
    if (magnitude < 0x38800000U) {
        /* Below 2^-14: adding 0.5 leaves a multiple of 2^-24, rounded as fp32 rounds. */
        float shifted = number_of(magnitude) + 0.5F;

        return (uint16_t)(sign | (bits_of(shifted) - 0x3F000000U));
    }
    magnitude += 0xFFFU + ((magnitude >> 13) & 1U);
    return (uint16_t)(sign | ((magnitude - 0x38000000U) >> 13));
}

float dtype_round(enum dtype type, float number)
{
    switch (type) {
    case DTYPE_BF16:
        return dtype_from_bf16(dtype_to_bf16(number));
    case DTYPE_FP16:
        return dtype_from_fp16(dtype_to_fp16(number));
    default:
        return number;
    }
}

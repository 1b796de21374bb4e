/*
 * math -- exp, log and tanh in fp32 for loops that the compiler turns into vector code.
 *
 * glibc offers vector versions only under fast-math, and its scalar ones cannot be taken into a
 * loop. These are polynomials without a branch: special cases are decided by selects of bits, so
 * the vectoriser takes any loop around them and an element's result does not depend on its place
 * in the array. For kernel files (*_cpu.c) only; because they must be inlined there, this header
 * is the one exception to the rule of five lines.
 *
 * Errors against the exact value, over all arguments, with and without FMA:
 *   math_exp          <= 1.5 ulp, a subnormal result too; overflows to infinity above 88.7228
 *   math_exp_flushed  <= 1.5 ulp for arguments in [-87, 88], 0 below; half the time, for softmax,
 *                     whose arguments are not positive; not for arguments above 88
 *   math_log          <= 1.5 ulp, a subnormal argument too; log(0) = -inf, of a negative number NaN
 *   math_tanh         <= 2 ulp; odd to the bit
 * NaN gives NaN, infinities give the limits. Rounding is to nearest; no flags are promised.
 */
#ifndef TENSOR_KERNELS_MATH_CPU_H
#define TENSOR_KERNELS_MATH_CPU_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline uint32_t math_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float math_from_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* `yes` where `condition` is 1, `no` where it is 0; both are evaluated. */
static inline float math_select(int condition, float yes, float no)
{
    uint32_t mask = 0U - (uint32_t)condition;

    return math_from_bits((math_bits(yes) & mask) | (math_bits(no) & ~mask));
}

/* 2^n for n in [-126, 127]. */
static inline float math_power_of_two(int32_t n)
{
    return math_from_bits((uint32_t)(n + 127) << 23);
}

/* exp(r) for |r| <= ln(2)/2, a little beyond too. */
static inline float math_exp_near_zero(float r)
{
    float q = 0x1.6d1254p-10F;

    q = q * r + 0x1.120cbap-7F;
    q = q * r + 0x1.555518p-5F;
    q = q * r + 0x1.5554dcp-3F;
    q = q * r + 0.5F;
    q = (r * r) * q + r;
    return q + 1.0F;
}

/* Adding this rounds a small number to an integer, which is then the difference of the sum's bits
 * and these. */
#define MATH_ROUNDER 0x1.8p+23F

/*
 * x = n ln 2 + r with |r| <= ln(2)/2; ln 2 is cut into two parts, the first short enough that its
 * product with n is exact. The scale 2^n is applied in two halves, so that results below the
 * normal range round once. Outside [-104, 89] every result is 0 or infinity already; NaN passes
 * both selects.
 */
static inline float math_exp(float x)
{
    float low = math_select(x < -104.0F, -104.0F, x);
    float cut = math_select(low > 89.0F, 89.0F, low);
    float shifted = cut * 0x1.715476p+0F + MATH_ROUNDER;
    float n = shifted - MATH_ROUNDER;
    int32_t whole = (int32_t)(math_bits(shifted) - math_bits(MATH_ROUNDER));
    float q = math_exp_near_zero((cut - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F);

    return (q * math_power_of_two(whole >> 1)) * math_power_of_two(whole - (whole >> 1));
}

/* The same without the ends: arguments below -87 are replaced by 0, so that what is computed for
 * them, and then dropped, is not slow. */
static inline float math_exp_flushed(float x)
{
    int gone = x < -87.0F;
    float cut = math_select(gone, 0.0F, x);
    float shifted = cut * 0x1.715476p+0F + MATH_ROUNDER;
    float n = shifted - MATH_ROUNDER;
    int32_t whole = (int32_t)(math_bits(shifted) - math_bits(MATH_ROUNDER));
    float q = math_exp_near_zero((cut - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F);

    return math_select(gone, 0.0F, q * math_power_of_two(whole));
}

/*
 * x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); with s = f / (2 + f),
 * log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)), where the large terms are exact or nearly so.
 */
static inline float math_log(float x)
{
    int tiny = x < 0x1p-126F;
    float scaled = math_select(tiny, x * 0x1p+23F, x);
    uint32_t bits = math_bits(scaled) + (0x3F800000U - 0x3F3504F3U);
    int32_t exponent = (int32_t)(bits >> 23) - 127 - 23 * tiny;
    float e = (float)exponent;
    float f = math_from_bits((bits & 0x007FFFFFU) + 0x3F3504F3U) - 1.0F;
    float s = f / (2.0F + f);
    float z = s * s;
    float half = 0.5F * f * f;
    float r = 0x1.ddd172p-3F;
    float result;

    r = r * z + 0x1.245c38p-2F;
    r = r * z + 0x1.9999ecp-2F;
    r = r * z + 0x1.555556p-1F;
    r = r * z;
    result = e * 0x1.62e4p-1F - ((half - (s * (half + r) + e * 0x1.7f7d1cp-20F)) - f);
    result = math_select(x == 0.0F, -__builtin_inff(), result);
    result = math_select(x < 0.0F, __builtin_nanf(""), result);
    /* True for +inf and NaN only, which are their own logarithm. */
    return math_select(!(x < __builtin_inff()), x, result);
}

/*
 * Near zero an odd polynomial, elsewhere 1 - 2 / (exp(2 |x|) + 1), which loses nothing there; the
 * exponential's infinity gives 1.
 */
static inline float math_tanh(float x)
{
    uint32_t sign = math_bits(x) & 0x80000000U;
    float a = math_from_bits(math_bits(x) & 0x7FFFFFFFU);
    float large = 1.0F - 2.0F / (math_exp(a + a) + 1.0F);
    float z = a * a;
    float p = 0x1.36bdb2p-9F;
    float small;

    p = p * z - 0x1.1394cap-7F;
    p = p * z + 0x1.64fad8p-6F;
    p = p * z - 0x1.ba0d94p-5F;
    p = p * z + 0x1.1110f6p-3F;
    p = p * z - 0x1.555556p-2F;
    small = (p * z) * a + a;
    return math_from_bits(math_bits(math_select(a < 0.6F, small, large)) | sign);
}

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_MATH_CPU_H */

/* Conversions between float and the three types of the table, for the CPU reference: bf16 and f16 are stored
 * as 16 bits, rounded to nearest, halves to even. Operations work on pieces of at most TYPES_CHUNK floats:
 * for OPS_F32, types_read and types_target return the memory itself, else a scratch buffer on the caller's
 * stack, so that the same code works for all types. Nothing here allocates. */
#ifndef KERNELS_TYPES_H
#define KERNELS_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/ops.h"

enum { TYPES_CHUNK = 1024 };

static inline uint32_t types_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float types_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline float types_from_bf16(uint16_t bits)
{
    return types_float((uint32_t)bits << 16);
}

static inline uint16_t types_to_bf16(float value)
{
    uint32_t bits = types_bits(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40u;

    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

static inline float types_from_f16(uint16_t half)
{
    const float half_to_float_bias = 0x1p112f; /* the exponents' biases are 15 and 127 */
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t rest = (uint32_t)(half & 0x7fffu) << 13;
    float value = types_float(rest) * half_to_float_bias;

    if (rest >= 0x0f800000u) /* infinite or not a number */
        value = types_float(rest | 0x7f800000u);
    return types_float(types_bits(value) | sign);
}

static inline uint16_t types_to_f16(float value)
{
    const uint32_t smallest_normal = 0x38800000u; /* 2^-14 */
    const uint32_t overflow = 0x477ff000u;        /* 65520, which rounds to infinity */
    uint32_t bits = types_bits(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t rest = bits & 0x7fffffffu;

    if (rest > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (rest >= overflow)
        return (uint16_t)(sign | 0x7c00u);
    if (rest <
        smallest_normal) /* adding 0.5 leaves the subnormal's bits at the end, rounded by the addition */
        return (uint16_t)(sign | (types_bits(types_float(rest) + 0.5f) - types_bits(0.5f)));
    return (uint16_t)(sign | ((rest + 0xfffu + (rest >> 13 & 1u) - 0x38000000u) >> 13));
}

static inline float types_load(const void *from, enum ops_type type, size_t at)
{
    if (type == OPS_F32)
        return ((const float *)from)[at];
    if (type == OPS_BF16)
        return types_from_bf16(((const uint16_t *)from)[at]);
    return types_from_f16(((const uint16_t *)from)[at]);
}

static inline void types_store(void *to, enum ops_type type, size_t at, float value)
{
    if (type == OPS_F32)
        ((float *)to)[at] = value;
    else if (type == OPS_BF16)
        ((uint16_t *)to)[at] = types_to_bf16(value);
    else
        ((uint16_t *)to)[at] = types_to_f16(value);
}

/* Returns count elements from index `at` on, as floats. Read-only, since it may be the memory itself. */
const float *types_read(const void *from, enum ops_type type, size_t at, size_t count, float *scratch);

/* Returns where to put floats that types_write() then stores at index `at`. */
float *types_target(void *to, enum ops_type type, size_t at, float *scratch);
void types_write(void *to, enum ops_type type, size_t at, size_t count, const float *from);

static inline size_t types_smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

#endif

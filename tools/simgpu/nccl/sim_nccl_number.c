/* sim_nccl_number: sums over ranks. See sim_nccl_number.h. */
#include "tools/simgpu/nccl/sim_nccl_number.h"

#include <stdint.h>
#include <string.h>

size_t sim_nccl_number_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    default:
        return 0;
    }
}

bool sim_nccl_number_can_reduce(ncclDataType_t type, ncclRedOp_t op)
{
    return (type == ncclFloat32 || type == ncclBfloat16 || type == ncclFloat16) &&
           (op == ncclSum || op == ncclAvg);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Rounds to nearest, ties to even, as do all conversions below. */
static uint16_t to_bf16(float value)
{
    uint32_t bits = bits_of(value);

    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u); /* keep it a NaN */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 0x1fu;
    uint32_t fraction = half & 0x3ffu;

    if (exponent == 0x1f)
        return float_of(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) /* fraction * 2^-24 */
        return float_of(sign | bits_of((float)fraction * 0x1p-24f));
    return float_of(sign | (exponent + 112u) << 23 | fraction << 13);
}

static uint16_t to_half(float value)
{
    uint32_t bits = bits_of(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t size = bits & 0x7fffffffu;

    if (size > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (size >= 0x477ff000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (size < 0x38800000u) /* below 2^-14: subnormal, in steps of 2^-24; the addition rounds to one */
        return (uint16_t)(sign | (bits_of(float_of(size) + 0.5f) - bits_of(0.5f)));
    size += 0xfffu + (size >> 13 & 1u);
    return (uint16_t)(sign | ((size >> 13) - (112u << 10)));
}

static float read_number(const void *from, size_t i, ncclDataType_t type)
{
    if (type == ncclFloat32)
        return ((const float *)from)[i];
    if (type == ncclBfloat16)
        return float_of((uint32_t)((const uint16_t *)from)[i] << 16);
    return from_half(((const uint16_t *)from)[i]);
}

static void write_number(void *to, size_t i, ncclDataType_t type, float value)
{
    if (type == ncclFloat32)
        ((float *)to)[i] = value;
    else
        ((uint16_t *)to)[i] = type == ncclBfloat16 ? to_bf16(value) : to_half(value);
}

void sim_nccl_number_reduce(void *out, const void *const *from, int ranks, size_t count, ncclDataType_t type,
                            ncclRedOp_t op)
{
    float scale = op == ncclAvg ? 1.0f / (float)ranks : 1.0f;

    for (size_t i = 0; i < count; i++) {
        float sum = scale * read_number(from[0], i, type);

        for (int rank = 1; rank < ranks; rank++)
            sum += scale * read_number(from[rank], i, type);
        write_number(out, i, type, sum);
    }
}

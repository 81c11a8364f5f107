/* Conversions of whole pieces between float and the types of the table. See types.h. The loops have no branch
 * on the type inside, so that the compiler vectorizes them. */
#include "kernels/types.h"

const float *types_read(const void *from, enum ops_type type, size_t at, size_t count, float *scratch)
{
    const uint16_t *halves = (const uint16_t *)from + at;

    if (type == OPS_F32)
        return (const float *)from + at;
    if (type == OPS_BF16) {
        for (size_t i = 0; i < count; i++)
            scratch[i] = types_from_bf16(halves[i]);
    } else {
        for (size_t i = 0; i < count; i++)
            scratch[i] = types_from_f16(halves[i]);
    }
    return scratch;
}

float *types_target(void *to, enum ops_type type, size_t at, float *scratch)
{
    return type == OPS_F32 ? (float *)to + at : scratch;
}

void types_write(void *to, enum ops_type type, size_t at, size_t count, const float *from)
{
    uint16_t *halves = (uint16_t *)to + at;

    if (type == OPS_F32) {
        if (from != (float *)to + at)
            memmove((float *)to + at, from, count * sizeof(float));
    } else if (type == OPS_BF16) {
        for (size_t i = 0; i < count; i++)
            halves[i] = types_to_bf16(from[i]);
    } else {
        for (size_t i = 0; i < count; i++)
            halves[i] = types_to_f16(from[i]);
    }
}

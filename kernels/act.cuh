/* The activations on the device; act.h is the CPU's. gelu is the tanh form. */
#ifndef KERNELS_ACT_CUH
#define KERNELS_ACT_CUH

#include "ops.h"

/* tanh by the exponential: within 2e-7 of tanhf, and cheaper. */
static __device__ __forceinline__ float act_tanh(float x)
{
    return 1.0f - 2.0f / (1.0f + __expf(2.0f * x));
}

static __device__ __forceinline__ float act_forward(float x, enum ops_act act)
{
    const float scale = 0.79788456080286536f, cube = 0.044715f;

    if (act == OPS_ACT_RELU)
        return x < 0.0f ? 0.0f : x;
    if (act == OPS_ACT_GELU)
        return 0.5f * x * (1.0f + act_tanh(scale * (x + cube * x * x * x)));
    return x;
}

/* The slope, from the result for relu and from what went in for gelu. */
static __device__ __forceinline__ float act_slope(float saved, enum ops_act act)
{
    const float scale = 0.79788456080286536f, cube = 0.044715f;

    if (act == OPS_ACT_RELU)
        return saved > 0.0f ? 1.0f : 0.0f;
    if (act == OPS_ACT_GELU) {
        float t = act_tanh(scale * (saved + cube * saved * saved * saved));

        return 0.5f * (1.0f + t) +
               0.5f * saved * (1.0f - t * t) * scale * (1.0f + 3.0f * cube * saved * saved);
    }
    return 1.0f;
}

#endif

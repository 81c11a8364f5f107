/* Activations on the device; act.h has those of the CPU. gelu is the tanh form. */
#ifndef KERNELS_ACT_CUH
#define KERNELS_ACT_CUH

#include "kernels/ops.h"

#define ACT_GELU_SCALE 0.79788456080286536f /* sqrt(2 / pi) */
#define ACT_GELU_CUBE  0.044715f

/* Returns r with 1 - r = (1 + tanh(scale * (x + cube * x^3))) / 2. Uses the exponential, which is within 2e-7
 * of tanhf and cheaper. */
static __device__ __forceinline__ float act_gelu_rest(float x)
{
    float inner = ACT_GELU_SCALE * (x + ACT_GELU_CUBE * x * x * x);

    return __fdividef(1.0f, 1.0f + __expf(2.0f * inner));
}

static __device__ __forceinline__ float act_forward(float x, enum ops_act act)
{
    if (act == OPS_ACT_RELU)
        return x < 0.0f ? 0.0f : x;
    if (act == OPS_ACT_GELU)
        return x - x * act_gelu_rest(x);
    return x;
}

/* Returns the derivative; saved is the result for relu, the argument for gelu. */
static __device__ __forceinline__ float act_slope(float saved, enum ops_act act)
{
    if (act == OPS_ACT_RELU)
        return saved > 0.0f ? 1.0f : 0.0f;
    if (act == OPS_ACT_GELU) {
        float r = act_gelu_rest(saved);
        float inner_slope = ACT_GELU_SCALE * (1.0f + 3.0f * ACT_GELU_CUBE * saved * saved);

        return (1.0f - r) * (1.0f + 2.0f * saved * r * inner_slope);
    }
    return 1.0f;
}

#endif

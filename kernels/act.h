/* Activations of the CPU reference, used by gemm.c and bias_act.c. gelu is the tanh form:
 * 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
#ifndef KERNELS_ACT_H
#define KERNELS_ACT_H

#include <math.h>

#include "kernels/ops.h"

#define ACT_GELU_SCALE 0.79788456080286536f /* sqrt(2 / pi) */
#define ACT_GELU_CUBE  0.044715f

static inline float act_gelu(float x)
{
    return 0.5f * x * (1.0f + tanhf(ACT_GELU_SCALE * (x + ACT_GELU_CUBE * x * x * x)));
}

static inline float act_gelu_slope(float x)
{
    float t = tanhf(ACT_GELU_SCALE * (x + ACT_GELU_CUBE * x * x * x));
    float inner = ACT_GELU_SCALE * (1.0f + 3.0f * ACT_GELU_CUBE * x * x);

    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
}

/* v[i] = act(v[i]). */
static inline void act_apply(float *v, size_t count, enum ops_act act)
{
    if (act == OPS_ACT_RELU) {
        for (size_t i = 0; i < count; i++)
            v[i] = v[i] < 0.0f ? 0.0f : v[i];
    } else if (act == OPS_ACT_GELU) {
        for (size_t i = 0; i < count; i++)
            v[i] = act_gelu(v[i]);
    }
}

#endif

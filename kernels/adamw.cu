/* AdamW over all parameters in one launch (params.cuh):
 *     g = grad * multiplier; first = beta1 first + (1 - beta1) g; second = beta2 second + (1 - beta2) g^2
 *     weight -= rate * (first / correction1 / (sqrt(second / correction2) + epsilon) + decay * weight)
 * With decoupled 0 it is Adam: decay * weight is added to g instead. The copy is the weight in the model's
 * type. If scalars->found_bad is set, nothing is changed. With keep_zeros, a weight that is 0 stays 0. The
 * CPU reference is adamw.c. */
#include "kernels/params.cuh"

struct adamw_step {
    float rate, multiplier, beta1, beta2, epsilon, inverse1, inverse2;
    float coupled, apart; /* the decay: of Adam or of AdamW; the other is 0 */
    bool keep_zeros;
};

static __device__ __forceinline__ void update(const struct adamw_step &s, float *weight, float *first,
                                              float *second, float grad)
{
    float g = grad * s.multiplier + s.coupled * *weight;

    *first = s.beta1 * *first + (1.0f - s.beta1) * g;
    *second = s.beta2 * *second + (1.0f - s.beta2) * g * g;
    if (!(s.keep_zeros && *weight == 0.0f))
        *weight -=
            s.rate * (*first * s.inverse1 / (sqrtf(*second * s.inverse2) + s.epsilon) + s.apart * *weight);
}

template <class T>
static __device__ bool update_chunk(const struct adamw_step &s, const struct ops_param &p, uint64_t begin,
                                    uint64_t end)
{
    bool bad = false;

    if (params_packed<T>(p)) {
#pragma unroll 2
        for (uint64_t i = begin + threadIdx.x * 4; i + 4 <= end; i += PARAMS_BLOCK * 4) {
            float w[4], m[4], v[4], g[4];

            params_load4(w, p.weight + i);
            params_load4(m, p.first + i);
            params_load4(v, p.second + i);
            params_load4(g, p.grad + i);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                update(s, &w[j], &m[j], &v[j], g[j]);
                bad |= !isfinite(g[j]);
            }
            params_store4(p.weight + i, w);
            params_store4(p.first + i, m);
            params_store4(p.second + i, v);
            if (p.copy)
                params_copy4<T>(p.copy, i, w);
        }
        begin = end - end % 4;
    }
    for (uint64_t i = begin + threadIdx.x; i < end; i += PARAMS_BLOCK) {
        update(s, p.weight + i, p.first + i, p.second + i, p.grad[i]);
        bad |= !isfinite(p.grad[i]);
        if (p.copy)
            ((T *)p.copy)[i] = from_float<T>(p.weight[i]);
    }
    return bad;
}

template <class T> static __global__ void adamw_kernel(struct op_adamw args)
{
    const struct ops_scalars *scalars = args.scalars;

    if (scalars->found_bad != 0.0f)
        return;
    struct adamw_step s = {scalars->rate,
                           scalars->multiplier,
                           args.beta1,
                           args.beta2,
                           args.epsilon,
                           1.0f / scalars->correction1,
                           1.0f / scalars->correction2};
    bool bad = false;

    params_walk(args.params, args.count, [&](const struct ops_param &p, uint64_t begin, uint64_t end) {
        s.coupled = args.decoupled ? 0.0f : args.decay * p.decay;
        s.apart = args.decoupled ? args.decay * p.decay : 0.0f;
        s.keep_zeros = p.keep_zeros;
        bad |= update_chunk<T>(s, p, begin, end);
    });
    params_note_bad(args.scalars, bad);
}

int cuda_adamw(struct cuda_ops *ops, ops_stream stream, const struct op_adamw *args)
{
    unsigned grid = params_grid(ops, args->count, args->largest);

    if (grid == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->copy_type, T, adamw_kernel<T><<<grid, PARAMS_BLOCK, 0, stream>>>(*args));
    return cudaGetLastError();
}

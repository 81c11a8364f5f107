/* SGD with momentum over all parameters in one launch (params.cuh):
 *     g = grad * multiplier + decay * weight; first = momentum * first + g; weight -= rate * first
 * and the copy is the weight in the model's type. If scalars->found_bad is set, nothing is changed. With
 * keep_zeros, a weight that is 0 stays 0. The CPU reference is sgd.c. */
#include "kernels/params.cuh"

struct sgd_step {
    float rate, multiplier, momentum, decay;
    bool keep_zeros;
};

static __device__ __forceinline__ void update(const struct sgd_step &s, float *weight, float *first,
                                              float grad)
{
    *first = s.momentum * *first + (grad * s.multiplier + s.decay * *weight);
    if (!(s.keep_zeros && *weight == 0.0f))
        *weight -= s.rate * *first;
}

template <class T>
static __device__ bool update_chunk(const struct sgd_step &s, const struct ops_param &p, uint64_t begin,
                                    uint64_t end)
{
    bool bad = false;

    if (params_packed<T>(p)) {
        for (uint64_t i = begin + threadIdx.x * 4; i + 4 <= end; i += PARAMS_BLOCK * 4) {
            float w[4], m[4], g[4];

            params_load4(w, p.weight + i);
            params_load4(m, p.first + i);
            params_load4(g, p.grad + i);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                update(s, &w[j], &m[j], g[j]);
                bad |= !isfinite(g[j]);
            }
            params_store4(p.weight + i, w);
            params_store4(p.first + i, m);
            if (p.copy)
                params_copy4<T>(p.copy, i, w);
        }
        begin = end - end % 4;
    }
    for (uint64_t i = begin + threadIdx.x; i < end; i += PARAMS_BLOCK) {
        update(s, p.weight + i, p.first + i, p.grad[i]);
        bad |= !isfinite(p.grad[i]);
        if (p.copy)
            ((T *)p.copy)[i] = from_float<T>(p.weight[i]);
    }
    return bad;
}

template <class T> static __global__ void sgd_kernel(struct op_sgd args)
{
    if (args.scalars->found_bad != 0.0f)
        return;
    struct sgd_step s = {args.scalars->rate, args.scalars->multiplier, args.momentum, 0.0f, false};
    bool bad = false;

    params_walk(args.params, args.count, [&](const struct ops_param &p, uint64_t begin, uint64_t end) {
        s.decay = args.decay * p.decay;
        s.keep_zeros = p.keep_zeros;
        bad |= update_chunk<T>(s, p, begin, end);
    });
    params_note_bad(args.scalars, bad);
}

int cuda_sgd(struct cuda_ops *ops, ops_stream stream, const struct op_sgd *args)
{
    unsigned grid = params_grid(ops, args->count, args->largest);

    if (grid == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->copy_type, T, sgd_kernel<T><<<grid, PARAMS_BLOCK, 0, stream>>>(*args));
    return cudaGetLastError();
}

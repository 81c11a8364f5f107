/* grad_check and step_begin. grad_check computes the norm of all gradients and whether one is not finite;
 * step_begin then sets the multiplier, loss scale, step number and Adam's corrections for this update. Blocks
 * sum squares into the workspace, in double, so that no finite gradient overflows; one block adds these in a
 * fixed order. The CPU reference is grad_check.c. */
#include "kernels/params.cuh"

/* Returns the sum over the block, in thread 0 only. */
static __device__ double block_sum_double(double v)
{
    __shared__ double all[PARAMS_BLOCK];

    all[threadIdx.x] = v;
    __syncthreads();
    for (int half = PARAMS_BLOCK / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half)
            all[threadIdx.x] += all[threadIdx.x + half];
        __syncthreads();
    }
    return all[0];
}

/* Sets found_bad and norm from the sum of all squares. */
static __device__ void conclude(struct ops_scalars *scalars, double total)
{
    scalars->norm = (float)(sqrt(total) / scalars->scale);
    scalars->found_bad = isfinite(total) ? 0.0f : 1.0f;
}

static __device__ double squares(const struct ops_param &p, uint64_t begin, uint64_t end)
{
    double sum = 0.0;

    if ((uintptr_t)p.grad % CUDA_PACK_BYTES == 0) {
#pragma unroll 4
        for (uint64_t i = begin + threadIdx.x * 4; i + 4 <= end; i += PARAMS_BLOCK * 4) {
            float v[4];

            params_load4(v, p.grad + i);
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum += (double)v[j] * v[j];
        }
        begin = end - end % 4;
    }
    for (uint64_t i = begin + threadIdx.x; i < end; i += PARAMS_BLOCK)
        sum += (double)p.grad[i] * p.grad[i];
    return sum;
}

/* partial[blockIdx.x] = this block's sum. With NULL there is one block, which also sets the results. */
static __global__ void squares_kernel(const struct ops_param *params, int count, double *partial,
                                      struct ops_scalars *scalars)
{
    double sum = 0.0;

    params_walk(params, count, [&](const struct ops_param &p, uint64_t begin, uint64_t end) {
        sum += squares(p, begin, end);
    });
    sum = block_sum_double(sum);
    if (threadIdx.x == 0) {
        if (partial)
            partial[blockIdx.x] = sum;
        else
            conclude(scalars, sum);
    }
}

static __global__ void conclude_kernel(const double *partial, int count, struct ops_scalars *scalars)
{
    double sum = 0.0;

    for (int i = threadIdx.x; i < count; i += PARAMS_BLOCK)
        sum += partial[i];
    sum = block_sum_double(sum);
    if (threadIdx.x == 0)
        conclude(scalars, sum);
}

int cuda_grad_check(struct cuda_ops *ops, ops_stream stream, const struct op_grad_check *args)
{
    uintptr_t misplaced = (uintptr_t)args->workspace % sizeof(double);
    size_t skip = misplaced ? sizeof(double) - misplaced : 0;
    double *partial = (double *)((char *)args->workspace + skip);
    size_t room =
        args->workspace && args->workspace_bytes > skip ? (args->workspace_bytes - skip) / sizeof(double) : 0;
    unsigned grid = params_grid(ops, args->count, args->largest);

    grid = room < grid ? (unsigned)room : grid;
    if (grid < 2) {
        squares_kernel<<<1, PARAMS_BLOCK, 0, stream>>>(args->params, args->count, NULL, args->scalars);
    } else {
        squares_kernel<<<grid, PARAMS_BLOCK, 0, stream>>>(args->params, args->count, partial, args->scalars);
        conclude_kernel<<<1, PARAMS_BLOCK, 0, stream>>>(partial, (int)grid, args->scalars);
    }
    return cudaGetLastError();
}

static __global__ void step_begin_kernel(struct op_step_begin args)
{
    struct ops_scalars s = *args.scalars;
    bool bad_loss = args.loss && !isfinite(*args.loss);
    bool bad_grads = s.found_bad != 0.0f && (!args.dynamic || s.scale <= 1.0f);

    if (bad_loss && args.skip_loss)
        s.found_bad = 1.0f;
    if (!s.bad_step && (bad_loss || bad_grads))
        s.bad_step = s.step + (uint64_t)s.skipped + 1;
    s.multiplier = 1.0f / s.scale;
    if (args.clip > 0.0f && s.norm > args.clip)
        s.multiplier *= args.clip / s.norm;
    if (args.dynamic && s.found_bad != 0.0f) {
        s.scale *= 0.5f;
        s.good_steps = 0.0f;
    } else if (args.dynamic && ++s.good_steps >= args.growth) {
        s.scale *= 2.0f;
        s.good_steps = 0.0f;
    }
    if (s.found_bad != 0.0f) {
        s.multiplier = 0.0f;
        s.skipped += 1.0f;
    } else {
        s.step++;
        s.correction1 = (float)(1.0 - pow((double)args.beta1, (double)s.step));
        s.correction2 = (float)(1.0 - pow((double)args.beta2, (double)s.step));
    }
    /* Do not write rate: the host may be writing it. */
    args.scalars->step = s.step;
    args.scalars->scale = s.scale;
    args.scalars->multiplier = s.multiplier;
    args.scalars->good_steps = s.good_steps;
    args.scalars->skipped = s.skipped;
    args.scalars->correction1 = s.correction1;
    args.scalars->correction2 = s.correction2;
    args.scalars->found_bad = s.found_bad;
    args.scalars->bad_step = s.bad_step;
}

int cuda_step_begin(struct cuda_ops *, ops_stream stream, const struct op_step_begin *args)
{
    step_begin_kernel<<<1, 1, 0, stream>>>(*args);
    return cudaGetLastError();
}

/* Layer norm with the residual sum before it: the forward pass (layernorm_backward.cu has the other).
 * Shapes: x, residual, sum, y are [rows][cols], gamma and beta [cols], mean and rstd [rows].
 *     sum = x + residual; xhat = (sum - mean) * rstd; y = xhat * gamma + beta
 * Up to 1024 columns, a warp keeps a row in registers; for wider rows a block takes one and reads it twice.
 * The statistics are computed from the sum as it is stored, since backward reads that. The CPU reference is
 * layernorm.c. */
#include "kernels/layernorm.cuh"

template <class T> static __device__ __forceinline__ float stored(float v)
{
    return to_float(from_float<T>(v));
}

/* v = the group of the sum at col, stored too if there is a place for it. */
template <class T, bool PACKED>
static __device__ __forceinline__ void read_sum(const struct op_layernorm_forward &args, size_t first,
                                                int col, float (&v)[CUDA_GROUP])
{
    read_row<PACKED>(v, (const T *)args.x + first, col, args.cols);
    if (args.residual) {
        float r[CUDA_GROUP];

        read_row<PACKED>(r, (const T *)args.residual + first, col, args.cols);
#pragma unroll
        for (int i = 0; i < CUDA_GROUP; i++)
            v[i] = stored<T>(v[i] + r[i]);
    }
    if (args.sum)
        write_row<PACKED>((T *)args.sum + first, v, col, args.cols);
}

template <class T, bool PACKED>
static __device__ __forceinline__ void put_normalized(const struct op_layernorm_forward &args, size_t first,
                                                      int col, float (&v)[CUDA_GROUP], float mean, float rstd)
{
    float gamma[CUDA_GROUP], beta[CUDA_GROUP];

    read_row<PACKED>(gamma, args.gamma, col, args.cols);
    read_row<PACKED>(beta, args.beta, col, args.cols);
#pragma unroll
    for (int i = 0; i < CUDA_GROUP; i++)
        v[i] = (v[i] - mean) * rstd * gamma[i] + beta[i];
    write_row<PACKED>((T *)args.y + first, v, col, args.cols);
}

/* The sum of v - mean, or of its square, over the columns that exist. */
static __device__ __forceinline__ float sum_of(const float (&v)[CUDA_GROUP], int col, int cols, float mean,
                                               bool square)
{
    float sum = 0.0f;

#pragma unroll
    for (int i = 0; i < CUDA_GROUP; i++) {
        float d = col + i < cols ? v[i] - mean : 0.0f;

        sum += square ? d * d : d;
    }
    return sum;
}

/* FULL: the groups are exactly the row. */
template <class T, int GROUPS, bool PACKED, bool FULL>
static __global__ void __launch_bounds__(LAYERNORM_THREADS)
    forward_narrow_kernel(struct op_layernorm_forward args)
{
    int row = blockIdx.x * LAYERNORM_WARPS + threadIdx.x / CUDA_WARP;
    int lane = threadIdx.x % CUDA_WARP;
    int cols = FULL ? GROUPS * LAYERNORM_STEP : args.cols;
    size_t first = (size_t)row * cols;
    float v[GROUPS][CUDA_GROUP];
    float mean = 0.0f, variance = 0.0f, rstd;

    if (row >= args.rows)
        return;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        int col = g * LAYERNORM_STEP + lane * CUDA_GROUP;

        if (col < cols)
            read_sum<T, PACKED>(args, first, col, v[g]);
    }
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        int col = g * LAYERNORM_STEP + lane * CUDA_GROUP;

        if (col < cols)
            mean += sum_of(v[g], col, cols, 0.0f, false);
    }
    mean = warp_sum(mean) / cols;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        int col = g * LAYERNORM_STEP + lane * CUDA_GROUP;

        if (col < cols)
            variance += sum_of(v[g], col, cols, mean, true);
    }
    rstd = rsqrtf(warp_sum(variance) / cols + args.epsilon);
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        int col = g * LAYERNORM_STEP + lane * CUDA_GROUP;

        if (col < cols)
            put_normalized<T, PACKED>(args, first, col, v[g], mean, rstd);
    }
    if (lane == 0) {
        args.mean[row] = mean;
        args.rstd[row] = rstd;
    }
}

template <class T, bool PACKED> static __global__ void forward_wide_kernel(struct op_layernorm_forward args)
{
    size_t first = (size_t)blockIdx.x * args.cols;
    const T *stored_sum = (const T *)(args.sum ? args.sum : args.x) + first;
    int step = blockDim.x * CUDA_GROUP;
    float mean = 0.0f, variance = 0.0f, rstd;
    float v[CUDA_GROUP];

    for (int col = threadIdx.x * CUDA_GROUP; col < args.cols; col += step) {
        read_sum<T, PACKED>(args, first, col, v);
        mean += sum_of(v, col, args.cols, 0.0f, false);
    }
    mean = block_sum(mean) / args.cols;
    for (int col = threadIdx.x * CUDA_GROUP; col < args.cols; col += step) {
        read_row<PACKED>(v, stored_sum, col, args.cols);
        variance += sum_of(v, col, args.cols, mean, true);
    }
    rstd = rsqrtf(block_sum(variance) / args.cols + args.epsilon);
    for (int col = threadIdx.x * CUDA_GROUP; col < args.cols; col += step) {
        read_row<PACKED>(v, stored_sum, col, args.cols);
        put_normalized<T, PACKED>(args, first, col, v, mean, rstd);
    }
    if (threadIdx.x == 0) {
        args.mean[blockIdx.x] = mean;
        args.rstd[blockIdx.x] = rstd;
    }
}

template <class T, int GROUPS>
static void forward_narrow(ops_stream stream, const struct op_layernorm_forward *args, bool packed)
{
    unsigned grid = (args->rows + LAYERNORM_WARPS - 1) / LAYERNORM_WARPS;

    if (packed && args->cols == GROUPS * LAYERNORM_STEP)
        forward_narrow_kernel<T, GROUPS, true, true><<<grid, LAYERNORM_THREADS, 0, stream>>>(*args);
    else if (packed)
        forward_narrow_kernel<T, GROUPS, true, false><<<grid, LAYERNORM_THREADS, 0, stream>>>(*args);
    else
        forward_narrow_kernel<T, GROUPS, false, false><<<grid, LAYERNORM_THREADS, 0, stream>>>(*args);
}

int cuda_layernorm_forward(struct cuda_ops *, ops_stream stream, const struct op_layernorm_forward *args)
{
    int groups = (args->cols + LAYERNORM_STEP - 1) / LAYERNORM_STEP;
    bool packed =
        cuda_packed(args->cols, args->x, args->residual, args->sum, args->y, args->gamma, args->beta);

    if (args->rows == 0 || args->cols == 0)
        return OPS_OK;
    if (args->residual && !args->sum)
        return OPS_INVALID;
    CUDA_BY_TYPE(args->type, T, {
        if (groups == 1) {
            forward_narrow<T, 1>(stream, args, packed);
        } else if (groups == 2) {
            forward_narrow<T, 2>(stream, args, packed);
        } else if (groups == 3) {
            forward_narrow<T, 3>(stream, args, packed);
        } else if (groups == 4) {
            forward_narrow<T, 4>(stream, args, packed);
        } else {
            CUDA_BY_PACKED(packed, P,
                           forward_wide_kernel<T, P><<<args->rows, CUDA_BLOCK, 0, stream>>>(*args));
        }
    });
    return cudaGetLastError();
}

/* Layer norm, with the residual sum before it. Shapes: x, residual, sum, y, dy, dsum, dx are [rows][cols],
 * gamma, beta, dgamma, dbeta [cols], mean and rstd [rows]. forward:  sum = x + residual; xhat = (sum - mean)
 * * rstd; y = xhat * gamma + beta backward: g = dy * gamma; dx = rstd * (g - mean(g) - xhat * mean(g * xhat))
 * + dsum A warp takes a row. Up to NARROW columns it keeps the row in registers, and in the backward pass
 * also sums dgamma and dbeta of the rows it meets, which are then added over warps and blocks in a fixed
 * order (no atomics); wider rows are read again, and dgamma and dbeta are summed by a kernel of their own,
 * before dx, which may overwrite dy. The CPU reference is layernorm.c. */
#include "columns.cuh"

static const int WARPS = 8;
static const int WARP_STEP = CUDA_WARP * CUDA_GROUP; /* columns that a warp reads at once */
static const int NARROW_GROUPS = 4;                  /* 1024 columns */

/* The row's statistics are those of the sum as it is stored, which is what backward reads. */
template <class T> static __device__ __forceinline__ float stored(float v)
{
    return to_float(from_float<T>(v));
}

/* v = the sum's group at col, stored too if there is a place for it. */
template <class T>
static __device__ __forceinline__ void read_sum(const struct op_layernorm_forward &args, size_t first,
                                                int col, bool packed, float (&v)[CUDA_GROUP])
{
    read_group(v, (const T *)args.x + first, col, args.cols, packed);
    if (args.residual) {
        float r[CUDA_GROUP];

        read_group(r, (const T *)args.residual + first, col, args.cols, packed);
#pragma unroll
        for (int i = 0; i < CUDA_GROUP; i++)
            v[i] = stored<T>(v[i] + r[i]);
    }
    if (args.sum)
        write_group((T *)args.sum + first, v, col, args.cols, packed);
}

template <class T>
static __device__ __forceinline__ void put_normalized(const struct op_layernorm_forward &args, size_t first,
                                                      int col, bool packed, float (&v)[CUDA_GROUP],
                                                      float mean, float rstd)
{
    float gamma[CUDA_GROUP], beta[CUDA_GROUP];

    read_group(gamma, args.gamma, col, args.cols, packed);
    read_group(beta, args.beta, col, args.cols, packed);
#pragma unroll
    for (int i = 0; i < CUDA_GROUP; i++)
        v[i] = (v[i] - mean) * rstd * gamma[i] + beta[i];
    write_group((T *)args.y + first, v, col, args.cols, packed);
}

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

template <class T, int GROUPS>
static __global__ void __launch_bounds__(WARPS *CUDA_WARP)
    forward_narrow_kernel(struct op_layernorm_forward args, bool packed)
{
    int row = blockIdx.x * WARPS + threadIdx.x / CUDA_WARP;
    int lane = threadIdx.x % CUDA_WARP;
    size_t first = (size_t)row * args.cols;
    float v[GROUPS][CUDA_GROUP];
    float mean = 0.0f, variance = 0.0f, rstd;

    if (row >= args.rows)
        return;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        int col = g * WARP_STEP + lane * CUDA_GROUP;

        if (col < args.cols) {
            read_sum<T>(args, first, col, packed, v[g]);
            mean += sum_of(v[g], col, args.cols, 0.0f, false);
        }
    }
    mean = warp_sum(mean) / args.cols;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        int col = g * WARP_STEP + lane * CUDA_GROUP;

        if (col < args.cols)
            variance += sum_of(v[g], col, args.cols, mean, true);
    }
    rstd = rsqrtf(warp_sum(variance) / args.cols + args.epsilon);
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        int col = g * WARP_STEP + lane * CUDA_GROUP;

        if (col < args.cols)
            put_normalized<T>(args, first, col, packed, v[g], mean, rstd);
    }
    if (lane == 0) {
        args.mean[row] = mean;
        args.rstd[row] = rstd;
    }
}

template <class T> static __global__ void forward_wide_kernel(struct op_layernorm_forward args, bool packed)
{
    size_t first = (size_t)blockIdx.x * args.cols;
    const T *stored_sum = (const T *)(args.sum ? args.sum : args.x) + first;
    int step = blockDim.x * CUDA_GROUP;
    float mean = 0.0f, variance = 0.0f, rstd;
    float v[CUDA_GROUP];

    for (int col = threadIdx.x * CUDA_GROUP; col < args.cols; col += step) {
        read_sum<T>(args, first, col, packed, v);
        mean += sum_of(v, col, args.cols, 0.0f, false);
    }
    mean = block_sum(mean) / args.cols;
    for (int col = threadIdx.x * CUDA_GROUP; col < args.cols; col += step) {
        read_group(v, stored_sum, col, args.cols, packed);
        variance += sum_of(v, col, args.cols, mean, true);
    }
    rstd = rsqrtf(block_sum(variance) / args.cols + args.epsilon);
    for (int col = threadIdx.x * CUDA_GROUP; col < args.cols; col += step) {
        read_group(v, stored_sum, col, args.cols, packed);
        put_normalized<T>(args, first, col, packed, v, mean, rstd);
    }
    if (threadIdx.x == 0) {
        args.mean[blockIdx.x] = mean;
        args.rstd[blockIdx.x] = rstd;
    }
}

int cuda_layernorm_forward(struct cuda_ops *, ops_stream stream, const struct op_layernorm_forward *args)
{
    int groups = (args->cols + WARP_STEP - 1) / WARP_STEP;
    unsigned grid = (args->rows + WARPS - 1) / WARPS;
    bool packed = cuda_aligned(args->cols * ops_type_bytes(args->type), args->x, args->residual, args->sum,
                               args->y, args->gamma, args->beta);

    if (args->rows == 0 || args->cols == 0)
        return OPS_OK;
    if (args->residual && !args->sum)
        return OPS_INVALID;
    CUDA_BY_TYPE(args->type, T, {
        if (groups == 1)
            forward_narrow_kernel<T, 1><<<grid, WARPS * CUDA_WARP, 0, stream>>>(*args, packed);
        else if (groups == 2)
            forward_narrow_kernel<T, 2><<<grid, WARPS * CUDA_WARP, 0, stream>>>(*args, packed);
        else if (groups == 3)
            forward_narrow_kernel<T, 3><<<grid, WARPS * CUDA_WARP, 0, stream>>>(*args, packed);
        else if (groups <= NARROW_GROUPS)
            forward_narrow_kernel<T, NARROW_GROUPS><<<grid, WARPS * CUDA_WARP, 0, stream>>>(*args, packed);
        else
            forward_wide_kernel<T><<<args->rows, CUDA_BLOCK, 0, stream>>>(*args, packed);
    });
    return cudaGetLastError();
}

/* One group of dx from g and xhat. */
template <class T>
static __device__ __forceinline__ void
put_dx(const struct op_layernorm_backward &args, size_t first, int col, bool packed,
       const float (&g)[CUDA_GROUP], const float (&xhat)[CUDA_GROUP], float rstd, float mean_g, float mean_gx)
{
    float dx[CUDA_GROUP] = {};

    if (args.dsum)
        read_group(dx, (const T *)args.dsum + first, col, args.cols, packed);
#pragma unroll
    for (int i = 0; i < CUDA_GROUP; i++)
        dx[i] += rstd * (g[i] - mean_g - xhat[i] * mean_gx);
    write_group((T *)args.dx + first, dx, col, args.cols, packed);
}

/* g and xhat of a group; the elements beyond the row are 0 in both. */
template <class T>
static __device__ __forceinline__ void read_back(const struct op_layernorm_backward &args, size_t first,
                                                 int col, bool packed, float mean, float rstd,
                                                 float (&dy)[CUDA_GROUP], float (&xhat)[CUDA_GROUP])
{
    read_group(dy, (const T *)args.dy + first, col, args.cols, packed);
    read_group(xhat, (const T *)args.x + first, col, args.cols, packed);
#pragma unroll
    for (int i = 0; i < CUDA_GROUP; i++)
        xhat[i] = col + i < args.cols ? (xhat[i] - mean) * rstd : 0.0f;
}

/* Adds the warps' sums through `all` [WARPS][cols] and puts one group of columns. */
static __device__ __forceinline__ void put_parameters(float *all, int cols, float *out, int accumulate)
{
    __syncthreads();
    for (int c = threadIdx.x; c < cols; c += WARPS * CUDA_WARP) {
        float sum = all[c];

        for (int w = 1; w < WARPS; w++)
            sum += all[w * cols + c];
        out[c] = accumulate ? out[c] + sum : sum;
    }
    __syncthreads();
}

/* partial [gridDim.x][2][cols], or NULL: there is one block, which writes dgamma and dbeta. */
template <class T, int GROUPS>
static __global__ void __launch_bounds__(WARPS *CUDA_WARP)
    backward_narrow_kernel(struct op_layernorm_backward args, float *partial, bool packed)
{
    extern __shared__ float layernorm_shared[];
    int warp = threadIdx.x / CUDA_WARP, lane = threadIdx.x % CUDA_WARP;
    float dgamma[GROUPS][CUDA_GROUP] = {}, dbeta[GROUPS][CUDA_GROUP] = {};

    for (int row = blockIdx.x * WARPS + warp; row < args.rows; row += gridDim.x * WARPS) {
        size_t first = (size_t)row * args.cols;
        float mean = args.mean[row], rstd = args.rstd[row];
        float g[GROUPS][CUDA_GROUP], xhat[GROUPS][CUDA_GROUP];
        float sum_g = 0.0f, sum_gx = 0.0f;

#pragma unroll
        for (int k = 0; k < GROUPS; k++) {
            int col = k * WARP_STEP + lane * CUDA_GROUP;
            float gamma[CUDA_GROUP];

            if (col >= args.cols)
                continue;
            read_back<T>(args, first, col, packed, mean, rstd, g[k], xhat[k]);
            read_group(gamma, args.gamma, col, args.cols, packed);
#pragma unroll
            for (int i = 0; i < CUDA_GROUP; i++) {
                dgamma[k][i] += g[k][i] * xhat[k][i];
                dbeta[k][i] += g[k][i];
                g[k][i] *= gamma[i];
                sum_g += g[k][i];
                sum_gx += g[k][i] * xhat[k][i];
            }
        }
        sum_g = warp_sum(sum_g) / args.cols;
        sum_gx = warp_sum(sum_gx) / args.cols;
#pragma unroll
        for (int k = 0; k < GROUPS; k++) {
            int col = k * WARP_STEP + lane * CUDA_GROUP;

            if (col < args.cols)
                put_dx<T>(args, first, col, packed, g[k], xhat[k], rstd, sum_g, sum_gx);
        }
    }
    float *out_gamma = partial ? partial + (size_t)blockIdx.x * 2 * args.cols : args.dgamma;
    float *out_beta = partial ? out_gamma + args.cols : args.dbeta;
    int accumulate = partial ? 0 : args.accumulate;

#pragma unroll
    for (int k = 0; k < GROUPS; k++) {
        for (int i = 0; i < CUDA_GROUP; i++) {
            int col = k * WARP_STEP + lane * CUDA_GROUP + i;

            if (col < args.cols)
                layernorm_shared[warp * args.cols + col] = dgamma[k][i];
        }
    }
    put_parameters(layernorm_shared, args.cols, out_gamma, accumulate);
#pragma unroll
    for (int k = 0; k < GROUPS; k++) {
        for (int i = 0; i < CUDA_GROUP; i++) {
            int col = k * WARP_STEP + lane * CUDA_GROUP + i;

            if (col < args.cols)
                layernorm_shared[warp * args.cols + col] = dbeta[k][i];
        }
    }
    put_parameters(layernorm_shared, args.cols, out_beta, accumulate);
}

/* dgamma and dbeta of chunk blockIdx.y of the rows; see bias_act.cu for the scheme. */
template <class T>
static __global__ void parameters_kernel(struct op_layernorm_backward args, int rows_of_chunk, float *partial,
                                         bool packed)
{
    int col = (blockIdx.x * COLUMNS_ACROSS + threadIdx.x) * CUDA_GROUP;
    int begin = blockIdx.y * rows_of_chunk, end = min(begin + rows_of_chunk, args.rows);
    float dgamma[CUDA_GROUP] = {}, dbeta[CUDA_GROUP] = {};
    float *out_gamma = partial ? partial + (size_t)blockIdx.y * 2 * args.cols : args.dgamma;
    float *out_beta = partial ? out_gamma + args.cols : args.dbeta;
    bool add = !partial && args.accumulate;

    for (int row = begin + threadIdx.y; col < args.cols && row < end; row += COLUMNS_DOWN) {
        float dy[CUDA_GROUP], xhat[CUDA_GROUP];

        read_back<T>(args, (size_t)row * args.cols, col, packed, args.mean[row], args.rstd[row], dy, xhat);
#pragma unroll
        for (int i = 0; i < CUDA_GROUP; i++) {
            dgamma[i] += dy[i] * xhat[i];
            dbeta[i] += dy[i];
        }
    }
    columns_block_sum(dgamma);
    columns_block_sum(dbeta);
    for (int i = 0; threadIdx.y == 0 && i < CUDA_GROUP && col + i < args.cols; i++) {
        out_gamma[col + i] = dgamma[i] + (add ? out_gamma[col + i] : 0.0f);
        out_beta[col + i] = dbeta[i] + (add ? out_beta[col + i] : 0.0f);
    }
}

template <class T> static __global__ void backward_wide_kernel(struct op_layernorm_backward args, bool packed)
{
    int row = blockIdx.x;
    size_t first = (size_t)row * args.cols;
    float mean = args.mean[row], rstd = args.rstd[row];
    float sum_g = 0.0f, sum_gx = 0.0f;
    float g[CUDA_GROUP], xhat[CUDA_GROUP], gamma[CUDA_GROUP];

    for (int pass = 0; pass < 2; pass++) {
        for (int col = threadIdx.x * CUDA_GROUP; col < args.cols; col += blockDim.x * CUDA_GROUP) {
            read_back<T>(args, first, col, packed, mean, rstd, g, xhat);
            read_group(gamma, args.gamma, col, args.cols, packed);
#pragma unroll
            for (int i = 0; i < CUDA_GROUP; i++) {
                g[i] *= gamma[i];
                sum_g += pass == 0 ? g[i] : 0.0f;
                sum_gx += pass == 0 ? g[i] * xhat[i] : 0.0f;
            }
            if (pass == 1)
                put_dx<T>(args, first, col, packed, g, xhat, rstd, sum_g, sum_gx);
        }
        if (pass == 0) {
            sum_g = block_sum(sum_g) / args.cols;
            sum_gx = block_sum(sum_gx) / args.cols;
        }
    }
}

template <class T>
static int backward_wide(struct cuda_ops *ops, ops_stream stream, const struct op_layernorm_backward *args,
                         bool packed)
{
    int chunks =
        columns_chunks(ops, args->rows, args->cols, 2 * args->cols, args->workspace, args->workspace_bytes);
    dim3 block(COLUMNS_ACROSS, COLUMNS_DOWN);
    dim3 grid((args->cols + COLUMNS_OF_BLOCK - 1) / COLUMNS_OF_BLOCK, chunks);
    float *partial = chunks > 1 ? (float *)args->workspace : NULL;

    parameters_kernel<T>
        <<<grid, block, 0, stream>>>(*args, (args->rows + chunks - 1) / chunks, partial, packed);
    if (partial)
        columns_finish(stream, partial, chunks, 2 * args->cols, args->cols, args->dgamma, args->dbeta,
                       args->accumulate);
    backward_wide_kernel<T><<<args->rows, CUDA_BLOCK, 0, stream>>>(*args, packed);
    return cudaGetLastError();
}

template <class T, int GROUPS>
static int backward_narrow(struct cuda_ops *ops, ops_stream stream, const struct op_layernorm_backward *args,
                           bool packed)
{
    size_t shared = (size_t)WARPS * args->cols * sizeof(float);
    size_t by_space = args->workspace ? args->workspace_bytes / (2 * args->cols * sizeof(float)) : 0;
    unsigned grid = ops->multiprocessors * 2, by_rows = (args->rows + WARPS - 1) / WARPS;
    float *partial;

    grid = grid < by_rows ? grid : by_rows;
    grid = by_space < grid ? (unsigned)by_space : grid;
    grid = grid ? grid : 1;
    partial = grid > 1 ? (float *)args->workspace : NULL;
    backward_narrow_kernel<T, GROUPS><<<grid, WARPS * CUDA_WARP, shared, stream>>>(*args, partial, packed);
    if (partial)
        columns_finish(stream, partial, (int)grid, 2 * args->cols, args->cols, args->dgamma, args->dbeta,
                       args->accumulate);
    return cudaGetLastError();
}

int cuda_layernorm_backward(struct cuda_ops *ops, ops_stream stream, const struct op_layernorm_backward *args)
{
    int groups = (args->cols + WARP_STEP - 1) / WARP_STEP;
    bool packed = cuda_aligned(args->cols * ops_type_bytes(args->type), args->dy, args->dsum, args->x,
                               args->dx, args->gamma);

    if (args->rows == 0 || args->cols == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->type, T, {
        if (groups == 1)
            return backward_narrow<T, 1>(ops, stream, args, packed);
        if (groups == 2)
            return backward_narrow<T, 2>(ops, stream, args, packed);
        if (groups == 3)
            return backward_narrow<T, 3>(ops, stream, args, packed);
        if (groups <= NARROW_GROUPS)
            return backward_narrow<T, NARROW_GROUPS>(ops, stream, args, packed);
        return backward_wide<T>(ops, stream, args, packed);
    });
    return OPS_OK;
}

/* Layer norm, backward. Shapes: x, dy, dsum, dx are [rows][cols], gamma, dgamma, dbeta [cols], mean and rstd
 * [rows].
 *     g = dy * gamma; dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + dsum
 * A warp takes rows. Up to 1024 columns it keeps them in registers and also sums dgamma and dbeta of the rows
 * it meets, which are then added over warps and blocks in a fixed order (no atomics); for wider rows dgamma
 * and dbeta are summed by a kernel of their own, before dx, which may overwrite dy. The CPU reference is
 * layernorm.c. */
#include "kernels/columns.cuh"
#include "kernels/layernorm.cuh"

/* dy and xhat of a group; the elements beyond the row are 0 in both. */
template <class T, bool PACKED>
static __device__ __forceinline__ void read_back(const struct op_layernorm_backward &args, size_t first,
                                                 int col, int cols, float mean, float rstd,
                                                 float (&dy)[CUDA_GROUP], float (&xhat)[CUDA_GROUP])
{
    read_row<PACKED>(dy, (const T *)args.dy + first, col, cols);
    read_row<PACKED>(xhat, (const T *)args.x + first, col, cols);
#pragma unroll
    for (int i = 0; i < CUDA_GROUP; i++)
        xhat[i] = PACKED || col + i < cols ? (xhat[i] - mean) * rstd : 0.0f;
}

/* dx, which holds dsum or 0, from g and xhat. */
template <class T, bool PACKED>
static __device__ __forceinline__ void
put_dx(const struct op_layernorm_backward &args, size_t first, int col, int cols, float (&dx)[CUDA_GROUP],
       const float (&g)[CUDA_GROUP], const float (&xhat)[CUDA_GROUP], float rstd, float mean_g, float mean_gx)
{
#pragma unroll
    for (int i = 0; i < CUDA_GROUP; i++)
        dx[i] += rstd * (g[i] - mean_g - xhat[i] * mean_gx);
    write_row<PACKED>((T *)args.dx + first, dx, col, cols);
}

template <class T, bool PACKED>
static __device__ __forceinline__ void read_dsum(const struct op_layernorm_backward &args, size_t first,
                                                 int col, int cols, float (&dx)[CUDA_GROUP])
{
    if (args.dsum) {
        read_row<PACKED>(dx, (const T *)args.dsum + first, col, cols);
    } else {
#pragma unroll
        for (int i = 0; i < CUDA_GROUP; i++)
            dx[i] = 0.0f;
    }
}

/* Adds the warps' sums through `all`, [LAYERNORM_WARPS][cols], into out. */
template <int GROUPS>
static __device__ __forceinline__ void put_parameters(float *all, const float (&sums)[GROUPS][CUDA_GROUP],
                                                      int cols, float *out, int accumulate)
{
    int warp = threadIdx.x / CUDA_WARP, lane = threadIdx.x % CUDA_WARP;

    __syncthreads();
#pragma unroll
    for (int k = 0; k < GROUPS; k++) {
#pragma unroll
        for (int i = 0; i < CUDA_GROUP; i++) {
            int col = k * LAYERNORM_STEP + lane * CUDA_GROUP + i;

            if (col < cols)
                all[warp * cols + col] = sums[k][i];
        }
    }
    __syncthreads();
    for (int c = threadIdx.x; c < cols; c += LAYERNORM_THREADS) {
        float sum = all[c];

        for (int w = 1; w < LAYERNORM_WARPS; w++)
            sum += all[w * cols + c];
        out[c] = accumulate ? out[c] + sum : sum;
    }
}

/* partial is [gridDim.x][2][cols], or NULL: there is one block, which writes dgamma and dbeta. FULL: the
 * groups are exactly the row. */
template <class T, int GROUPS, bool PACKED, bool FULL>
static __global__ void __launch_bounds__(LAYERNORM_THREADS, GROUPS <= 3 ? 2 : 1)
    backward_narrow_kernel(struct op_layernorm_backward args, float *partial)
{
    extern __shared__ float layernorm_shared[];
    int warp = threadIdx.x / CUDA_WARP, lane = threadIdx.x % CUDA_WARP;
    int cols = FULL ? GROUPS * LAYERNORM_STEP : args.cols;
    float dgamma[GROUPS][CUDA_GROUP] = {}, dbeta[GROUPS][CUDA_GROUP] = {};

    for (int row = blockIdx.x * LAYERNORM_WARPS + warp; row < args.rows; row += gridDim.x * LAYERNORM_WARPS) {
        size_t first = (size_t)row * cols;
        float mean = args.mean[row], rstd = args.rstd[row];
        float g[GROUPS][CUDA_GROUP], xhat[GROUPS][CUDA_GROUP], dx[GROUPS][CUDA_GROUP];
        float sum_g = 0.0f, sum_gx = 0.0f;

#pragma unroll
        for (int k = 0; k < GROUPS; k++) {
            int col = k * LAYERNORM_STEP + lane * CUDA_GROUP;

            if (col < cols) {
                read_back<T, PACKED>(args, first, col, cols, mean, rstd, g[k], xhat[k]);
                read_dsum<T, PACKED>(args, first, col, cols, dx[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < GROUPS; k++) {
            int col = k * LAYERNORM_STEP + lane * CUDA_GROUP;
            float gamma[CUDA_GROUP];

            if (col >= cols)
                continue;
            read_row<PACKED>(gamma, args.gamma, col, cols);
#pragma unroll
            for (int i = 0; i < CUDA_GROUP; i++) {
                dgamma[k][i] += g[k][i] * xhat[k][i];
                dbeta[k][i] += g[k][i];
                g[k][i] *= gamma[i];
                sum_g += g[k][i];
                sum_gx += g[k][i] * xhat[k][i];
            }
        }
        sum_g = warp_sum(sum_g) / cols;
        sum_gx = warp_sum(sum_gx) / cols;
#pragma unroll
        for (int k = 0; k < GROUPS; k++) {
            int col = k * LAYERNORM_STEP + lane * CUDA_GROUP;

            if (col < cols)
                put_dx<T, PACKED>(args, first, col, cols, dx[k], g[k], xhat[k], rstd, sum_g, sum_gx);
        }
    }
    float *out_gamma = partial ? partial + (size_t)blockIdx.x * 2 * cols : args.dgamma;
    float *out_beta = partial ? out_gamma + cols : args.dbeta;
    int accumulate = partial ? 0 : args.accumulate;

    put_parameters<GROUPS>(layernorm_shared, dgamma, cols, out_gamma, accumulate);
    put_parameters<GROUPS>(layernorm_shared, dbeta, cols, out_beta, accumulate);
}

/* dgamma and dbeta of chunk blockIdx.y of the rows; see bias_act.cu for the scheme. */
template <class T, bool PACKED>
static __global__ void parameters_kernel(struct op_layernorm_backward args, int rows_of_chunk, float *partial)
{
    int cols = args.cols, col = (blockIdx.x * COLUMNS_ACROSS + threadIdx.x) * CUDA_GROUP;
    int begin = blockIdx.y * rows_of_chunk, end = min(begin + rows_of_chunk, args.rows);
    float dgamma[CUDA_GROUP] = {}, dbeta[CUDA_GROUP] = {};
    float *out_gamma = partial ? partial + (size_t)blockIdx.y * 2 * cols : args.dgamma;
    float *out_beta = partial ? out_gamma + cols : args.dbeta;
    bool add = !partial && args.accumulate;

    for (int row = begin + threadIdx.y; col < cols && row < end; row += COLUMNS_DOWN) {
        float dy[CUDA_GROUP], xhat[CUDA_GROUP];

        read_back<T, PACKED>(args, (size_t)row * cols, col, cols, args.mean[row], args.rstd[row], dy, xhat);
#pragma unroll
        for (int i = 0; i < CUDA_GROUP; i++) {
            dgamma[i] += dy[i] * xhat[i];
            dbeta[i] += dy[i];
        }
    }
    columns_block_sum(dgamma);
    columns_block_sum(dbeta);
    for (int i = 0; threadIdx.y == 0 && i < CUDA_GROUP && col + i < cols; i++) {
        out_gamma[col + i] = dgamma[i] + (add ? out_gamma[col + i] : 0.0f);
        out_beta[col + i] = dbeta[i] + (add ? out_beta[col + i] : 0.0f);
    }
}

template <class T, bool PACKED> static __global__ void backward_wide_kernel(struct op_layernorm_backward args)
{
    int row = blockIdx.x, cols = args.cols;
    size_t first = (size_t)row * cols;
    float mean = args.mean[row], rstd = args.rstd[row];
    float sum_g = 0.0f, sum_gx = 0.0f;
    float g[CUDA_GROUP], xhat[CUDA_GROUP], gamma[CUDA_GROUP], dx[CUDA_GROUP];

    for (int pass = 0; pass < 2; pass++) {
        for (int col = threadIdx.x * CUDA_GROUP; col < cols; col += blockDim.x * CUDA_GROUP) {
            read_back<T, PACKED>(args, first, col, cols, mean, rstd, g, xhat);
            read_row<PACKED>(gamma, args.gamma, col, cols);
#pragma unroll
            for (int i = 0; i < CUDA_GROUP; i++) {
                g[i] *= gamma[i];
                sum_g += pass == 0 ? g[i] : 0.0f;
                sum_gx += pass == 0 ? g[i] * xhat[i] : 0.0f;
            }
            if (pass == 1) {
                read_dsum<T, PACKED>(args, first, col, cols, dx);
                put_dx<T, PACKED>(args, first, col, cols, dx, g, xhat, rstd, sum_g, sum_gx);
            }
        }
        if (pass == 0) {
            sum_g = block_sum(sum_g) / cols;
            sum_gx = block_sum(sum_gx) / cols;
        }
    }
}

template <class T, bool PACKED>
static int backward_wide(struct cuda_ops *ops, ops_stream stream, const struct op_layernorm_backward *args)
{
    int chunks =
        columns_chunks(ops, args->rows, args->cols, 2 * args->cols, args->workspace, args->workspace_bytes);
    dim3 block(COLUMNS_ACROSS, COLUMNS_DOWN);
    dim3 grid((args->cols + COLUMNS_OF_BLOCK - 1) / COLUMNS_OF_BLOCK, chunks);
    int rows_of_chunk = (args->rows + chunks - 1) / chunks;
    float *partial = chunks > 1 ? (float *)args->workspace : NULL;

    parameters_kernel<T, PACKED><<<grid, block, 0, stream>>>(*args, rows_of_chunk, partial);
    if (partial)
        columns_finish(stream, partial, chunks, 2 * args->cols, args->cols, args->dgamma, args->dbeta,
                       args->accumulate);
    backward_wide_kernel<T, PACKED><<<args->rows, CUDA_BLOCK, 0, stream>>>(*args);
    return cudaGetLastError();
}

template <class T, int GROUPS, bool PACKED, bool FULL>
static int backward_narrow(struct cuda_ops *ops, ops_stream stream, const struct op_layernorm_backward *args)
{
    size_t shared = (size_t)LAYERNORM_WARPS * args->cols * sizeof(float);
    size_t by_space = args->workspace ? args->workspace_bytes / (2 * args->cols * sizeof(float)) : 0;
    unsigned grid = ops->multiprocessors * 2;
    unsigned by_rows = (args->rows + LAYERNORM_WARPS - 1) / LAYERNORM_WARPS;
    float *partial;

    grid = grid < by_rows ? grid : by_rows;
    grid = by_space < grid ? (unsigned)by_space : grid;
    grid = grid ? grid : 1;
    partial = grid > 1 ? (float *)args->workspace : NULL;
    backward_narrow_kernel<T, GROUPS, PACKED, FULL>
        <<<grid, LAYERNORM_THREADS, shared, stream>>>(*args, partial);
    if (partial)
        columns_finish(stream, partial, (int)grid, 2 * args->cols, args->cols, args->dgamma, args->dbeta,
                       args->accumulate);
    return cudaGetLastError();
}

template <class T, int GROUPS>
static int backward_groups(struct cuda_ops *ops, ops_stream stream, const struct op_layernorm_backward *args,
                           bool packed)
{
    if (packed && args->cols == GROUPS * LAYERNORM_STEP)
        return backward_narrow<T, GROUPS, true, true>(ops, stream, args);
    if (packed)
        return backward_narrow<T, GROUPS, true, false>(ops, stream, args);
    return backward_narrow<T, GROUPS, false, false>(ops, stream, args);
}

int cuda_layernorm_backward(struct cuda_ops *ops, ops_stream stream, const struct op_layernorm_backward *args)
{
    int groups = (args->cols + LAYERNORM_STEP - 1) / LAYERNORM_STEP;
    bool packed = cuda_packed(args->cols, args->dy, args->dsum, args->x, args->dx, args->gamma);

    if (args->rows == 0 || args->cols == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->type, T, {
        if (groups == 1)
            return backward_groups<T, 1>(ops, stream, args, packed);
        if (groups == 2)
            return backward_groups<T, 2>(ops, stream, args, packed);
        if (groups == 3)
            return backward_groups<T, 3>(ops, stream, args, packed);
        if (groups == 4)
            return backward_groups<T, 4>(ops, stream, args, packed);
        return packed ? backward_wide<T, true>(ops, stream, args)
                      : backward_wide<T, false>(ops, stream, args);
    });
    return OPS_OK;
}

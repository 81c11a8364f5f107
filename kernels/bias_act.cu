/* Bias and activation. Shapes: x, y, dx, dy, saved are [rows][cols], bias and dbias are [cols].
 *     forward:  y = act(x + bias)
 *     backward: dx = dy * act'; dbias = the sum of dx over the rows
 * A thread keeps to one group of columns and walks down the rows, so it reads the bias once and sums its
 * columns in registers; the sums of chunks of rows are added by columns.cuh, without atomics. The CPU
 * reference is bias_act.c. */
#include "act.cuh"
#include "columns.cuh"

template <class T> static __global__ void forward_kernel(struct op_bias_act_forward args, bool packed)
{
    size_t cols = args.cols;
    size_t col = ((size_t)blockIdx.x * COLUMNS_ACROSS + threadIdx.x) * CUDA_GROUP;
    float bias[CUDA_GROUP] = {};

    if (col >= cols)
        return;
    if (args.bias)
        read_group(bias, (const T *)args.bias, col, cols, packed);
    for (int row = blockIdx.y * COLUMNS_DOWN + threadIdx.y; row < args.rows;
         row += gridDim.y * COLUMNS_DOWN) {
        float v[CUDA_GROUP];

        read_group(v, (const T *)args.x + row * cols, col, cols, packed);
#pragma unroll
        for (int i = 0; i < CUDA_GROUP; i++)
            v[i] = act_forward(v[i] + bias[i], args.act);
        write_group((T *)args.y + row * cols, v, col, cols, packed);
    }
}

int cuda_bias_act_forward(struct cuda_ops *ops, ops_stream stream, const struct op_bias_act_forward *args)
{
    unsigned across = (args->cols + COLUMNS_OF_BLOCK - 1) / COLUMNS_OF_BLOCK;
    unsigned down = (args->rows + COLUMNS_DOWN - 1) / COLUMNS_DOWN;
    unsigned most = ops->multiprocessors * 16 / (across ? across : 1) + 1;
    dim3 block(COLUMNS_ACROSS, COLUMNS_DOWN), grid(across, down < most ? down : most);
    bool packed = cuda_aligned(args->cols * ops_type_bytes(args->type), args->x, args->bias, args->y);

    if (args->rows == 0 || args->cols == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->type, T, forward_kernel<T><<<grid, block, 0, stream>>>(*args, packed));
    return cudaGetLastError();
}

/* Chunk blockIdx.y of the rows; partial is where its sums go, [chunks][cols], or NULL: straight to dbias. */
template <class T>
static __global__ void backward_kernel(struct op_bias_act_backward args, int rows_of_chunk, float *partial,
                                       bool packed)
{
    size_t cols = args.cols;
    size_t col = ((size_t)blockIdx.x * COLUMNS_ACROSS + threadIdx.x) * CUDA_GROUP;
    int begin = blockIdx.y * rows_of_chunk;
    int end = min(begin + rows_of_chunk, args.rows);
    bool write = args.act != OPS_ACT_NONE || args.dx != args.dy;
    float sum[CUDA_GROUP] = {};

    for (int row = begin + threadIdx.y; col < cols && row < end; row += COLUMNS_DOWN) {
        float v[CUDA_GROUP], saved[CUDA_GROUP];

        read_group(v, (const T *)args.dy + row * cols, col, cols, packed);
        if (args.act != OPS_ACT_NONE) {
            read_group(saved, (const T *)args.saved + row * cols, col, cols, packed);
#pragma unroll
            for (int i = 0; i < CUDA_GROUP; i++)
                v[i] *= act_slope(saved[i], args.act);
        }
#pragma unroll
        for (int i = 0; i < CUDA_GROUP; i++)
            sum[i] += v[i];
        if (write)
            write_group((T *)args.dx + row * cols, v, col, cols, packed);
    }
    if (!args.dbias)
        return;
    columns_block_sum(sum);
    if (threadIdx.y > 0)
        return;
    for (int i = 0; i < CUDA_GROUP && col + i < cols; i++) {
        if (partial)
            partial[blockIdx.y * cols + col + i] = sum[i];
        else
            args.dbias[col + i] = args.accumulate ? args.dbias[col + i] + sum[i] : sum[i];
    }
}

/* Without dbias there is nothing to sum, and as many chunks as there are rows for. */
static int backward_chunks(const struct cuda_ops *ops, const struct op_bias_act_backward *args)
{
    if (args->dbias)
        return columns_chunks(ops, args->rows, args->cols, args->cols, args->workspace,
                              args->workspace_bytes);
    return columns_chunks(ops, args->rows, args->cols, args->cols, args, SIZE_MAX);
}

int cuda_bias_act_backward(struct cuda_ops *ops, ops_stream stream, const struct op_bias_act_backward *args)
{
    int chunks = backward_chunks(ops, args);
    int rows_of_chunk = (args->rows + chunks - 1) / chunks;
    dim3 block(COLUMNS_ACROSS, COLUMNS_DOWN);
    dim3 grid((args->cols + COLUMNS_OF_BLOCK - 1) / COLUMNS_OF_BLOCK, chunks);
    float *partial = chunks > 1 && args->dbias ? (float *)args->workspace : NULL;
    bool packed = cuda_aligned(args->cols * ops_type_bytes(args->type), args->dy,
                               args->act == OPS_ACT_NONE ? NULL : args->saved, args->dx);
    int status;

    if (args->cols == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->type, T,
                 backward_kernel<T><<<grid, block, 0, stream>>>(*args, rows_of_chunk, partial, packed));
    status = cudaGetLastError();
    if (!status && partial)
        status = columns_finish(stream, partial, chunks, args->cols, args->cols, args->dbias, NULL,
                                args->accumulate);
    return status;
}

/* Bias and activation. Shapes: x, y, dx, dy, saved are [rows][cols], bias and dbias are [cols].
 *     forward:  y = act(x + bias)
 *     backward: dx = dy * act'; dbias = the sum of dx over the rows
 * A thread keeps to one group of columns and walks down the rows, so it reads the bias once and sums its
 * columns in registers; the sums of chunks of rows are added by columns.cuh, without atomics. The CPU
 * reference is bias_act.c. */
#include "kernels/act.cuh"
#include "kernels/columns.cuh"

template <class T, bool PACKED> static __global__ void forward_kernel(struct op_bias_act_forward args)
{
    size_t cols = args.cols;
    size_t col = ((size_t)blockIdx.x * COLUMNS_ACROSS + threadIdx.x) * CUDA_GROUP;
    float bias[CUDA_GROUP] = {};

    if (col >= cols)
        return;
    if (args.bias)
        read_row<PACKED>(bias, (const T *)args.bias, col, cols);
    for (int row = blockIdx.y * COLUMNS_DOWN + threadIdx.y; row < args.rows;
         row += gridDim.y * COLUMNS_DOWN) {
        float v[CUDA_GROUP];

        read_row<PACKED>(v, (const T *)args.x + row * cols, col, cols);
#pragma unroll
        for (int i = 0; i < CUDA_GROUP; i++)
            v[i] = act_forward(v[i] + bias[i], args.act);
        write_row<PACKED>((T *)args.y + row * cols, v, col, cols);
    }
}

int cuda_bias_act_forward(struct cuda_ops *ops, ops_stream stream, const struct op_bias_act_forward *args)
{
    unsigned across = (args->cols + COLUMNS_OF_BLOCK - 1) / COLUMNS_OF_BLOCK;
    unsigned down = (args->rows + COLUMNS_DOWN - 1) / COLUMNS_DOWN;
    unsigned most = ops->multiprocessors * 16 / (across ? across : 1) + 1;
    dim3 block(COLUMNS_ACROSS, COLUMNS_DOWN), grid(across, down < most ? down : most);
    bool packed = cuda_packed(args->cols, args->x, args->bias, args->y);

    if (args->rows == 0 || args->cols == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->type, T, {
        CUDA_BY_PACKED(packed, P, { forward_kernel<T, P><<<grid, block, 0, stream>>>(*args); });
    });
    return cudaGetLastError();
}

/* Rows that a thread reads before it writes the first: as many loads are then under way together. */
static const int BATCH = 4;

/* Chunk blockIdx.y of the rows; partial is where its sums go, [chunks][cols], or NULL: straight to dbias. */
template <class T, bool PACKED, enum ops_act ACT>
static __global__ void backward_kernel(struct op_bias_act_backward args, int rows_of_chunk, float *partial)
{
    size_t cols = args.cols;
    size_t col = ((size_t)blockIdx.x * COLUMNS_ACROSS + threadIdx.x) * CUDA_GROUP;
    int begin = blockIdx.y * rows_of_chunk, end = min(begin + rows_of_chunk, args.rows);
    bool write = ACT != OPS_ACT_NONE || args.dx != args.dy;
    float sum[CUDA_GROUP] = {};

    for (int row0 = begin + threadIdx.y; col < cols && row0 < end; row0 += BATCH * COLUMNS_DOWN) {
        float v[BATCH][CUDA_GROUP], saved[BATCH][CUDA_GROUP];

#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            int row = min(row0 + b * COLUMNS_DOWN, end - 1); /* the last one again: it is not used */

            read_row<PACKED>(v[b], (const T *)args.dy + row * cols, col, cols);
            if (ACT != OPS_ACT_NONE)
                read_row<PACKED>(saved[b], (const T *)args.saved + row * cols, col, cols);
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            int row = row0 + b * COLUMNS_DOWN;

            if (row >= end)
                break;
#pragma unroll
            for (int i = 0; i < CUDA_GROUP; i++) {
                if (ACT != OPS_ACT_NONE)
                    v[b][i] *= act_slope(saved[b][i], ACT);
                sum[i] += v[b][i];
            }
            if (write)
                write_row<PACKED>((T *)args.dx + row * cols, v[b], col, cols);
        }
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

template <class T, bool PACKED>
static void backward(ops_stream stream, dim3 grid, const struct op_bias_act_backward *args, int rows_of_chunk,
                     float *partial)
{
    dim3 block(COLUMNS_ACROSS, COLUMNS_DOWN);

    if (args->act == OPS_ACT_NONE)
        backward_kernel<T, PACKED, OPS_ACT_NONE><<<grid, block, 0, stream>>>(*args, rows_of_chunk, partial);
    else if (args->act == OPS_ACT_RELU)
        backward_kernel<T, PACKED, OPS_ACT_RELU><<<grid, block, 0, stream>>>(*args, rows_of_chunk, partial);
    else
        backward_kernel<T, PACKED, OPS_ACT_GELU><<<grid, block, 0, stream>>>(*args, rows_of_chunk, partial);
}

int cuda_bias_act_backward(struct cuda_ops *ops, ops_stream stream, const struct op_bias_act_backward *args)
{
    int chunks = backward_chunks(ops, args);
    int rows_of_chunk = (args->rows + chunks - 1) / chunks;
    dim3 grid((args->cols + COLUMNS_OF_BLOCK - 1) / COLUMNS_OF_BLOCK, chunks);
    float *partial = chunks > 1 && args->dbias ? (float *)args->workspace : NULL;
    bool packed = cuda_packed(args->cols, args->dy, args->act == OPS_ACT_NONE ? NULL : args->saved, args->dx);
    int status;

    if (args->cols == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->type, T, {
        CUDA_BY_PACKED(packed, P, { backward<T, P>(stream, grid, args, rows_of_chunk, partial); });
    });
    status = cudaGetLastError();
    if (!status && partial)
        status = columns_finish(stream, partial, chunks, args->cols, args->cols, args->dbias, NULL,
                                args->accumulate);
    return status;
}

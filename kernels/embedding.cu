/* Embedding of tokens and positions. Shapes: tokens [rows], tables [vocabulary][cols] and [length][cols], out
 * and dout [rows][cols]. forward:  out[row] = tokens_table[tokens[row]] + positions_table[row % length]
 *     backward: the sums of dout over the rows of each token and of each position
 * Backward puts the rows in the order of (token, row) by counting, for each, those that come before; blocks
 * then sum segments of that order. A token within one segment is added to the table at once; the parts of one
 * that goes over several are put into the workspace and added up, in order, by the block where it begins. So
 * nothing is summed by two, and the time does not depend on how often a token occurs. Without workspace, a
 * thread per column goes through all rows. The CPU reference is embedding.c. */
#include "types.cuh"

template <class T, bool PACKED> static __global__ void forward_kernel(struct op_embedding_forward args)
{
    size_t cols = args.cols;

    for (int row = blockIdx.x * blockDim.y + threadIdx.y; row < args.rows; row += gridDim.x * blockDim.y) {
        const T *token = (const T *)args.tokens_table + args.tokens[row] * cols;
        const T *position = (const T *)args.positions_table + row % args.length * cols;

        for (size_t col = threadIdx.x * CUDA_GROUP; col < cols; col += blockDim.x * CUDA_GROUP) {
            float v[CUDA_GROUP], p[CUDA_GROUP];

            read_row<PACKED>(v, token, col, cols);
            if (args.positions_table) {
                read_row<PACKED>(p, position, col, cols);
#pragma unroll
                for (int i = 0; i < CUDA_GROUP; i++)
                    v[i] += p[i];
            }
            write_row<PACKED>((T *)args.out + row * cols, v, col, cols);
        }
    }
}

int cuda_embedding_forward(struct cuda_ops *, ops_stream stream, const struct op_embedding_forward *args)
{
    const int down = 4, most = 65535;
    int blocks = (args->rows + down - 1) / down;
    dim3 grid(blocks < most ? blocks : most), block(CUDA_WARP * 2, down);
    bool packed = cuda_packed(args->cols, args->tokens_table, args->positions_table, args->out);

    if (args->rows == 0 || args->cols == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->type, T, {
        CUDA_BY_PACKED(packed, P, { forward_kernel<T, P><<<grid, block, 0, stream>>>(*args); });
    });
    return cudaGetLastError();
}

/* dpositions_table: a thread sums the rows of one position, one after the other. */
template <class T, bool PACKED> static __global__ void positions_kernel(struct op_embedding_backward args)
{
    size_t cols = args.cols;
    int position = blockIdx.x;

    for (size_t col = threadIdx.x * CUDA_GROUP; col < cols; col += blockDim.x * CUDA_GROUP) {
        float sum[CUDA_GROUP] = {}, v[CUDA_GROUP];

        if (args.accumulate)
            read_row<PACKED>(sum, args.dpositions_table + position * cols, col, cols);
        for (int row = position; row < args.rows; row += args.length) {
            read_row<PACKED>(v, (const T *)args.dout + row * cols, col, cols);
#pragma unroll
            for (int i = 0; i < CUDA_GROUP; i++)
                sum[i] += v[i];
        }
        write_row<PACKED>(args.dpositions_table + position * cols, sum, col, cols);
    }
}

/* Without workspace: a thread takes a column through all rows. */
template <class T> static __global__ void plain_kernel(struct op_embedding_backward args)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x;

    if (col >= args.cols)
        return;
    for (int row = 0; row < args.rows; row++)
        args.dtokens_table[(size_t)args.tokens[row] * args.cols + col] +=
            to_float(((const T *)args.dout)[(size_t)row * args.cols + col]);
}

static const int RANK_WARPS = 8;

/* order[rank] = row, where rank is the number of rows before it by (token, row). A block ranks 32 rows; its
 * warps share the rows to compare with. */
static __global__ void order_kernel(const int32_t *tokens, int rows, int32_t *order)
{
    __shared__ int partial[RANK_WARPS][CUDA_WARP];
    int lane = threadIdx.x, warp = threadIdx.y;
    int row = blockIdx.x * CUDA_WARP + lane;
    int token = row < rows ? tokens[row] : 0;
    int share = (rows + RANK_WARPS - 1) / RANK_WARPS;
    int begin = warp * share, end = min(begin + share, rows);
    int before = 0;

#pragma unroll 8
    for (int other = begin; other < end; other++) {
        int t = __ldg(tokens + other);

        before += t < token || (t == token && other < row);
    }
    partial[warp][lane] = before;
    __syncthreads();
    if (warp == 0 && row < rows) {
        for (int w = 1; w < RANK_WARPS; w++)
            before += partial[w][lane];
        order[before] = row;
    }
}

static const int SEGMENT = 32;

/* Where the first and the last token of a segment also occur outside of it, their sums go to
 * parts[segment][0] (it began before) and parts[segment][1] (it begins here and goes on). */
template <class T, bool PACKED>
static __global__ void segments_kernel(struct op_embedding_backward args, const int32_t *order, float *parts)
{
    __shared__ int rows[SEGMENT], tokens[SEGMENT + 2];
    size_t cols = args.cols;
    size_t col = ((size_t)blockIdx.y * blockDim.x + threadIdx.x) * CUDA_GROUP;
    int first = blockIdx.x * SEGMENT;
    int count = min(SEGMENT, args.rows - first);

    for (int i = threadIdx.x; i < count + 2; i += blockDim.x) {
        int at = first + i - 1;

        tokens[i] = at >= 0 && at < args.rows ? args.tokens[order[at]] : -1;
        if (i >= 1 && i <= count)
            rows[i - 1] = order[at];
    }
    __syncthreads();
    if (col >= cols)
        return;
    float sum[CUDA_GROUP] = {}, v[CUDA_GROUP];
    bool began_before = tokens[0] == tokens[1];

    for (int i = 0; i < count; i++) {
        read_row<PACKED>(v, (const T *)args.dout + rows[i] * cols, col, cols);
#pragma unroll
        for (int j = 0; j < CUDA_GROUP; j++)
            sum[j] += v[j];
        if (i + 1 < count && tokens[i + 2] == tokens[i + 1])
            continue;
        bool goes_on = i + 1 == count && tokens[i + 2] == tokens[i + 1];

        if (began_before || goes_on) {
            float *part = parts + ((size_t)blockIdx.x * 2 + (began_before ? 0 : 1)) * cols;

            write_row<PACKED>(part, sum, col, cols);
        } else {
            float *to = args.dtokens_table + tokens[i + 1] * cols;

            read_row<PACKED>(v, to, col, cols);
#pragma unroll
            for (int j = 0; j < CUDA_GROUP; j++)
                v[j] += sum[j];
            write_row<PACKED>(to, v, col, cols);
        }
        began_before = false;
#pragma unroll
        for (int j = 0; j < CUDA_GROUP; j++)
            sum[j] = 0.0f;
    }
}

/* Adds up the parts of the token that begins in this segment and goes on, if there is one. */
template <bool PACKED>
static __global__ void join_kernel(struct op_embedding_backward args, const int32_t *order,
                                   const float *parts)
{
    size_t cols = args.cols;
    size_t col = ((size_t)blockIdx.y * blockDim.x + threadIdx.x) * CUDA_GROUP;
    int end = (blockIdx.x + 1) * SEGMENT;
    int segments = (args.rows + SEGMENT - 1) / SEGMENT;
    float sum[CUDA_GROUP], v[CUDA_GROUP];

    if (end >= args.rows || col >= cols)
        return;
    int token = args.tokens[order[end - 1]];
    int start = end - SEGMENT;

    if (args.tokens[order[end]] != token ||
        (start > 0 && args.tokens[order[start - 1]] == token && args.tokens[order[start]] == token))
        return; /* it ends here, or it began before and its sum is taken along by the segment where it began
                 */
    float *to = args.dtokens_table + token * cols;

    read_row<PACKED>(sum, parts + ((size_t)blockIdx.x * 2 + 1) * cols, col, cols);
    for (int s = blockIdx.x + 1; s < segments && args.tokens[order[s * SEGMENT]] == token; s++) {
        read_row<PACKED>(v, parts + (size_t)s * 2 * cols, col, cols);
#pragma unroll
        for (int i = 0; i < CUDA_GROUP; i++)
            sum[i] += v[i];
    }
    read_row<PACKED>(v, to, col, cols);
#pragma unroll
    for (int i = 0; i < CUDA_GROUP; i++)
        v[i] += sum[i];
    write_row<PACKED>(to, v, col, cols);
}

template <class T, bool PACKED>
static void tokens_backward(ops_stream stream, const struct op_embedding_backward *args)
{
    size_t segments = ((size_t)args->rows + SEGMENT - 1) / SEGMENT;
    size_t parts_bytes = segments * 2 * args->cols * sizeof(float);
    size_t order_bytes = (size_t)args->rows * sizeof(int32_t);
    uintptr_t start = ((uintptr_t)args->workspace + CUDA_PACK_BYTES - 1) / CUDA_PACK_BYTES * CUDA_PACK_BYTES;
    float *parts = (float *)start;
    int32_t *order = (int32_t *)(start + parts_bytes);
    int threads = 2 * CUDA_WARP;
    dim3 grid(segments, (args->cols + threads * CUDA_GROUP - 1) / (threads * CUDA_GROUP));

    if (!args->workspace || parts_bytes + order_bytes + CUDA_PACK_BYTES > args->workspace_bytes) {
        plain_kernel<T><<<(args->cols + CUDA_WARP - 1) / CUDA_WARP, CUDA_WARP, 0, stream>>>(*args);
        return;
    }
    order_kernel<<<(args->rows + CUDA_WARP - 1) / CUDA_WARP, dim3(CUDA_WARP, RANK_WARPS), 0, stream>>>(
        args->tokens, args->rows, order);
    segments_kernel<T, PACKED><<<grid, threads, 0, stream>>>(*args, order, parts);
    join_kernel<PACKED><<<grid, threads, 0, stream>>>(*args, order, parts);
}

int cuda_embedding_backward(struct cuda_ops *, ops_stream stream, const struct op_embedding_backward *args)
{
    size_t table_bytes = (size_t)args->vocabulary * args->cols * sizeof(float);
    bool packed = cuda_packed(args->cols, args->dout, args->dtokens_table, args->dpositions_table);
    int status = OPS_OK;

    if (!args->accumulate)
        status = cudaMemsetAsync(args->dtokens_table, 0, table_bytes, stream);
    if (!status && !args->accumulate && args->rows == 0 && args->dpositions_table)
        status = cudaMemsetAsync(args->dpositions_table, 0, (size_t)args->length * args->cols * sizeof(float),
                                 stream);
    if (status || args->rows == 0 || args->cols == 0)
        return status;
    CUDA_BY_TYPE(args->type, T, {
        CUDA_BY_PACKED(packed, P, {
            tokens_backward<T, P>(stream, args);
            if (args->dpositions_table && args->length > 0)
                positions_kernel<T, P><<<args->length, 2 * CUDA_WARP, 0, stream>>>(*args);
        });
    });
    return cudaGetLastError();
}

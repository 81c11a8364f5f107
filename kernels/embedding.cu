/* Embedding of tokens and positions. Shapes: tokens [rows], tables [vocabulary][cols] and [length][cols], out
 * and dout [rows][cols].
 *     forward:  out[row] = tokens_table[tokens[row]] + positions_table[row % length]
 *     backward: the sums of dout over the rows of each token and of each position
 * Backward sorts the rows by token with CUB's radix sort, which is stable: rows of one token keep their
 * order, so that the result depends on the input only. Blocks then sum segments of the sorted rows. If a
 * token is within one segment, its sum is added to the table at once. If it spans several, the parts go to
 * the workspace, and the block of its first segment adds them in order. So the time does not depend on how
 * often a token occurs. If the workspace cannot hold all rows, they are processed in slices. Without
 * workspace, a thread per column goes through all rows. The CPU reference is embedding.c. */
#include <cub/device/device_radix_sort.cuh>

#include "kernels/types.cuh"

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

/* Computes dpositions_table: a thread sums the rows of one position, in order. */
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

static const int SEGMENT = 32;

/* A slice of the rows, and its arrays in the workspace. */
struct slice {
    int first, count;      /* rows */
    const int32_t *tokens; /* [count], sorted */
    const int32_t *order;  /* [count], the row of each token */
    float *parts;          /* [segments][2][cols] */
};

static __global__ void number_kernel(int32_t *out, int first, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < count)
        out[i] = first + i;
}

/* Sums a segment. The sum of a token that began in an earlier segment goes to parts[segment][0], that of one
 * that begins here and continues in the next to parts[segment][1]. */
template <class T, bool PACKED>
static __global__ void segments_kernel(struct op_embedding_backward args, struct slice slice)
{
    __shared__ int rows[SEGMENT], tokens[SEGMENT + 2];
    size_t cols = args.cols;
    size_t col = ((size_t)blockIdx.y * blockDim.x + threadIdx.x) * CUDA_GROUP;
    int first = blockIdx.x * SEGMENT;
    int count = min(SEGMENT, slice.count - first);

    for (int i = threadIdx.x; i < count + 2; i += blockDim.x) {
        int at = first + i - 1;

        tokens[i] = at >= 0 && at < slice.count ? slice.tokens[at] : -1;
        if (i >= 1 && i <= count)
            rows[i - 1] = slice.order[at];
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
            float *part = slice.parts + ((size_t)blockIdx.x * 2 + (began_before ? 0 : 1)) * cols;

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

/* Adds the parts of the token that begins in this segment and continues in the next, if there is one. */
template <bool PACKED>
static __global__ void join_kernel(struct op_embedding_backward args, struct slice slice)
{
    size_t cols = args.cols;
    size_t col = ((size_t)blockIdx.y * blockDim.x + threadIdx.x) * CUDA_GROUP;
    int end = (blockIdx.x + 1) * SEGMENT;
    int segments = (slice.count + SEGMENT - 1) / SEGMENT;
    float sum[CUDA_GROUP], v[CUDA_GROUP];

    if (end >= slice.count || col >= cols)
        return;
    int token = slice.tokens[end - 1];
    int start = end - SEGMENT;

    if (slice.tokens[end] != token ||
        (start > 0 && slice.tokens[start - 1] == token && slice.tokens[start] == token))
        return; /* it ends here, or began earlier, and then the segment where it began adds it */
    float *to = args.dtokens_table + token * cols;

    read_row<PACKED>(sum, slice.parts + ((size_t)blockIdx.x * 2 + 1) * cols, col, cols);
    for (int s = blockIdx.x + 1; s < segments && slice.tokens[s * SEGMENT] == token; s++) {
        read_row<PACKED>(v, slice.parts + (size_t)s * 2 * cols, col, cols);
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

/* Offsets in the workspace of a slice: parts, sorted tokens, rows before and after sorting, CUB's workspace.
 */
struct layout {
    size_t parts, tokens, rows, order, sort, sort_bytes, total;
};

static size_t aligned(size_t bytes)
{
    const size_t alignment = 256; /* required by CUB, and more than a pack needs */

    return (bytes + alignment - 1) / alignment * alignment;
}

static int token_bits(int vocabulary)
{
    int bits = 1;

    while (bits < 31 && vocabulary - 1 >> bits)
        bits++;
    return bits;
}

static int layout_of(const struct op_embedding_backward *args, int count, struct layout *out)
{
    size_t segments = ((size_t)count + SEGMENT - 1) / SEGMENT, list = aligned(count * sizeof(int32_t));
    int status = cub::DeviceRadixSort::SortPairs(nullptr, out->sort_bytes, (const uint32_t *)nullptr,
                                                 (uint32_t *)nullptr, (const int32_t *)nullptr,
                                                 (int32_t *)nullptr, count, 0, token_bits(args->vocabulary));

    out->parts = 0;
    out->tokens = aligned(segments * 2 * args->cols * sizeof(float));
    out->rows = out->tokens + list;
    out->order = out->rows + list;
    out->sort = out->order + list;
    out->total = out->sort + aligned(out->sort_bytes);
    return status;
}

/* Finds the largest equal slices that fit `bytes`. Sets *count to 0 if the workspace is too small to be
 * useful. */
static int choose_slices(const struct op_embedding_backward *args, size_t bytes, int *count,
                         struct layout *layout)
{
    const size_t fewest = 1024; /* rows of a slice: with fewer, launches would dominate */
    size_t rows = args->rows, slices = 1, size = rows;
    int status = bytes ? layout_of(args, args->rows, layout) : OPS_OK;

    *count = 0;
    if (!bytes)
        return OPS_OK;
    while (!status && layout->total > bytes) {
        slices = slices == 1 && layout->total / bytes > 1 ? layout->total / bytes : slices + 1;
        size = (rows + slices - 1) / slices;
        size = (size + SEGMENT - 1) / SEGMENT * SEGMENT;
        if (size < fewest)
            return OPS_OK;
        status = layout_of(args, (int)size, layout);
    }
    *count = (int)size;
    return status;
}

template <class T, bool PACKED>
static int slice_backward(ops_stream stream, const struct op_embedding_backward *args, char *workspace,
                          const struct layout *layout, int first, int count)
{
    struct slice slice = {first, count, (int32_t *)(workspace + layout->tokens),
                          (int32_t *)(workspace + layout->order), (float *)(workspace + layout->parts)};
    int32_t *rows = (int32_t *)(workspace + layout->rows);
    size_t sort_bytes = layout->sort_bytes;
    int threads = 2 * CUDA_WARP;
    dim3 grid((count + SEGMENT - 1) / SEGMENT,
              (args->cols + threads * CUDA_GROUP - 1) / (threads * CUDA_GROUP));
    int status;

    number_kernel<<<(count + CUDA_BLOCK - 1) / CUDA_BLOCK, CUDA_BLOCK, 0, stream>>>(rows, first, count);
    status = cub::DeviceRadixSort::SortPairs(workspace + layout->sort, sort_bytes,
                                             (const uint32_t *)args->tokens + first, (uint32_t *)slice.tokens,
                                             (const int32_t *)rows, (int32_t *)slice.order, count, 0,
                                             token_bits(args->vocabulary), stream);
    if (status)
        return status;
    segments_kernel<T, PACKED><<<grid, threads, 0, stream>>>(*args, slice);
    join_kernel<PACKED><<<grid, threads, 0, stream>>>(*args, slice);
    return OPS_OK;
}

template <class T, bool PACKED>
static int tokens_backward(ops_stream stream, const struct op_embedding_backward *args)
{
    uintptr_t start = aligned((uintptr_t)args->workspace);
    size_t lost = start - (uintptr_t)args->workspace;
    size_t bytes = args->workspace && args->workspace_bytes > lost ? args->workspace_bytes - lost : 0;
    struct layout layout = {};
    int count = 0;
    int status = choose_slices(args, bytes, &count, &layout);

    if (!status && count == 0)
        plain_kernel<T><<<(args->cols + CUDA_WARP - 1) / CUDA_WARP, CUDA_WARP, 0, stream>>>(*args);
    for (int first = 0; !status && count > 0 && first < args->rows; first += count)
        status = slice_backward<T, PACKED>(stream, args, (char *)start, &layout, first,
                                           args->rows - first < count ? args->rows - first : count);
    return status;
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
            status = tokens_backward<T, P>(stream, args);
            if (!status && args->dpositions_table && args->length > 0)
                positions_kernel<T, P><<<args->length, 2 * CUDA_WARP, 0, stream>>>(*args);
        });
    });
    return status ? status : cudaGetLastError();
}

/* Running a recipe: see conv_recipe.h. */
#include "conv_recipe.h"

#ifdef GPUCAP_HAS_CUDNN

#include "types.cuh"

/* out[row][j] = x[row][j] for j < cols, zero from there to CONV_PAD_CHANNELS. */
template <class T> static __global__ void pad_kernel(const T *x, T *out, size_t rows, int cols)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t row = (size_t)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += step) {
        T values[CONV_PAD_CHANNELS];

        for (int j = 0; j < CONV_PAD_CHANNELS; j++)
            values[j] = j < cols ? x[row * cols + j] : from_float<T>(0.0f);
        for (int j = 0; j < CONV_PAD_CHANNELS; j += pack<T>::size)
            store_pack(out + row * CONV_PAD_CHANNELS + j, *(const pack<T> *)(values + j));
    }
}

/* out[row][j] = or += from[row][j] for j < cols, where a row of from has from_cols. */
template <class F, class T>
static __global__ void take_kernel(const F *from, T *out, size_t rows, int cols, int from_cols,
                                   int accumulate)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * cols; i += step) {
        size_t at = from_cols == cols ? i : i / cols * from_cols + i % cols;

        out[i] = from_float<T>(to_float(from[at]) + (accumulate ? to_float(out[i]) : 0.0f));
    }
}

static size_t aligned(size_t bytes)
{
    return (bytes + CONV_WORKSPACE_ALIGNMENT - 1) / CONV_WORKSPACE_ALIGNMENT * CONV_WORKSPACE_ALIGNMENT;
}

/* Where the parts of a recipe's workspace begin. */
struct layout {
    size_t x, w, result, total;
};

static struct layout layout_of(const struct conv_request *q, const struct conv_recipe *r)
{
    const struct ops_conv *s = &q->shape;
    bool padded = r->channels != s->c;
    size_t type = ops_type_bytes(s->type), result = ops_type_bytes(r->result_type);
    size_t image = (size_t)s->n * s->h * s->w, filter = (size_t)s->k * s->r * s->s;
    struct layout l;

    l.x = aligned(r->plan.workspace_bytes);
    l.w = l.x + (padded ? aligned(image * r->channels * type) : 0);
    l.result = l.w + (padded && q->direction == CONV_FORWARD ? aligned(filter * r->channels * type) : 0);
    l.total = l.result;
    if (r->via)
        l.total += aligned((q->direction == CONV_DATA ? image : filter) * r->channels * result);
    return l;
}

size_t conv_recipe_bytes(const struct conv_request *q, const struct conv_recipe *r)
{
    return layout_of(q, r).total;
}

template <class T> static void pad(ops_stream stream, const void *x, void *out, size_t rows, int cols)
{
    pad_kernel<T><<<cuda_grid(rows), CUDA_BLOCK, 0, stream>>>((const T *)x, (T *)out, rows, cols);
}

/* The result from the workspace into place. */
static void take_result(ops_stream stream, const struct conv_request *q, const struct conv_recipe *r,
                        const void *from)
{
    const struct ops_conv *s = &q->shape;
    bool data = q->direction == CONV_DATA;
    size_t rows = data ? (size_t)s->n * s->h * s->w : (size_t)s->k * s->r * s->s;
    unsigned grid = cuda_grid(rows * s->c);

    if (data)
        CUDA_BY_TYPE(s->type, T,
                     (take_kernel<T, T><<<grid, CUDA_BLOCK, 0, stream>>>(
                         (const T *)from, (T *)q->result, rows, s->c, r->channels, q->accumulate)));
    else
        CUDA_BY_TYPE(r->result_type, T,
                     (take_kernel<T, float><<<grid, CUDA_BLOCK, 0, stream>>>(
                         (const T *)from, (float *)q->result, rows, s->c, r->channels, q->accumulate)));
}

int conv_recipe_run(cudnnHandle_t handle, ops_stream stream, const struct conv_request *q,
                    const struct conv_recipe *r, void *result)
{
    const struct ops_conv *s = &q->shape;
    struct layout l = layout_of(q, r);
    const void *tensors[3] = {q->x, q->w, q->y};
    int out = q->direction == CONV_FORWARD ? 2 : q->direction == CONV_DATA ? 0 : 1;

    if (r->channels != s->c) {
        CUDA_BY_TYPE(s->type, T, pad<T>(stream, q->x, q->workspace + l.x, (size_t)s->n * s->h * s->w, s->c));
        tensors[0] = q->workspace + l.x;
        if (q->direction == CONV_FORWARD) {
            CUDA_BY_TYPE(s->type, T,
                         pad<T>(stream, q->w, q->workspace + l.w, (size_t)s->k * s->r * s->s, s->c));
            tensors[1] = q->workspace + l.w;
        }
    }
    tensors[out] = r->via ? q->workspace + l.result : result ? result : q->result;
    if (cudnnSetStream(handle, stream) != CUDNN_STATUS_SUCCESS ||
        conv_plan_run(handle, &r->plan, tensors[0], tensors[1], tensors[2], q->workspace) !=
            CUDNN_STATUS_SUCCESS) {
        int error = cudaGetLastError();

        return error ? error : cudaErrorUnknown;
    }
    if (r->via)
        take_result(stream, q, r, tensors[out]);
    return cudaGetLastError();
}

#endif

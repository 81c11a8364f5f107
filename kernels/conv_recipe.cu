/* Running a recipe: see conv_recipe.h. A folded picture: row f of squares holds the rows 2 (f - half) and the
 * one below it, where half is the padding in squares; a filter tap t is tap (t + odd) / 2 of the folded
 * filter, in the square's row (t + odd) % 2, where odd is 1 if the padding is. */
#include "kernels/conv_recipe.h"

#ifdef GPUCAP_HAS_CUDNN

#include "kernels/types.cuh"

enum { FILLED_CHANNELS = 8, FOLDED_CHANNELS = 16, FOLDED_FROM = 4 };

static int out_size(int size, int filter, int stride, int pad)
{
    return (size + 2 * pad - filter) / stride + 1;
}

struct ops_conv conv_recipe_shape(const struct ops_conv *shape, enum conv_view view)
{
    struct ops_conv s = *shape;
    int odd = s.pad % 2;

    if (view == CONV_FILLED)
        s.c = FILLED_CHANNELS;
    if (view == CONV_FOLDED) {
        s.r = (s.r + odd + 1) / 2;
        s.s = (s.s + odd + 1) / 2;
        s.h = out_size(shape->h, shape->r, 2, s.pad) + s.r - 1;
        s.w = out_size(shape->w, shape->s, 2, s.pad) + s.s - 1;
        s.c = FOLDED_CHANNELS;
        s.stride = 1;
        s.pad = 0;
    }
    return s;
}

/* out[row][j] = x[row][j] for j < cols, zero from there to FILLED_CHANNELS. */
template <class T> static __global__ void fill_kernel(const T *x, T *out, size_t rows, int cols)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t row = (size_t)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += step) {
        T values[FILLED_CHANNELS];

        for (int j = 0; j < FILLED_CHANNELS; j++)
            values[j] = j < cols ? x[row * cols + j] : from_float<T>(0.0f);
        for (int j = 0; j < FILLED_CHANNELS; j += pack<T>::size)
            store_pack(out + row * FILLED_CHANNELS + j, *(const pack<T> *)(values + j));
    }
}

/* One thread makes one square: from images[n][h][w][c], square (y, x) begins at (2 y - top, 2 x - top).
 * Filters are folded by the same kernel, as images of r x s pixels. */
template <class T>
static __global__ void fold_kernel(const T *from, T *out, int squares_h, int squares_w, int h, int w, int c,
                                   int top)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, n = blockIdx.z;
    T values[FOLDED_CHANNELS];

    if (x >= squares_w)
        return;
    for (int i = 0; i < 4; i++) {
        int row = 2 * y - top + i / 2, col = 2 * x - top + i % 2;
        bool inside = row >= 0 && row < h && col >= 0 && col < w;

#pragma unroll
        for (int j = 0; j < FOLDED_FROM; j++) {
            T value = from_float<T>(0.0f);

            if (inside && j < c)
                value = from[(((size_t)n * h + row) * w + col) * c + j];
            values[i * FOLDED_FROM + j] = value;
        }
    }
    out += (((size_t)n * squares_h + y) * squares_w + x) * FOLDED_CHANNELS;
    for (int j = 0; j < FOLDED_CHANNELS; j += pack<T>::size)
        store_pack(out + j, *(const pack<T> *)(values + j));
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

/* dw[k][r][s][c] = or += from the folded filters. */
template <class F>
static __global__ void unfold_kernel(const F *from, float *dw, struct ops_conv s, struct ops_conv folded,
                                     int accumulate)
{
    size_t count = (size_t)s.k * s.r * s.s * s.c, step = (size_t)gridDim.x * blockDim.x;
    int odd = s.pad % 2;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        int c = (int)(i % s.c), column = (int)(i / s.c % s.s) + odd, row = (int)(i / s.c / s.s % s.r) + odd;
        size_t k = i / s.c / s.s / s.r;
        size_t at = ((k * folded.r + row / 2) * folded.s + column / 2) * FOLDED_CHANNELS +
                    (row % 2 * 2 + column % 2) * FOLDED_FROM + c;

        dw[i] = to_float(from[at]) + (accumulate ? dw[i] : 0.0f);
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
    const struct ops_conv *s = &r->shape;
    bool copies = r->view != CONV_PLAIN;
    size_t type = ops_type_bytes(s->type), result = ops_type_bytes(r->result_type);
    size_t image = (size_t)s->n * s->h * s->w * s->c, filter = (size_t)s->k * s->r * s->s * s->c;
    struct layout l;

    l.x = aligned(r->plan.workspace_bytes);
    l.w = l.x + (copies ? aligned(image * type) : 0);
    l.result = l.w + (copies && q->direction == CONV_FORWARD ? aligned(filter * type) : 0);
    l.total = l.result + (r->via ? aligned((q->direction == CONV_DATA ? image : filter) * result) : 0);
    return l;
}

size_t conv_recipe_bytes(const struct conv_request *q, const struct conv_recipe *r)
{
    return layout_of(q, r).total;
}

/* A copy of images or filters [n][h][w][c], as the recipe's view has them, of out_h x out_w. */
template <class T>
static void rearrange(ops_stream stream, const struct conv_recipe *r, const void *from, void *out, int n,
                      int h, int w, int c, int top, int out_h, int out_w)
{
    size_t rows = (size_t)n * h * w;
    dim3 grid((out_w + CUDA_WARP - 1) / CUDA_WARP, out_h, n);

    if (r->view == CONV_FILLED)
        fill_kernel<T><<<cuda_grid(rows), CUDA_BLOCK, 0, stream>>>((const T *)from, (T *)out, rows, c);
    else
        fold_kernel<T><<<grid, CUDA_WARP, 0, stream>>>((const T *)from, (T *)out, out_h, out_w, h, w, c, top);
}

/* The result from the workspace into place. */
static void take_result(ops_stream stream, const struct conv_request *q, const struct conv_recipe *r,
                        const void *from, int accumulate)
{
    const struct ops_conv *s = &q->shape;
    bool data = q->direction == CONV_DATA;
    size_t rows = data ? (size_t)s->n * s->h * s->w : (size_t)s->k * s->r * s->s;
    unsigned grid = cuda_grid(rows * s->c);

    if (r->view == CONV_FOLDED)
        CUDA_BY_TYPE(r->result_type, T,
                     (unfold_kernel<T><<<grid, CUDA_BLOCK, 0, stream>>>((const T *)from, (float *)q->result,
                                                                        *s, r->shape, accumulate)));
    else if (data)
        CUDA_BY_TYPE(s->type, T,
                     (take_kernel<T, T><<<grid, CUDA_BLOCK, 0, stream>>>(
                         (const T *)from, (T *)q->result, rows, s->c, r->shape.c, accumulate)));
    else
        CUDA_BY_TYPE(r->result_type, T,
                     (take_kernel<T, float><<<grid, CUDA_BLOCK, 0, stream>>>(
                         (const T *)from, (float *)q->result, rows, s->c, r->shape.c, accumulate)));
}

/* One run of the plan, on the images from number `first` on. */
static int run_images(cudnnHandle_t handle, ops_stream stream, const struct conv_request *q,
                      const struct conv_recipe *r, const struct layout *l, int first)
{
    const struct ops_conv *s = &q->shape, *seen = &r->shape;
    size_t type = ops_type_bytes(s->type);
    size_t pixels = (size_t)out_size(s->h, s->r, s->stride, s->pad) * out_size(s->w, s->s, s->stride, s->pad);
    const void *tensors[3] = {(const char *)q->x + (size_t)first * s->h * s->w * s->c * type, q->w,
                              (const char *)q->y + first * pixels * s->k * type};
    int out = q->direction == CONV_FORWARD ? 2 : q->direction == CONV_DATA ? 0 : 1;

    if (r->view != CONV_PLAIN) {
        CUDA_BY_TYPE(s->type, T,
                     rearrange<T>(stream, r, tensors[0], q->workspace + l->x, seen->n, s->h, s->w, s->c,
                                  s->pad + s->pad % 2, seen->h, seen->w));
        tensors[0] = q->workspace + l->x;
        if (q->direction == CONV_FORWARD)
            tensors[1] = q->workspace + l->w;
    }
    if (r->via)
        tensors[out] = q->workspace + l->result;
    if (conv_plan_run(handle, &r->plan, tensors[0], tensors[1], tensors[2], q->workspace) !=
        CUDNN_STATUS_SUCCESS)
        return cudaErrorUnknown;
    if (r->via)
        take_result(stream, q, r, tensors[out], q->accumulate || first > 0);
    return 0;
}

int conv_recipe_run(cudnnHandle_t handle, ops_stream stream, const struct conv_request *q,
                    const struct conv_recipe *r)
{
    const struct ops_conv *s = &q->shape;
    struct layout l = layout_of(q, r);
    int status = 0;

    if (cudnnSetStream(handle, stream) != CUDNN_STATUS_SUCCESS)
        return cudaErrorUnknown;
    if (r->view != CONV_PLAIN && q->direction == CONV_FORWARD)
        CUDA_BY_TYPE(s->type, T,
                     rearrange<T>(stream, r, q->w, q->workspace + l.w, s->k, s->r, s->s, s->c, s->pad % 2,
                                  r->shape.r, r->shape.s));
    for (int first = 0; first < s->n && !status; first += r->shape.n)
        status = run_images(handle, stream, q, r, &l, first);
    return status ? status : cudaGetLastError();
}

#endif

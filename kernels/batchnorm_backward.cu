/* Batch normalization on the device, backward, fused with the rectifier and the residual's gradient:
 *     g = dy * act'; dbeta = sum g; dgamma = sum g * xhat; dresidual = g
 *     dx = gamma * rstd * (g - dbeta / rows - xhat * dgamma / rows), xhat = (x - mean) * rstd
 * batchnorm.cuh describes the kernels. The CPU reference is batchnorm.c. */
#include "kernels/batchnorm.cuh"

/* Rows that a thread loads at a time; each is three loads. */
enum { UNROLL = 2 };

/* How a kernel computes the mask of relu: not at all (no relu, or g is known), from y, from x with the
 * expression of the forward pass, or from the bits that the forward pass wrote. */
enum mask { MASK_NONE, MASK_Y, MASK_X, MASK_BITS };

/* The loads of one row of one thread. */
template <class T, int V> struct row_of {
    raw<T, V> dy, y, x;
    uint8_t bits;
};

template <class T, int V, int MASK>
static __device__ __forceinline__ void load_row(const struct op_batchnorm_backward &a, const void *dy,
                                                size_t at, row_of<T, V> *r)
{
    r->dy = load<T, V>(dy, at);
    r->x = load<T, V>(a.x, at);
    if (MASK == MASK_Y)
        r->y = load<T, V>(a.y, at);
    if (MASK == MASK_BITS)
        r->bits = a.mask[at / 8];
}

/* Scale and shift of each channel in the forward pass. */
template <int V, int MASK> struct forward_of {
    float scale[V], shift[V];

    __device__ __forceinline__ forward_of(const struct op_batchnorm_backward &a, int col)
    {
#pragma unroll
        for (int i = 0; i < V && MASK == MASK_X; i++) {
            scale[i] = a.gamma[col + i] * a.rstd[col + i];
            shift[i] = fmaf(-a.mean[col + i], scale[i], a.beta[col + i]);
        }
    }
};

/* Returns dy * act' of one element. */
template <class T, int V, int MASK>
static __device__ __forceinline__ float gradient(const row_of<T, V> &r, const forward_of<V, MASK> &forward,
                                                 int i)
{
    float dy = get<T, V>(r.dy, i);

    if (MASK == MASK_Y)
        return get<T, V>(r.y, i) > 0.0f ? dy : 0.0f;
    if (MASK == MASK_BITS)
        return r.bits >> i & 1 ? dy : 0.0f;
    if (MASK == MASK_X)
        return fmaf(get<T, V>(r.x, i), forward.scale[i], forward.shift[i]) > 0.0f ? dy : 0.0f;
    return dy;
}

/* Sums g and g * xhat over this thread's rows, and writes dresidual = g. */
template <class T, int V, int MASK>
static __device__ void sum_backward(const struct op_batchnorm_backward &a, const struct shape &s, int col,
                                    int stripe, float *first, float *second)
{
    long step = (long)s.stripes * s.tall * UNROLL;
    long begin = ((long)stripe * s.tall * UNROLL) + threadIdx.y;
    int hop = s.tall * s.cols;
    forward_of<V, MASK> forward(a, col);
    float mean[V];

#pragma unroll
    for (int i = 0; i < V; i++)
        mean[i] = a.mean[col + i];
    for (long row0 = begin + (s.rows - 1 - begin) / step * step; row0 >= begin; row0 -= step) {
        size_t at = (size_t)row0 * s.cols + col;
        row_of<T, V> r[UNROLL];

#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            load_row<T, V, MASK>(a, a.dy, row0 + u * s.tall < s.rows ? at + u * hop : col, &r[u]);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            bool inside = row0 + u * s.tall < s.rows;
            float g[V];

#pragma unroll
            for (int i = 0; i < V; i++) {
                g[i] = inside ? gradient<T, V, MASK>(r[u], forward, i) : 0.0f;
                first[i] += g[i];
                second[i] += g[i] * (get<T, V>(r[u].x, i) - mean[i]);
            }
            if (a.dresidual && inside)
                store<T, V>(a.dresidual, at + u * hop, g);
        }
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        second[i] *= a.rstd[col + i];
}

static __device__ void finish_backward(const struct op_batchnorm_backward &a, int c, float first,
                                       float second)
{
    a.dbeta[c] = first + (a.accumulate ? a.dbeta[c] : 0.0f);
    a.dgamma[c] = second + (a.accumulate ? a.dgamma[c] : 0.0f);
}

/* Computes dx = g * scale + (x - mean) * slope + shift of this thread's rows. g is read from dresidual if
 * there is one. */
template <class T, int V, int MASK>
static __device__ void apply_backward(const struct op_batchnorm_backward &a, const struct shape &s, int col,
                                      int stripe, const float *first, const float *second)
{
    long step = (long)s.stripes * s.tall * UNROLL;
    int hop = s.tall * s.cols;
    const void *dy = a.dresidual ? a.dresidual : a.dy;
    forward_of<V, MASK> forward(a, col);
    float scale[V], slope[V], shift[V];

#pragma unroll
    for (int i = 0; i < V; i++) {
        scale[i] = a.gamma[col + i] * a.rstd[col + i];
        slope[i] = -scale[i] * a.rstd[col + i] * second[i] / a.rows;
        shift[i] = -scale[i] * first[i] / a.rows - a.mean[col + i] * slope[i];
    }
    for (long row0 = (long)stripe * s.tall * UNROLL + threadIdx.y; row0 < s.rows; row0 += step) {
        size_t at = (size_t)row0 * s.cols + col;
        row_of<T, V> r[UNROLL];

#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            load_row<T, V, MASK>(a, dy, row0 + u * s.tall < s.rows ? at + u * hop : at, &r[u]);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            float dx[V];

#pragma unroll
            for (int i = 0; i < V; i++)
                dx[i] = gradient<T, V, MASK>(r[u], forward, i) * scale[i] + get<T, V>(r[u].x, i) * slope[i] +
                        shift[i];
            if (row0 + u * s.tall < s.rows)
                store<T, V>(a.dx, at + u * hop, dx);
        }
    }
}

template <class T, int V, int MASK>
static __global__ void __launch_bounds__(THREADS, BLOCKS_EACH)
    backward_sums(struct op_batchnorm_backward a, struct shape s, float *partial)
{
    int col = (blockIdx.x * blockDim.x + threadIdx.x) * V;
    float first[V] = {}, second[V] = {};

    let_next_start();
    if (col < s.cols)
        sum_backward<T, V, MASK>(a, s, col, blockIdx.y, first, second);
    add_over_rows<V>(first, second);
    if (col < s.cols && threadIdx.y == 0) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            partial[(size_t)blockIdx.y * 2 * s.cols + col + i] = first[i];
            partial[(size_t)blockIdx.y * 2 * s.cols + s.cols + col + i] = second[i];
        }
    }
}

/* Writes totals[2][cols] for the pass that applies them. */
static __global__ void __launch_bounds__(THREADS)
    backward_total(struct op_batchnorm_backward a, const float *partial, int stripes, float *totals)
{
    int c = blockIdx.x * TOTAL_WIDE + threadIdx.x;
    float first, second;

    let_next_start();
    wait_for_previous();
    total_of(partial, stripes, a.cols, c, &first, &second);
    if (c < a.cols && threadIdx.y == 0) {
        totals[c] = first;
        totals[a.cols + c] = second;
        finish_backward(a, c, first, second);
    }
}

template <class T, int V, int MASK>
static __global__ void __launch_bounds__(THREADS, BLOCKS_EACH)
    backward_apply(struct op_batchnorm_backward a, struct shape s, const float *totals)
{
    int col = (blockIdx.x * blockDim.x + threadIdx.x) * V;

    wait_for_previous();
    if (col < s.cols)
        apply_backward<T, V, MASK>(a, s, col, blockIdx.y, totals + col, totals + s.cols + col);
}

template <class T, int V, int MASK>
static __global__ void __launch_bounds__(THREADS)
    backward_small(struct op_batchnorm_backward a, struct shape s)
{
    int col = (blockIdx.x * blockDim.x + threadIdx.x) * V;
    float first[V] = {}, second[V] = {};

    if (col < s.cols)
        sum_backward<T, V, MASK>(a, s, col, 0, first, second);
    add_over_rows<V>(first, second);
    if (col < s.cols && threadIdx.y == 0) {
        for (int i = 0; i < V; i++)
            finish_backward(a, col + i, first[i], second[i]);
    }
    if (col < s.cols)
        apply_backward<T, V, MASK>(a, s, col, 0, first, second);
}

template <class T, int V, int MASK>
static void backward(struct cuda_ops *ops, ops_stream stream, const struct op_batchnorm_backward *a)
{
    /* If there is a dresidual, the second pass reads g from it. */
    constexpr int SECOND = MASK == MASK_X ? MASK_X : MASK_NONE;
    struct shape s = shape_of(ops, a->rows, a->cols, V, a->workspace ? a->workspace_bytes : 0);
    dim3 block(s.wide, s.tall), total(TOTAL_WIDE, TOTAL_TALL);
    float *totals = (float *)a->workspace, *partial = totals + 2 * (size_t)a->cols;

    if (s.stripes == 1) {
        backward_small<T, V, MASK><<<grid_of(s, V), block, 0, stream>>>(*a, s);
        return;
    }
    backward_sums<T, V, MASK><<<grid_of(s, V), block, 0, stream>>>(*a, s, partial);
    launch_close(ops, stream, (a->cols + TOTAL_WIDE - 1) / TOTAL_WIDE, total, backward_total, *a, partial,
                 s.stripes, totals);
    if (a->dresidual)
        launch_close(ops, stream, grid_of(s, V), block, backward_apply<T, V, SECOND>, *a, s, totals);
    else
        launch_close(ops, stream, grid_of(s, V), block, backward_apply<T, V, MASK>, *a, s, totals);
}

template <class T, int V, bool BITS>
static void backward_masked(struct cuda_ops *ops, ops_stream stream, const struct op_batchnorm_backward *a)
{
    if (a->act != OPS_ACT_RELU)
        backward<T, V, MASK_NONE>(ops, stream, a);
    else if (a->beta)
        backward<T, V, MASK_X>(ops, stream, a);
    else if (!BITS)
        backward<T, V, MASK_Y>(ops, stream, a);
    else if constexpr (BITS)
        backward<T, V, MASK_BITS>(ops, stream, a);
}

int cuda_batchnorm_backward(struct cuda_ops *ops, ops_stream stream, const struct op_batchnorm_backward *args)
{
    bool packs =
        cuda_aligned(args->cols * ops_type_bytes(args->type), args->dy, args->x,
                     args->act == OPS_ACT_RELU && !args->beta ? args->y : NULL, args->dx, args->dresidual);

    if (args->rows <= 0 || args->cols <= 0)
        return OPS_OK;
    if ((uintptr_t)args->workspace % sizeof(float))
        return OPS_INVALID;
    if (packs && args->mask && args->type == OPS_BF16)
        backward_masked<__nv_bfloat16, CUDA_PACK_BYTES / 2, true>(ops, stream, args);
    else if (packs && args->mask && args->type == OPS_F16)
        backward_masked<__half, CUDA_PACK_BYTES / 2, true>(ops, stream, args);
    else
        CUDA_BY_WIDTH(packs, args->type, T, V, (backward_masked<T, V, false>(ops, stream, args)));
    return cudaGetLastError();
}

/* Batch normalization on the device, forward, fused with the residual and the rectifier:
 *     y = act(gamma * (x - mean) * rstd + beta + residual)
 * batchnorm.cuh describes the kernels. The sums are of x minus the first row, so that a large mean does not
 * cancel the variance. The CPU reference is batchnorm.c. */
#include "kernels/batchnorm.cuh"

/* Rows that a thread loads at a time. */
enum { UNROLL = 4 };

/* Sums x - shift and its square over this thread's rows, from the last row to the first, because what was
 * written last is still in the cache. */
template <class T, int V>
static __device__ void sum_forward(const struct op_batchnorm_forward &a, const struct shape &s, int col,
                                   int stripe, const float *shift, float *first, float *second)
{
    long step = (long)s.stripes * s.tall * UNROLL;
    long begin = ((long)stripe * s.tall * UNROLL) + threadIdx.y;
    int hop = s.tall * s.cols;

    for (long row0 = begin + (s.rows - 1 - begin) / step * step; row0 >= begin; row0 -= step) {
        size_t at = (size_t)row0 * s.cols + col;
        raw<T, V> x[UNROLL];

#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            x[u] = load<T, V>(a.x, row0 + u * s.tall < s.rows ? at + u * hop : col);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            float counts = row0 + u * s.tall < s.rows ? 1.0f : 0.0f;

#pragma unroll
            for (int i = 0; i < V; i++) {
                float d = (get<T, V>(x[u], i) - shift[i]) * counts;

                first[i] += d;
                second[i] += d * d;
            }
        }
    }
}

/* Computes the batch's mean and rstd from the sums, and updates the running statistics. */
static __device__ void finish_forward(const struct op_batchnorm_forward &a, int c, float shift, float first,
                                      float second)
{
    float off = first / a.rows;
    float variance = fmaxf(second / a.rows - off * off, 0.0f);
    float unbiased = a.rows > 1 ? variance * ((float)a.rows / (float)(a.rows - 1)) : variance;
    float mean = shift + off;

    a.mean[c] = mean;
    a.rstd[c] = rsqrtf(variance + a.epsilon);
    /* A batch that is not finite would make the running statistics NaN for good, even if its update is
     * skipped. */
    if (!isfinite(mean) || !isfinite(unbiased))
        return;
    a.running_mean[c] = (1.0f - a.momentum) * a.running_mean[c] + a.momentum * mean;
    a.running_variance[c] = (1.0f - a.momentum) * a.running_variance[c] + a.momentum * unbiased;
}

/* Stores a row's part and the bits of what is above 0: 16-bit floats compare with 0 as integers do. */
template <class T>
static __device__ __forceinline__ void store_with_bits(const struct op_batchnorm_forward &a, size_t at,
                                                       const float *y)
{
    pack<T> p;
    unsigned bits = 0;

#pragma unroll
    for (int i = 0; i < pack<T>::size; i++)
        p.v[i] = from_float<T>(y[i]);
    store_pack((T *)a.y + at, p);
#pragma unroll
    for (int i = 0; i < pack<T>::size; i++)
        bits |= *(const int16_t *)&p.v[i] > 0 ? 1u << i : 0u;
    a.mask[at / 8] = (uint8_t)bits;
}

/* Computes y of this thread's rows, from the first row on. */
template <class T, int V, bool BITS>
static __device__ void apply_forward(const struct op_batchnorm_forward &a, const struct shape &s, int col,
                                     int stripe)
{
    float scale[V], shift[V];
    long step = (long)s.stripes * s.tall * UNROLL;
    int hop = s.tall * s.cols;

#pragma unroll
    for (int i = 0; i < V; i++) {
        float mean = a.training ? a.mean[col + i] : a.running_mean[col + i];
        float rstd = a.training ? a.rstd[col + i] : rsqrtf(a.running_variance[col + i] + a.epsilon);

        scale[i] = a.gamma[col + i] * rstd;
        shift[i] = fmaf(-mean, scale[i], a.beta[col + i]);
    }
    for (long row0 = (long)stripe * s.tall * UNROLL + threadIdx.y; row0 < s.rows; row0 += step) {
        size_t at = (size_t)row0 * s.cols + col;
        raw<T, V> x[UNROLL], residual[UNROLL];

#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (row0 + u * s.tall < s.rows) {
                x[u] = load<T, V>(a.x, at + u * hop);
                if (a.residual)
                    residual[u] = load<T, V>(a.residual, at + u * hop);
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            float y[V];

#pragma unroll
            for (int i = 0; i < V; i++) {
                float v = fmaf(get<T, V>(x[u], i), scale[i], shift[i]) +
                          (a.residual ? get<T, V>(residual[u], i) : 0.0f);

                y[i] = a.act == OPS_ACT_RELU && v < 0.0f ? 0.0f : v;
            }
            if (row0 + u * s.tall < s.rows) {
                if constexpr (BITS)
                    store_with_bits<T>(a, at + u * hop, y);
                else
                    store<T, V>(a.y, at + u * hop, y);
            }
        }
    }
}

/* Reads the first row of the input, which is subtracted before summing. */
template <class T, int V>
static __device__ void first_row(const struct op_batchnorm_forward &a, int col, float *shift)
{
    raw<T, V> x = load<T, V>(a.x, col);

#pragma unroll
    for (int i = 0; i < V; i++)
        shift[i] = get<T, V>(x, i);
}

/* partial[stripe][2][cols] */
template <class T, int V>
static __global__ void __launch_bounds__(THREADS, BLOCKS_EACH)
    forward_sums(struct op_batchnorm_forward a, struct shape s, float *partial)
{
    int col = (blockIdx.x * blockDim.x + threadIdx.x) * V;
    float first[V] = {}, second[V] = {};

    let_next_start();
    if (col < s.cols) {
        float shift[V];

        first_row<T, V>(a, col, shift);
        sum_forward<T, V>(a, s, col, blockIdx.y, shift, first, second);
    }
    add_over_rows<V>(first, second);
    if (col < s.cols && threadIdx.y == 0) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            partial[(size_t)blockIdx.y * 2 * s.cols + col + i] = first[i];
            partial[(size_t)blockIdx.y * 2 * s.cols + s.cols + col + i] = second[i];
        }
    }
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    forward_total(struct op_batchnorm_forward a, const float *partial, int stripes)
{
    int c = blockIdx.x * TOTAL_WIDE + threadIdx.x;
    float first, second;

    let_next_start();
    wait_for_previous();
    total_of(partial, stripes, a.cols, c, &first, &second);
    if (c < a.cols && threadIdx.y == 0)
        finish_forward(a, c, to_float(((const T *)a.x)[c]), first, second);
}

template <class T, int V, bool BITS>
static __global__ void __launch_bounds__(THREADS, BLOCKS_EACH)
    forward_apply(struct op_batchnorm_forward a, struct shape s)
{
    int col = (blockIdx.x * blockDim.x + threadIdx.x) * V;

    wait_for_previous();
    if (col < s.cols)
        apply_forward<T, V, BITS>(a, s, col, blockIdx.y);
}

template <class T, int V, bool BITS>
static __global__ void __launch_bounds__(THREADS) forward_small(struct op_batchnorm_forward a, struct shape s)
{
    int col = (blockIdx.x * blockDim.x + threadIdx.x) * V;
    float first[V] = {}, second[V] = {}, shift[V] = {};

    if (col < s.cols) {
        first_row<T, V>(a, col, shift);
        sum_forward<T, V>(a, s, col, 0, shift, first, second);
    }
    add_over_rows<V>(first, second);
    if (col < s.cols && threadIdx.y == 0) {
        for (int i = 0; i < V; i++)
            finish_forward(a, col + i, shift[i], first[i], second[i]);
    }
    __syncthreads(); /* also makes what thread row 0 wrote to global memory visible to the block */
    if (col < s.cols)
        apply_forward<T, V, BITS>(a, s, col, 0);
}

template <class T, int V, bool BITS>
static void forward(struct cuda_ops *ops, ops_stream stream, const struct op_batchnorm_forward *a)
{
    struct shape s = shape_of(ops, a->rows, a->cols, V, a->workspace ? a->workspace_bytes : 0);
    dim3 block(s.wide, s.tall), total(TOTAL_WIDE, TOTAL_TALL);
    float *partial = (float *)a->workspace;

    if (!a->training) {
        s.stripes = smaller((s.rows + s.tall * UNROLL - 1) / (s.tall * UNROLL), 65535);
        forward_apply<T, V, BITS><<<grid_of(s, V), block, 0, stream>>>(*a, s);
    } else if (s.stripes == 1) {
        forward_small<T, V, BITS><<<grid_of(s, V), block, 0, stream>>>(*a, s);
    } else {
        forward_sums<T, V><<<grid_of(s, V), block, 0, stream>>>(*a, s, partial);
        launch_close(ops, stream, (a->cols + TOTAL_WIDE - 1) / TOTAL_WIDE, total, forward_total<T>, *a,
                     partial, s.stripes);
        launch_close(ops, stream, grid_of(s, V), block, forward_apply<T, V, BITS>, *a, s);
    }
}

int cuda_batchnorm_forward(struct cuda_ops *ops, ops_stream stream, const struct op_batchnorm_forward *args)
{
    bool packs = cuda_aligned(args->cols * ops_type_bytes(args->type), args->x, args->residual, args->y);

    if (args->rows <= 0 || args->cols <= 0)
        return OPS_OK;
    if ((uintptr_t)args->workspace % sizeof(float) || (args->mask && !(packs && args->type != OPS_F32)))
        return OPS_INVALID;
    if (args->mask && args->type == OPS_BF16)
        forward<__nv_bfloat16, CUDA_PACK_BYTES / 2, true>(ops, stream, args);
    else if (args->mask)
        forward<__half, CUDA_PACK_BYTES / 2, true>(ops, stream, args);
    else
        CUDA_BY_WIDTH(packs, args->type, T, V, (forward<T, V, false>(ops, stream, args)));
    return cudaGetLastError();
}

/* Pooling on the device; the expressions are in pooling.c, the CPU reference. Images are [n][h][w][c]. A
 * thread computes V neighbouring channels of one result: 16 bytes if rows are aligned, else one. The gradient
 * of maxpool gathers from the windows that contain a pixel, in their order, without atomics, so that results
 * repeat to the bit. */
#include "kernels/types.cuh"

template <class T, int V> struct channels {
    float v[V];
};

template <class T, int V> static __device__ __forceinline__ channels<T, V> load(const T *from)
{
    channels<T, V> r;

    if constexpr (V == 1) {
        r.v[0] = to_float(*from);
    } else {
        pack<T> p = load_pack(from);

#pragma unroll
        for (int i = 0; i < V; i++)
            r.v[i] = to_float(p.v[i]);
    }
    return r;
}

template <class T, int V> static __device__ __forceinline__ void store(T *to, const float *values)
{
    if constexpr (V == 1) {
        *to = from_float<T>(values[0]);
    } else {
        pack<T> p;

#pragma unroll
        for (int i = 0; i < V; i++)
            p.v[i] = from_float<T>(values[i]);
        store_pack(to, p);
    }
}

/* V indices in windows, for one access. */
template <int V> struct alignas(V) places {
    uint8_t v[V];
};

static __host__ __device__ __forceinline__ int out_size(int size, int window, int stride, int pad)
{
    return (size + 2 * pad - window) / stride + 1;
}

/* In the kernels of maxpool a thread has V channels of a pixel, a block has neighbouring pixels of a row, and
 * blockIdx.y is the row in all images, so that an index takes one short division. SIZE is the size of the
 * window, or 0 for any; with a known size all loads are issued before the first is used. */
template <class T, int V, int SIZE>
static __global__ void __launch_bounds__(CUDA_BLOCK) max_kernel(struct op_maxpool_forward a, int oh, int ow)
{
    int groups = a.c / V, t = blockIdx.x * blockDim.x + threadIdx.x, size = SIZE ? SIZE : a.size;
    int column = t / groups, c = (t - column * groups) * V, left = column * a.stride - a.pad;

    if (column >= ow)
        return;
    for (int row = blockIdx.y; row < a.n * oh; row += gridDim.y) {
        int image = row / oh, top = (row - image * oh) * a.stride - a.pad;
        const T *x = (const T *)a.x + (size_t)image * a.h * a.w * a.c + c;
        size_t at = ((size_t)row * ow + column) * a.c + c;
        float best[V];
        places<V> where;

#pragma unroll
        for (int i = 0; i < V; i++) {
            best[i] = -INFINITY;
            where.v[i] = UINT8_MAX;
        }
#pragma unroll(SIZE ? SIZE : 1)
        for (int r = 0; r < size; r++) {
            constexpr int LINE = SIZE ? SIZE : 1; /* pixels loaded together */

            for (int s0 = 0; s0 < size; s0 += LINE) {
                channels<T, V> p[LINE];

#pragma unroll
                for (int s = 0; s < LINE; s++) {
                    /* Outside of the image, load the nearest pixel, which is ignored below. */
                    int y = min(max(top + r, 0), a.h - 1), w = min(max(left + s0 + s, 0), a.w - 1);

                    p[s] = load<T, V>(x + ((size_t)y * a.w + w) * a.c);
                }
#pragma unroll
                for (int s = 0; s < LINE; s++) {
                    bool inside =
                        (unsigned)(top + r) < (unsigned)a.h && (unsigned)(left + s0 + s) < (unsigned)a.w;

#pragma unroll
                    for (int i = 0; i < V; i++) {
                        float v = p[s].v[i];

                        if (inside && (where.v[i] == UINT8_MAX || v > best[i] || v != v)) {
                            best[i] = v;
                            where.v[i] = (uint8_t)(r * size + s0 + s);
                        }
                    }
                }
            }
        }
        store<T, V>((T *)a.y + at, best);
        *(places<V> *)(a.where + at) = where;
    }
}

/* A pixel is in at most SIDE x SIDE windows (0: any number). The last of them begins at or before it. */
template <class T, int V, int SIDE>
static __global__ void __launch_bounds__(CUDA_BLOCK)
    max_back_kernel(struct op_maxpool_backward a, int oh, int ow)
{
    int groups = a.c / V, t = blockIdx.x * blockDim.x + threadIdx.x;
    int side = SIDE ? SIDE : (a.size + a.stride - 1) / a.stride;
    constexpr int TOGETHER = SIDE ? SIDE * SIDE : 1; /* windows loaded together */
    int x = t / groups, c = (t - x * groups) * V, last_x = (x + a.pad) / a.stride;

    if (x >= a.w)
        return;
    for (int row = blockIdx.y; row < a.n * a.h; row += gridDim.y) {
        int image = row / a.h, y = row - image * a.h, last_y = (y + a.pad) / a.stride;
        float sum[V] = {};

        for (int i0 = side * side; i0 > 0; i0 -= TOGETHER) {
            channels<T, V> dy[TOGETHER];
            places<V> where[TOGETHER];
            int place[TOGETHER];

#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
                int wy = last_y - (i0 - 1 - i) / side, wx = last_x - (i0 - 1 - i) % side;
                int down = y + a.pad - wy * a.stride, across = x + a.pad - wx * a.stride;
                bool inside = (unsigned)wy < (unsigned)oh && (unsigned)wx < (unsigned)ow && down < a.size &&
                              across < a.size;
                /* Without such a window, load any other; place -1 then matches nothing. */
                size_t at = inside ? (((size_t)image * oh + wy) * ow + wx) * a.c + c : c;

                place[i] = inside ? down * a.size + across : -1;
                where[i] = *(const places<V> *)(a.where + at);
                dy[i] = load<T, V>((const T *)a.dy + at);
            }
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
#pragma unroll
                for (int j = 0; j < V; j++)
                    sum[j] += where[i].v[j] == place[i] ? dy[i].v[j] : 0.0f;
            }
        }
        store<T, V>((T *)a.dx + ((size_t)row * a.w + x) * a.c + c, sum);
    }
}

/* Returns the grid for rows of so many threads. */
static dim3 row_grid(int threads, size_t rows)
{
    const size_t most = 65535;

    return dim3((threads + CUDA_BLOCK - 1) / CUDA_BLOCK, (unsigned)(rows < most ? rows : most));
}

/* A block of AVG_WIDE x AVG_TALL threads has V * AVG_WIDE channels of one image. Each row of threads takes
 * every AVG_TALL-th pixel; their sums are added in order. */
enum { AVG_WIDE = 32, AVG_TALL = 8 };

template <class T, int V> static __global__ void avg_kernel(struct op_avgpool_forward a)
{
    __shared__ float shared[AVG_TALL][AVG_WIDE * V];
    int c = (blockIdx.y * AVG_WIDE + threadIdx.x) * V;
    int pixels = a.h * a.w;
    const T *image = (const T *)a.x + (size_t)blockIdx.x * pixels * a.c + c;
    float sum[V] = {};

    if (c < a.c) {
        for (int p = threadIdx.y; p < pixels; p += AVG_TALL) {
            channels<T, V> x = load<T, V>(image + (size_t)p * a.c);

#pragma unroll
            for (int i = 0; i < V; i++)
                sum[i] += x.v[i];
        }
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        shared[threadIdx.y][threadIdx.x * V + i] = sum[i];
    __syncthreads();
    if (threadIdx.y > 0 || c >= a.c)
        return;
    for (int row = 1; row < AVG_TALL; row++) {
#pragma unroll
        for (int i = 0; i < V; i++)
            sum[i] += shared[row][threadIdx.x * V + i];
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        sum[i] /= (float)pixels;
    store<T, V>((T *)a.y + (size_t)blockIdx.x * a.c + c, sum);
}

template <class T, int V> static __global__ void avg_back_kernel(struct op_avgpool_backward a)
{
    size_t groups = a.c / V, pixels = (size_t)a.h * a.w, count = (size_t)a.n * pixels * groups;
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t t = (size_t)blockIdx.x * blockDim.x + threadIdx.x; t < count; t += step) {
        int c = (int)(t % groups) * V;
        size_t pixel = t / groups;
        channels<T, V> dy = load<T, V>((const T *)a.dy + pixel / pixels * a.c + c);

#pragma unroll
        for (int i = 0; i < V; i++)
            dy.v[i] /= (float)pixels;
        store<T, V>((T *)a.dx + pixel * a.c + c, dy.v);
    }
}

template <class T, int V>
static void max_forward(ops_stream stream, const struct op_maxpool_forward *a, int oh, int ow)
{
    dim3 grid = row_grid(ow * (a->c / V), (size_t)a->n * oh);

    if (a->size == 2)
        max_kernel<T, V, 2><<<grid, CUDA_BLOCK, 0, stream>>>(*a, oh, ow);
    else if (a->size == 3)
        max_kernel<T, V, 3><<<grid, CUDA_BLOCK, 0, stream>>>(*a, oh, ow);
    else
        max_kernel<T, V, 0><<<grid, CUDA_BLOCK, 0, stream>>>(*a, oh, ow);
}

int cuda_maxpool_forward(struct cuda_ops *ops, ops_stream stream, const struct op_maxpool_forward *args)
{
    int oh = out_size(args->h, args->size, args->stride, args->pad);
    int ow = out_size(args->w, args->size, args->stride, args->pad);

    (void)ops;
    if (args->n <= 0 || args->c <= 0)
        return OPS_OK;
    CUDA_BY_WIDTH(cuda_aligned(args->c * ops_type_bytes(args->type), args->x, args->y, args->where),
                  args->type, T, V, (max_forward<T, V>(stream, args, oh, ow)));
    return cudaGetLastError();
}

template <class T, int V>
static void max_backward(ops_stream stream, const struct op_maxpool_backward *a, int oh, int ow)
{
    dim3 grid = row_grid(a->w * (a->c / V), (size_t)a->n * a->h);

    if (a->size <= a->stride)
        max_back_kernel<T, V, 1><<<grid, CUDA_BLOCK, 0, stream>>>(*a, oh, ow);
    else if (a->size <= 2 * a->stride)
        max_back_kernel<T, V, 2><<<grid, CUDA_BLOCK, 0, stream>>>(*a, oh, ow);
    else
        max_back_kernel<T, V, 0><<<grid, CUDA_BLOCK, 0, stream>>>(*a, oh, ow);
}

int cuda_maxpool_backward(struct cuda_ops *ops, ops_stream stream, const struct op_maxpool_backward *args)
{
    int oh = out_size(args->h, args->size, args->stride, args->pad);
    int ow = out_size(args->w, args->size, args->stride, args->pad);

    (void)ops;
    if (args->n <= 0 || args->c <= 0)
        return OPS_OK;
    CUDA_BY_WIDTH(cuda_aligned(args->c * ops_type_bytes(args->type), args->dx, args->dy, args->where),
                  args->type, T, V, (max_backward<T, V>(stream, args, oh, ow)));
    return cudaGetLastError();
}

template <class T, int V> static void avg(ops_stream stream, const struct op_avgpool_forward *args)
{
    /* Images along x: there may be more than the 65535 blocks that y can have. */
    dim3 grid(args->n, (args->c + AVG_WIDE * V - 1) / (AVG_WIDE * V)), block(AVG_WIDE, AVG_TALL);

    avg_kernel<T, V><<<grid, block, 0, stream>>>(*args);
}

int cuda_avgpool_forward(struct cuda_ops *ops, ops_stream stream, const struct op_avgpool_forward *args)
{
    (void)ops;
    if (args->n <= 0 || args->c <= 0)
        return OPS_OK;
    CUDA_BY_WIDTH(cuda_aligned(args->c * ops_type_bytes(args->type), args->x, args->y), args->type, T, V,
                  (avg<T, V>(stream, args)));
    return cudaGetLastError();
}

int cuda_avgpool_backward(struct cuda_ops *ops, ops_stream stream, const struct op_avgpool_backward *args)
{
    size_t count = (size_t)args->n * args->h * args->w * args->c;

    (void)ops;
    if (count == 0)
        return OPS_OK;
    CUDA_BY_WIDTH(cuda_aligned(args->c * ops_type_bytes(args->type), args->dx, args->dy), args->type, T, V,
                  (avg_back_kernel<T, V><<<cuda_grid(count / V), CUDA_BLOCK, 0, stream>>>(*args)));
    return cudaGetLastError();
}

/* The convolutions as one matrix product whose operands are gathered on the way; see conv_direct.h.
 *     forward: y[pixel][k]  = sum over (r, s, c) of x * w
 *     data:    dx[pixel][c] = sum over (r, s, k) of dy * w
 *     filter:  dw[k][r, s, c] = sum over pixels of dy * x
 * Each block computes a TILE x TILE square of the result in slices of DEPTH staged in shared memory; each
 * thread keeps a WORK x WORK square in registers. The sums have one fixed order. */
#include "kernels/conv_direct.h"

#include "kernels/types.cuh"

enum { TILE = 64, DEPTH = 16, WORK = 4, SIDE = TILE / WORK, THREADS = SIDE * SIDE };

/* The product's sizes, and the image's that is gathered from. */
struct direct {
    struct ops_conv s;
    int oh, ow;
    long m, n, depth;
    int accumulate;
};

/* x at the place that output pixel and filter tap (r, s, c) meet, 0 in the padding. */
template <class T> static __device__ float tap_of_x(const struct direct &d, const T *x, long pixel, int tap)
{
    const struct ops_conv &s = d.s;
    int c = tap % s.c, column = tap / s.c % s.s, r = tap / s.c / s.s;
    int h = (int)(pixel / d.ow % d.oh) * s.stride - s.pad + r;
    int w = (int)(pixel % d.ow) * s.stride - s.pad + column;
    long n = pixel / d.ow / d.oh;

    if (h < 0 || h >= s.h || w < 0 || w >= s.w)
        return 0.0f;
    return to_float(x[((n * s.h + h) * s.w + w) * s.c + c]);
}

/* dy at the place that input pixel and tap (r, s, k) meet, 0 where there is none. */
template <class T> static __device__ float tap_of_dy(const struct direct &d, const T *dy, long pixel, int tap)
{
    const struct ops_conv &s = d.s;
    int k = tap % s.k, column = tap / s.k % s.s, r = tap / s.k / s.s;
    int h = (int)(pixel / s.w % s.h) + s.pad - r, w = (int)(pixel % s.w) + s.pad - column;
    long n = pixel / s.w / s.h;

    if (h < 0 || w < 0 || h % s.stride || w % s.stride || h / s.stride >= d.oh || w / s.stride >= d.ow)
        return 0.0f;
    return to_float(dy[((n * d.oh + h / s.stride) * d.ow + w / s.stride) * s.k + k]);
}

/* Element (i, p) of the left operand and (p, j) of the right one. */
template <class T, int DIRECTION>
static __device__ float left(const struct direct &d, const T *x, const T *y, long i, long p)
{
    if (DIRECTION == CONV_FORWARD)
        return tap_of_x(d, x, i, (int)p);
    if (DIRECTION == CONV_DATA)
        return tap_of_dy(d, y, i, (int)p);
    return to_float(y[p * d.s.k + i]);
}

template <class T, int DIRECTION>
static __device__ float right(const struct direct &d, const T *x, const T *w, long p, long j)
{
    if (DIRECTION == CONV_FORWARD)
        return to_float(w[j * d.depth + p]);
    if (DIRECTION == CONV_DATA) {
        int k = (int)(p % d.s.k);
        long tap = p / d.s.k;

        return to_float(w[((long)k * d.s.r * d.s.s + tap) * d.s.c + j]);
    }
    return tap_of_x(d, x, p, (int)j);
}

template <class T, class R, int DIRECTION>
static __global__ void __launch_bounds__(THREADS)
    direct_kernel(struct direct d, const T *x, const T *w, const T *y, R *result)
{
    __shared__ float slice_a[DEPTH][TILE];
    __shared__ float slice_b[DEPTH][TILE];
    long row0 = (long)blockIdx.x * TILE, col0 = (long)blockIdx.y * TILE;
    int row = threadIdx.x / SIDE * WORK, col = threadIdx.x % SIDE * WORK;
    float acc[WORK][WORK] = {};

    for (long p0 = 0; p0 < d.depth; p0 += DEPTH) {
        for (int t = threadIdx.x; t < TILE * DEPTH; t += THREADS) {
            int i = DIRECTION == CONV_FILTER ? t % TILE : t / DEPTH;
            int p = DIRECTION == CONV_FILTER ? t / TILE : t % DEPTH;

            slice_a[p][i] =
                row0 + i < d.m && p0 + p < d.depth ? left<T, DIRECTION>(d, x, y, row0 + i, p0 + p) : 0.0f;
        }
        for (int t = threadIdx.x; t < TILE * DEPTH; t += THREADS) {
            int j = DIRECTION == CONV_FORWARD ? t / DEPTH : t % TILE;
            int p = DIRECTION == CONV_FORWARD ? t % DEPTH : t / TILE;

            slice_b[p][j] =
                col0 + j < d.n && p0 + p < d.depth ? right<T, DIRECTION>(d, x, w, p0 + p, col0 + j) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int p = 0; p < DEPTH; p++) {
            for (int i = 0; i < WORK; i++) {
                for (int j = 0; j < WORK; j++)
                    acc[i][j] += slice_a[p][row + i] * slice_b[p][col + j];
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < WORK && row0 + row + i < d.m; i++) {
        for (int j = 0; j < WORK && col0 + col + j < d.n; j++) {
            R *to = result + (row0 + row + i) * d.n + col0 + col + j;

            *to = from_float<R>(acc[i][j] + (d.accumulate ? to_float(*to) : 0.0f));
        }
    }
}

template <class T>
static void launch(ops_stream stream, enum conv_direction direction, const struct direct &d, const T *x,
                   const T *w, const T *y, void *result)
{
    dim3 grid((unsigned)((d.m + TILE - 1) / TILE), (unsigned)((d.n + TILE - 1) / TILE));

    if (direction == CONV_FORWARD)
        direct_kernel<T, T, CONV_FORWARD><<<grid, THREADS, 0, stream>>>(d, x, w, y, (T *)result);
    else if (direction == CONV_DATA)
        direct_kernel<T, T, CONV_DATA><<<grid, THREADS, 0, stream>>>(d, x, w, y, (T *)result);
    else
        direct_kernel<T, float, CONV_FILTER><<<grid, THREADS, 0, stream>>>(d, x, w, y, (float *)result);
}

int conv_direct(ops_stream stream, enum conv_direction direction, const struct ops_conv *s, const void *x,
                const void *w, const void *y, void *result, int accumulate)
{
    struct direct d = {*s};
    long taps = (long)s->r * s->s;

    d.oh = (s->h + 2 * s->pad - s->r) / s->stride + 1;
    d.ow = (s->w + 2 * s->pad - s->s) / s->stride + 1;
    d.m = direction == CONV_FORWARD ? (long)s->n * d.oh * d.ow
          : direction == CONV_DATA  ? (long)s->n * s->h * s->w
                                    : s->k;
    d.n = direction == CONV_FORWARD ? s->k : direction == CONV_DATA ? s->c : taps * s->c;
    d.depth = direction == CONV_FORWARD ? taps * s->c
              : direction == CONV_DATA  ? taps * s->k
                                        : (long)s->n * d.oh * d.ow;
    d.accumulate = accumulate;
    CUDA_BY_TYPE(s->type, T,
                 launch<T>(stream, direction, d, (const T *)x, (const T *)w, (const T *)y, result));
    return cudaGetLastError();
}

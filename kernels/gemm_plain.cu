/* Matrix product by an own kernel, and bias, activation and aux after one that lacked them. Each block
 * computes a TILE x TILE square of c, walking k in slices of DEPTH that are staged in shared memory as
 * floats; each thread keeps a WORK x WORK square in registers. The operands are reached by two strides, so
 * one kernel serves all four transposes. It sums in one fixed order. gemm.cu decides when it is needed. */
#include "kernels/act.cuh"
#include "kernels/gemm.cuh"

enum { TILE = 64, DEPTH = 16, WORK = 4, SIDE = TILE / WORK, THREADS = SIDE * SIDE };

/* slice[d][i] = element (first + i, k0 + d) of a matrix with the given steps, zero outside of it.
 * Neighbouring threads take neighbouring addresses, whichever index those run along. */
template <class T>
static __device__ void load_slice(float slice[DEPTH][TILE], const T *from, size_t step_i, size_t step_k,
                                  int first, int count, int k0, int k)
{
    for (int t = threadIdx.x; t < TILE * DEPTH; t += THREADS) {
        int i = step_i == 1 ? t % TILE : t / DEPTH;
        int d = step_i == 1 ? t / TILE : t % DEPTH;
        bool inside = first + i < count && k0 + d < k;

        slice[d][i] =
            inside ? to_float(from[(size_t)(first + i) * step_i + (size_t)(k0 + d) * step_k]) : 0.0f;
    }
}

template <class T, class C>
static __device__ __forceinline__ void finish(const struct op_gemm &g, C *c, C *aux, size_t at, int n,
                                              float sum)
{
    float v = g.alpha * sum + (g.beta == 0.0f ? 0.0f : g.beta * to_float(c[at]));

    if (g.bias)
        v += to_float(((const T *)g.bias)[n]);
    if (aux)
        aux[at] = from_float<C>(v);
    c[at] = from_float<C>(act_forward(v, g.act));
}

template <class T, class C> static __global__ void __launch_bounds__(THREADS) plain_kernel(struct op_gemm g)
{
    __shared__ float slice_a[DEPTH][TILE];
    __shared__ float slice_b[DEPTH][TILE];
    const T *a = (const T *)g.a + blockIdx.z * g.stride_a;
    const T *b = (const T *)g.b + blockIdx.z * g.stride_b;
    C *c = (C *)g.c + blockIdx.z * g.stride_c;
    C *aux = g.aux ? (C *)g.aux + blockIdx.z * g.stride_c : NULL;
    int row0 = blockIdx.x * TILE, col0 = blockIdx.y * TILE;
    int row = threadIdx.x / SIDE * WORK, col = threadIdx.x % SIDE * WORK;
    float acc[WORK][WORK] = {};

    for (int k0 = 0; k0 < g.k; k0 += DEPTH) {
        load_slice(slice_a, a, g.trans_a ? 1 : g.k, g.trans_a ? g.m : 1, row0, g.m, k0, g.k);
        load_slice(slice_b, b, g.trans_b ? g.k : 1, g.trans_b ? 1 : g.n, col0, g.n, k0, g.k);
        __syncthreads();
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            for (int i = 0; i < WORK; i++) {
                for (int j = 0; j < WORK; j++)
                    acc[i][j] += slice_a[d][row + i] * slice_b[d][col + j];
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < WORK && row0 + row + i < g.m; i++) {
        for (int j = 0; j < WORK && col0 + col + j < g.n; j++) {
            int n = col0 + col + j;

            finish<T>(g, c, aux, (size_t)(row0 + row + i) * g.n + n, n, acc[i][j]);
        }
    }
}

int gemm_plain(ops_stream stream, const struct op_gemm *args)
{
    /* Rows along x: there may be more than the 65535 blocks that y can have. */
    dim3 grid((args->m + TILE - 1) / TILE, (args->n + TILE - 1) / TILE, args->batch > 1 ? args->batch : 1);

    CUDA_BY_TYPE(args->type, T, {
        if (args->c_type == OPS_F32)
            plain_kernel<T, float><<<grid, THREADS, 0, stream>>>(*args);
        else
            plain_kernel<T, T><<<grid, THREADS, 0, stream>>>(*args);
    });
    return cudaGetLastError();
}

template <class T, class C> static __global__ void epilogue_kernel(struct op_gemm g)
{
    size_t count = (size_t)g.m * g.n;
    size_t step = (size_t)gridDim.x * blockDim.x;
    C *c = (C *)g.c + blockIdx.y * g.stride_c;
    C *aux = g.aux ? (C *)g.aux + blockIdx.y * g.stride_c : NULL;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        float v = to_float(c[i]);

        if (g.bias)
            v += to_float(((const T *)g.bias)[i % g.n]);
        if (aux)
            aux[i] = from_float<C>(v);
        c[i] = from_float<C>(act_forward(v, g.act));
    }
}

int gemm_epilogue(ops_stream stream, const struct op_gemm *args)
{
    dim3 grid(cuda_grid((size_t)args->m * args->n), args->batch > 1 ? args->batch : 1);

    CUDA_BY_TYPE(args->type, T, {
        if (args->c_type == OPS_F32)
            epilogue_kernel<T, float><<<grid, CUDA_BLOCK, 0, stream>>>(*args);
        else
            epilogue_kernel<T, T><<<grid, CUDA_BLOCK, 0, stream>>>(*args);
    });
    return cudaGetLastError();
}

/* Matrix product: c[m][n] = alpha * op(a)[m][k] op(b)[k][n] + beta * c, all row-major; a transposed operand
 * is stored as [k][m] or [n][k]. Each block computes a TILE x TILE square of c, walking k in slices of DEPTH
 * that are staged in shared memory; each thread keeps a WORK x WORK square in registers. The operands are
 * reached by two strides, so one kernel serves all four transposes. It sums in one fixed order and needs no
 * workspace, which a library's product does not promise. The CPU reference is gemm.c. */
#include "ops_cuda.h"

enum { TILE = 64, DEPTH = 16, WORK = 4, SIDE = TILE / WORK, THREADS = SIDE * SIDE };

/* slice[d][i] = element (first + i, k0 + d) of a matrix with the given steps, zero outside of it.
 * Neighbouring threads take neighbouring addresses, whichever index those run along. */
static __device__ void load_slice(float slice[DEPTH][TILE], const float *from, size_t step_i, size_t step_k,
                                  int first, int count, int k0, int k)
{
    for (int t = threadIdx.x; t < TILE * DEPTH; t += THREADS) {
        int i = step_i == 1 ? t % TILE : t / DEPTH;
        int d = step_i == 1 ? t / TILE : t % DEPTH;
        bool inside = first + i < count && k0 + d < k;

        slice[d][i] = inside ? from[(size_t)(first + i) * step_i + (size_t)(k0 + d) * step_k] : 0.0f;
    }
}

static __global__ void __launch_bounds__(THREADS) gemm_kernel(struct op_gemm g)
{
    __shared__ float slice_a[DEPTH][TILE];
    __shared__ float slice_b[DEPTH][TILE];
    int row0 = blockIdx.y * TILE;
    int col0 = blockIdx.x * TILE;
    int row = threadIdx.x / SIDE * WORK;
    int col = threadIdx.x % SIDE * WORK;
    float acc[WORK][WORK] = {};

    for (int k0 = 0; k0 < g.k; k0 += DEPTH) {
        load_slice(slice_a, g.a, g.trans_a ? 1 : g.k, g.trans_a ? g.m : 1, row0, g.m, k0, g.k);
        load_slice(slice_b, g.b, g.trans_b ? g.k : 1, g.trans_b ? 1 : g.n, col0, g.n, k0, g.k);
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
        float *c = g.c + (size_t)(row0 + row + i) * g.n;

        for (int j = 0; j < WORK; j++) {
            int n = col0 + col + j;

            if (n < g.n)
                c[n] = g.alpha * acc[i][j] + (g.beta == 0.0f ? 0.0f : g.beta * c[n]);
        }
    }
}

int cuda_gemm(ops_stream stream, const struct op_gemm *args)
{
    dim3 grid((args->n + TILE - 1) / TILE, (args->m + TILE - 1) / TILE);

    if (args->m == 0 || args->n == 0)
        return OPS_OK;
    gemm_kernel<<<grid, THREADS, 0, stream>>>(*args);
    return cudaGetLastError();
}

/* Matrix product, CPU reference: c[m][n] = alpha * op(a)[m][k] op(b)[k][n] + beta * c, all row-major; a
 * transposed operand is stored as [k][m] or [n][k]. Blocks of op(b) and op(a) are packed into small panels on
 * the stack, which makes one inner kernel serve all four transposes; it runs over columns, so that it
 * vectorizes without reordering a sum: the result depends on the shapes only, not on addresses. The kernel
 * beside it is gemm.cu. */
#include "ops_cpu.h"

/* A panel of b is 32 KiB, which stays in the first-level cache, and small enough for any thread's stack. */
enum { PANEL_K = 128, PANEL_N = 64, TILE_M = 4, TILE_N = 16, LANES = 4, TILE_VECTORS = TILE_N / LANES };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* panel[p][j] = op(b)[k0 + p][n0 + j], zero beyond cols, so that the inner kernel never sees an edge. */
static void pack_b(const struct op_gemm *g, int k0, int depth, int n0, int cols, float *panel)
{
    size_t step_k = g->trans_b ? 1 : (size_t)g->n;
    size_t step_n = g->trans_b ? (size_t)g->k : 1;
    const float *b = g->b + k0 * step_k + n0 * step_n;

    for (int p = 0; p < depth; p++) {
        for (int j = 0; j < cols; j++)
            panel[p * PANEL_N + j] = b[p * step_k + j * step_n];
        for (int j = cols; j < PANEL_N; j++)
            panel[p * PANEL_N + j] = 0.0f;
    }
}

/* panel[p][i] = op(a)[m0 + i][k0 + p], zero beyond rows. */
static void pack_a(const struct op_gemm *g, int m0, int rows, int k0, int depth, float *panel)
{
    size_t step_m = g->trans_a ? 1 : (size_t)g->k;
    size_t step_k = g->trans_a ? (size_t)g->m : 1;
    const float *a = g->a + m0 * step_m + k0 * step_k;

    for (int p = 0; p < depth; p++) {
        for (int i = 0; i < TILE_M; i++)
            panel[p * TILE_M + i] = i < rows ? a[i * step_m + p * step_k] : 0.0f;
    }
}

/* out[TILE_M][TILE_N] = the product of a packed strip of a and TILE_N columns of a packed panel of b. */
static void tile(const float *a, const float *b, int depth, float *out)
{
    lanes acc[TILE_M][TILE_VECTORS] = {0};

    for (int p = 0; p < depth; p++) {
        const lanes *row = (const lanes *)(b + (size_t)p * PANEL_N);

        for (int i = 0; i < TILE_M; i++) {
            for (int v = 0; v < TILE_VECTORS; v++)
                acc[i][v] += a[p * TILE_M + i] * row[v];
        }
    }
    for (int i = 0; i < TILE_M; i++) {
        for (int v = 0; v < TILE_VECTORS; v++)
            ((lanes *)out)[i * TILE_VECTORS + v] = acc[i][v];
    }
}

/* Adds alpha * out to the part of c that exists. */
static void add_tile(const struct op_gemm *g, const float *out, int m0, int rows, int n0, int cols)
{
    for (int i = 0; i < rows; i++) {
        float *c = g->c + (size_t)(m0 + i) * g->n + n0;

        for (int j = 0; j < cols; j++)
            c[j] += g->alpha * out[i * TILE_N + j];
    }
}

static void scale_c(const struct op_gemm *g)
{
    size_t count = (size_t)g->m * g->n;

    for (size_t i = 0; i < count; i++)
        g->c[i] = g->beta == 0.0f ? 0.0f : g->beta * g->c[i];
}

void cpu_gemm(const struct op_gemm *g)
{
    float panel_b[PANEL_K * PANEL_N];
    float panel_a[PANEL_K * TILE_M];
    float out[TILE_M * TILE_N];

    scale_c(g);
    for (int n0 = 0; n0 < g->n; n0 += PANEL_N) {
        int cols = smaller(PANEL_N, g->n - n0);

        for (int k0 = 0; k0 < g->k; k0 += PANEL_K) {
            int depth = smaller(PANEL_K, g->k - k0);

            pack_b(g, k0, depth, n0, cols, panel_b);
            for (int m0 = 0; m0 < g->m; m0 += TILE_M) {
                int rows = smaller(TILE_M, g->m - m0);

                pack_a(g, m0, rows, k0, depth, panel_a);
                for (int j = 0; j < cols; j += TILE_N) {
                    tile(panel_a, panel_b + j, depth, out);
                    add_tile(g, out, m0, rows, n0 + j, smaller(TILE_N, cols - j));
                }
            }
        }
    }
}

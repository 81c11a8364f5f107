/* Matrix product, CPU reference: c[m][n] = act(alpha * op(a) op(b) + beta * c + bias), all row-major; a
 * transposed operand is stored as [k][m] or [n][k]. Blocks of op(a) and op(b) are packed as floats into
 * panels on the stack, so that one inner kernel works for all transposes and types. It runs over columns, so
 * that it vectorizes without reordering a sum: the result depends on the shapes only, not on addresses or
 * threads. Each block of c is summed in floats and written once. The kernel beside it is gemm.cu. */
#include "kernels/act.h"
#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

/* A panel takes 96 KiB, which fits the second-level cache and any stack. A tile fills the vector registers:
 * 32 on aarch64, 16 on x86-64. */
enum { LANES = 4, PANEL_K = 256, PANEL_N = 96, PANEL_M = 96 };
#ifdef __aarch64__
enum { TILE_M = 8, TILE_N = 12 };
#else
enum { TILE_M = 4, TILE_N = 8 };
#endif
enum { TILE_VECTORS = TILE_N / LANES, PANEL_TILES = (PANEL_N + TILE_N - 1) / TILE_N };
_Static_assert(PANEL_M % TILE_M == 0, "a panel of a must consist of whole tiles");

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

struct block {
    const struct op_gemm *g;
    const void *a, *b;
    void *c, *aux;
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Packs one strip: out[d][i] = element (i, d) of a matrix with the given steps. The inner loop runs over
 * neighbouring addresses. */
static void pack_floats(const float *x, size_t step_i, size_t step_k, size_t depth, size_t width, float *out)
{
    if (step_i == 1) {
        for (size_t d = 0; d < depth; d++) {
            for (size_t i = 0; i < width; i++)
                out[d * width + i] = x[i + d * step_k];
        }
    } else {
        for (size_t i = 0; i < width; i++) {
            for (size_t d = 0; d < depth; d++)
                out[d * width + i] = x[i * step_i + d * step_k];
        }
    }
}

/* Packs a whole panel in strips of `width` values of i: out is [strips][depth][width], with zeros beyond
 * count, so that the inner kernel handles no edges. */
static void pack(const void *from, enum ops_type type, size_t step_i, size_t step_k, size_t count,
                 size_t depth, size_t width, float *out)
{
    for (size_t i0 = 0; i0 < count; i0 += width, out += depth * width) {
        size_t here = smaller(width, count - i0);

        if (type == OPS_F32 && here == width) {
            pack_floats((const float *)from + i0 * step_i, step_i, step_k, depth, width, out);
            continue;
        }
        for (size_t d = 0; d < depth; d++) {
            for (size_t i = 0; i < width; i++)
                out[d * width + i] = i < here ? types_load(from, type, (i0 + i) * step_i + d * step_k) : 0.0f;
        }
    }
}

/* Adds the product of a packed strip of a and one of b to a tile of sum[TILE_M][PANEL_N]. */
static void tile(const float *restrict a, const float *restrict b, size_t depth, float *restrict sum)
{
    lanes acc[TILE_M][TILE_VECTORS];

    for (int i = 0; i < TILE_M; i++) {
        for (int v = 0; v < TILE_VECTORS; v++)
            acc[i][v] = *(lanes *)(sum + (size_t)i * PANEL_TILES * TILE_N + (size_t)v * LANES);
    }
    for (size_t p = 0; p < depth; p++) {
        const lanes *row = (const lanes *)(b + p * TILE_N);

        for (int i = 0; i < TILE_M; i++) {
            for (int v = 0; v < TILE_VECTORS; v++)
                acc[i][v] += a[p * TILE_M + (size_t)i] * row[v];
        }
    }
    for (int i = 0; i < TILE_M; i++) {
        for (int v = 0; v < TILE_VECTORS; v++)
            *(lanes *)(sum + (size_t)i * PANEL_TILES * TILE_N + (size_t)v * LANES) = acc[i][v];
    }
}

/* Finishes one row of a block: applies alpha, beta, bias and activation, and converts to c's type. */
static void finish_row(const struct block *block, size_t row, size_t n0, size_t cols, float *sum)
{
    const struct op_gemm *g = block->g;
    size_t at = row * (size_t)g->n + n0;
    float before[PANEL_N], bias[PANEL_N];

    for (size_t j = 0; j < cols; j++)
        sum[j] *= g->alpha;
    if (g->beta != 0.0f) {
        const float *c = types_read(block->c, g->c_type, at, cols, before);

        for (size_t j = 0; j < cols; j++)
            sum[j] += g->beta * c[j];
    }
    if (g->bias) {
        const float *values = types_read(g->bias, g->type, n0, cols, bias);

        for (size_t j = 0; j < cols; j++)
            sum[j] += values[j];
    }
    if (block->aux)
        types_write(block->aux, g->c_type, at, cols, sum);
    act_apply(sum, cols, g->act);
    types_write(block->c, g->c_type, at, cols, sum);
}

static void gemm_block(const struct block *block, size_t m0, size_t rows, size_t n0, size_t cols)
{
    const struct op_gemm *g = block->g;
    size_t a_step_m = g->trans_a ? 1 : (size_t)g->k, a_step_k = g->trans_a ? (size_t)g->m : 1;
    size_t b_step_n = g->trans_b ? (size_t)g->k : 1, b_step_k = g->trans_b ? 1 : (size_t)g->n;
    size_t bytes = ops_type_bytes(g->type);
    float panel_a[PANEL_M * PANEL_K];
    float panel_b[PANEL_TILES * TILE_N * PANEL_K];
    float sum[PANEL_M][PANEL_TILES * TILE_N];

    memset(sum, 0, sizeof(sum));
    for (size_t k0 = 0; k0 < (size_t)g->k; k0 += PANEL_K) {
        size_t depth = smaller(PANEL_K, (size_t)g->k - k0);

        pack((const char *)block->a + (m0 * a_step_m + k0 * a_step_k) * bytes, g->type, a_step_m, a_step_k,
             rows, depth, TILE_M, panel_a);
        pack((const char *)block->b + (n0 * b_step_n + k0 * b_step_k) * bytes, g->type, b_step_n, b_step_k,
             cols, depth, TILE_N, panel_b);
        for (size_t j = 0; j < cols; j += TILE_N) {
            for (size_t i = 0; i < rows; i += TILE_M)
                tile(panel_a + i * depth, panel_b + j * depth, depth, &sum[i][j]);
        }
    }
    for (size_t i = 0; i < rows; i++)
        finish_row(block, m0 + i, n0, cols, sum[i]);
}

static void gemm_blocks(const void *arg, size_t begin, size_t end)
{
    const struct op_gemm *g = arg;
    size_t down = ((size_t)g->m + PANEL_M - 1) / PANEL_M, across = ((size_t)g->n + PANEL_N - 1) / PANEL_N;
    size_t in_bytes = ops_type_bytes(g->type), out_bytes = ops_type_bytes(g->c_type);

    for (size_t index = begin; index < end; index++) {
        size_t product = index / (down * across), place = index % (down * across);
        size_t m0 = place / across * PANEL_M, n0 = place % across * PANEL_N;
        size_t c_at = product * g->stride_c * out_bytes;
        struct block block = {.g = g,
                              .a = (const char *)g->a + product * g->stride_a * in_bytes,
                              .b = (const char *)g->b + product * g->stride_b * in_bytes,
                              .c = (char *)g->c + c_at,
                              .aux = g->aux ? (char *)g->aux + c_at : NULL};

        gemm_block(&block, m0, smaller(PANEL_M, (size_t)g->m - m0), n0, smaller(PANEL_N, (size_t)g->n - n0));
    }
}

void cpu_gemm(const struct op_gemm *g)
{
    size_t down = ((size_t)g->m + PANEL_M - 1) / PANEL_M, across = ((size_t)g->n + PANEL_N - 1) / PANEL_N;
    size_t products = g->batch > 1 ? (size_t)g->batch : 1;

    cpu_threads_for(products * down * across, 1, gemm_blocks, g);
}

/* Convolution, CPU reference: the gradient of the filters, dw[k][r][s][c] = sum over n, oh, ow of x * dy,
 * always float. The rows of results are divided into parts, whose number depends on the shape only. Each part
 * of each block of filters is a piece of work with its own sums, which are added in order, so that the result
 * does not depend on the number of threads. The inner loop runs over filters, because images with one channel
 * are common and layers with one filter are not. */
#include "kernels/conv_pass.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"

/* Filters in a block, the most parts, and the most bytes that the sums of all parts may take. */
enum { BLOCK_FILTERS = 64, MOST_PARTS = 8, PARTS_BYTES = 32 << 20 };

struct job {
    const struct op_conv_backward_filter *args;
    struct conv_window window;
    int rows, parts, blocks;
    size_t columns;  /* s * c, rounded up to TILE_ROWS */
    size_t part_sum; /* floats: [blocks][r][columns][BLOCK_FILTERS] */
    float *sums;     /* [parts][part_sum] */
};

/* sum[i][j] += over the row of results: pixels[x * step + i] * dy[x][j], TILE_ROWS x TILE_COLS of them. */
static void tile(const float *pixels, size_t step, const float *dy, int count, float *sum)
{
    lanes acc[TILE_ROWS][TILE_VECTORS] = {0};

    for (int x = 0; x < count; x++, pixels += step, dy += BLOCK_FILTERS) {
        for (int i = 0; i < TILE_ROWS; i++) {
            for (int v = 0; v < TILE_VECTORS; v++)
                acc[i][v] += pixels[i] * ((const lanes *)dy)[v];
        }
    }
    for (int i = 0; i < TILE_ROWS; i++, sum += BLOCK_FILTERS) {
        for (int v = 0; v < TILE_VECTORS; v++)
            ((lanes *)sum)[v] += acc[i][v];
    }
}

/* Reads dy[x][0 ... filters - 1] of a block, as float, for one row of results. */
static void read_dy(const struct job *job, size_t row, int block, int filters, float *dy)
{
    const struct ops_conv *s = &job->args->shape;

    for (int x = 0; x < job->window.count; x++) {
        size_t at = (row * job->window.count + x) * s->k + (size_t)block * BLOCK_FILTERS;

        conv_read(job->args->dy, s->type, at, filters, dy + (size_t)x * BLOCK_FILTERS);
    }
}

static void run_piece(const struct job *job, int part, int block)
{
    const struct ops_conv *s = &job->args->shape;
    size_t floats = conv_row_floats(&job->window);
    size_t all = (size_t)s->n * job->rows;
    int filters = s->k - block * BLOCK_FILTERS < BLOCK_FILTERS ? s->k - block * BLOCK_FILTERS : BLOCK_FILTERS;
    size_t block_floats = s->r * job->columns * BLOCK_FILTERS;
    float *sum = job->sums + part * job->part_sum + block * block_floats;
    float *pixels = conv_scratch(s->r * floats * sizeof(float));
    float *dy = conv_scratch((size_t)job->window.count * BLOCK_FILTERS * sizeof(float));

    memset(sum, 0, block_floats * sizeof(float));
    memset(dy, 0, (size_t)job->window.count * BLOCK_FILTERS * sizeof(float));
    for (size_t row = all * part / job->parts; row < all * (part + 1) / job->parts; row++) {
        conv_fill_rows(&job->window, (int)(row / job->rows), (int)(row % job->rows), pixels);
        read_dy(job, row, block, filters, dy);
        for (int r = 0; r < s->r; r++) {
            for (size_t j = 0; j < job->columns; j += TILE_ROWS) {
                for (int k = 0; k < filters; k += TILE_COLS)
                    tile(pixels + r * floats + j, (size_t)s->stride * s->c, dy + k, job->window.count,
                         sum + (r * job->columns + j) * BLOCK_FILTERS + k);
            }
        }
    }
    free(dy);
    free(pixels);
}

static void run_pieces(const void *arg, size_t begin, size_t end)
{
    const struct job *job = arg;

    for (size_t i = begin; i < end; i++)
        run_piece(job, (int)(i / job->blocks), (int)(i % job->blocks));
}

/* Adds the sums of all parts, in order, to dw for filters begin ... end - 1. */
static void add_parts(const void *arg, size_t begin, size_t end)
{
    const struct job *job = arg;
    const struct ops_conv *s = &job->args->shape;
    size_t length = (size_t)s->s * s->c;

    for (size_t k = begin; k < end; k++) {
        float *dw = job->args->dw + k * s->r * length;
        const float *sum = job->sums + k / BLOCK_FILTERS * s->r * job->columns * BLOCK_FILTERS;

        for (size_t i = 0; i < s->r * length; i++) {
            size_t at = (i / length * job->columns + i % length) * BLOCK_FILTERS + k % BLOCK_FILTERS;
            float total = job->args->accumulate ? dw[i] : 0.0f;

            for (int part = 0; part < job->parts; part++)
                total += sum[part * job->part_sum + at];
            dw[i] = total;
        }
    }
}

void cpu_conv_backward_filter(const struct op_conv_backward_filter *args)
{
    const struct ops_conv *s = &args->shape;
    struct job job = {
        .args = args,
        .window = conv_window_of(s, args->x),
        .rows = conv_out(s->h, s->r, s->stride, s->pad),
        .blocks = (s->k + BLOCK_FILTERS - 1) / BLOCK_FILTERS,
        .columns = conv_round_up(s->s * s->c, TILE_ROWS),
    };
    size_t most;

    job.part_sum = job.blocks * s->r * job.columns * BLOCK_FILTERS;
    most = PARTS_BYTES / sizeof(float) / job.part_sum;
    job.parts = most < 1 ? 1 : most > MOST_PARTS ? MOST_PARTS : (int)most;
    job.sums = conv_scratch(job.parts * job.part_sum * sizeof(float));
    cpu_threads_for((size_t)job.parts * job.blocks, 1, run_pieces, &job);
    cpu_threads_for(s->k, 16, add_parts, &job);
    free(job.sums);
}

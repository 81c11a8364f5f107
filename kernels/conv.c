/* Convolution, CPU reference: forward and the gradient of the input. Both are the same pass over an image: a
 * row of results is a product of the rows of pixels around it (laid out with their padding, so that what one
 * result needs of a row is contiguous) and the filters, packed so that the inner kernel runs along channels.
 * The gradient of a strided convolution is stride * stride such passes, one for each remainder of the
 * position, each with the filter taps that contribute to it, so that nothing is multiplied by the zeros that
 * the stride would insert.
 * - forward: y[n][oh][ow][k] = sum over r, s, c of x * w
 * - backward_data: dx[n][h][w][c] = sum over r, s, k of dy * w
 *
 * Threads share the rows of results. The gradient of the filters is conv_filter.c, the CUDA side conv.cu. */
#include "kernels/conv_pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"

/* Multiplications in a piece of work for one thread: some hundred microseconds. */
static const double piece_products = 2e6;

struct pass {
    struct conv_window window;
    float *weights; /* [panels][tall * wide * window.c][TILE_COLS] */
    void *out;      /* [n][out_h][out_w][channels] */
    int rows;       /* of results; window.count of them in each */
    int channels;
    int out_h, out_w;
    int out_step, out_top, out_left; /* where result (y, x) goes */
    int accumulate;
};

void *conv_scratch(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);

    if (!p) {
        fprintf(stderr, "convolution: no memory for %zu bytes of scratch\n", bytes);
        abort();
    }
    return p;
}

struct conv_window conv_window_of(const struct ops_conv *s, const void *x)
{
    return (struct conv_window){.type = s->type,
                                .source = x,
                                .h = s->h,
                                .w = s->w,
                                .c = s->c,
                                .tall = s->r,
                                .wide = s->s,
                                .step = s->stride,
                                .top = s->pad,
                                .left = s->pad,
                                .count = conv_out(s->w, s->s, s->stride, s->pad)};
}

size_t conv_row_floats(const struct conv_window *window)
{
    size_t columns = (size_t)conv_round_up(window->count, TILE_ROWS) * window->step + window->wide;

    return columns * window->c + TILE_COLS;
}

void conv_fill_rows(const struct conv_window *window, int n, int y, float *rows)
{
    size_t floats = conv_row_floats(window);
    int columns = (int)((floats - TILE_COLS) / window->c);
    int from = window->left > 0 ? window->left : 0; /* the first column inside the image */
    int skip = from - window->left;                 /* its column in the image */
    int count = window->w - skip < columns - from ? window->w - skip : columns - from;

    for (int t = 0; t < window->tall; t++, rows += floats) {
        int row = y * window->step + t - window->top;
        size_t at = ((size_t)n * window->h + row) * window->w + skip;

        if (row < 0 || row >= window->h || count <= 0) {
            memset(rows, 0, floats * sizeof(float));
            continue;
        }
        memset(rows, 0, (size_t)from * window->c * sizeof(float));
        conv_read(window->source, window->type, at * window->c, (size_t)count * window->c,
                  rows + (size_t)from * window->c);
        memset(rows + ((size_t)from + count) * window->c, 0,
               (floats - ((size_t)from + count) * window->c) * sizeof(float));
    }
}

/* out[i][j] = TILE_ROWS neighbouring results for TILE_COLS channels; from is the first pixel of the first
 * result in the first row. */
static void tile(const struct pass *p, const float *from, const float *weights, float *out)
{
    size_t floats = conv_row_floats(&p->window);
    size_t length = (size_t)p->window.wide * p->window.c;
    size_t step = (size_t)p->window.step * p->window.c;
    lanes acc[TILE_ROWS][TILE_VECTORS] = {0};

    for (int t = 0; t < p->window.tall; t++, from += floats) {
        for (size_t j = 0; j < length; j++, weights += TILE_COLS) {
            for (int i = 0; i < TILE_ROWS; i++) {
                for (int v = 0; v < TILE_VECTORS; v++)
                    acc[i][v] += from[i * step + j] * ((const lanes *)weights)[v];
            }
        }
    }
    memcpy(out, acc, sizeof(acc));
}

/* Stores count results of a row, from column x on. */
static void store_tile(const struct pass *p, int n, int y, int x, int count, int channel, float *sums)
{
    int channels = p->channels - channel < TILE_COLS ? p->channels - channel : TILE_COLS;
    size_t row = (size_t)n * p->out_h + (size_t)y * p->out_step + p->out_top;

    for (int i = 0; i < count; i++, sums += TILE_COLS) {
        size_t at = row * p->out_w + (size_t)(x + i) * p->out_step + p->out_left;

        if (p->accumulate) {
            float before[TILE_COLS];

            conv_read(p->out, p->window.type, at * p->channels + channel, channels, before);
            for (int j = 0; j < channels; j++)
                sums[j] += before[j];
        }
        types_write(p->out, p->window.type, at * p->channels + channel, channels, sums);
    }
}

static void run_rows(const void *arg, size_t begin, size_t end)
{
    const struct pass *p = arg;
    size_t depth = (size_t)p->window.tall * p->window.wide * p->window.c;
    float *rows = conv_scratch(p->window.tall * conv_row_floats(&p->window) * sizeof(float));
    float sums[TILE_ROWS * TILE_COLS];

    for (size_t r = begin; r < end; r++) {
        int n = (int)(r / p->rows);
        int y = (int)(r % p->rows);

        conv_fill_rows(&p->window, n, y, rows);
        for (int channel = 0; channel < p->channels; channel += TILE_COLS) {
            for (int x = 0; x < p->window.count; x += TILE_ROWS) {
                int left = p->window.count - x;

                tile(p, rows + (size_t)x * p->window.step * p->window.c, p->weights + channel * depth, sums);
                store_tile(p, n, y, x, left < TILE_ROWS ? left : TILE_ROWS, channel, sums);
            }
        }
    }
    free(rows);
}

static void run_pass(const struct pass *p, int n)
{
    double row = (double)p->window.count * p->window.tall * p->window.wide * p->window.c * p->channels;
    size_t grain = row < piece_products ? (size_t)(piece_products / (row + 1)) + 1 : 1;

    if (n > 0 && p->rows > 0 && p->window.count > 0)
        cpu_threads_for((size_t)n * p->rows, grain, run_rows, p);
}

static float *weights_scratch(const struct pass *p)
{
    size_t columns = (size_t)conv_round_up(p->channels, TILE_COLS);

    return conv_scratch(columns * p->window.tall * p->window.wide * p->window.c * sizeof(float));
}

/* weights[k / TILE_COLS][r][s][c][k % TILE_COLS] = w[k][r][s][c]. */
static void pack_forward(const struct ops_conv *s, const void *w, float *weights)
{
    size_t depth = (size_t)s->r * s->s * s->c;
    float *filter = conv_scratch(depth * sizeof(float));

    for (int k = 0; k < conv_round_up(s->k, TILE_COLS); k++) {
        float *to = weights + (size_t)(k / TILE_COLS) * depth * TILE_COLS + k % TILE_COLS;

        if (k < s->k)
            conv_read(w, s->type, k * depth, depth, filter);
        for (size_t j = 0; j < depth; j++)
            to[j * TILE_COLS] = k < s->k ? filter[j] : 0.0f;
    }
    free(filter);
}

void cpu_conv_forward(const struct op_conv_forward *args)
{
    const struct ops_conv *s = &args->shape;
    struct pass p = {
        .window = conv_window_of(s, args->x),
        .out = args->y,
        .rows = conv_out(s->h, s->r, s->stride, s->pad),
        .channels = s->k,
        .out_step = 1,
    };

    p.out_h = p.rows;
    p.out_w = p.window.count;
    p.weights = weights_scratch(&p);
    pack_forward(s, args->w, p.weights);
    run_pass(&p, s->n);
    free(p.weights);
}

/* One dimension (rows or columns) of a gradient pass: the positions with (position + pad) % stride == phase.
 * Only the filter taps phase, phase + stride, ... contribute to them; the last tap belongs to the first row
 * of dy. */
struct phase {
    int taps, top, first, count;
};

static struct phase phase_of(int size, int filter, int stride, int pad, int phase)
{
    struct phase result;
    int first_quotient = phase < pad ? (pad - phase + stride - 1) / stride : 0;

    result.taps = phase < filter ? (filter - phase + stride - 1) / stride : 0;
    result.first = stride * first_quotient + phase - pad;
    result.top = result.taps - 1 - first_quotient;
    result.count = result.first < size ? (size - result.first + stride - 1) / stride : 0;
    return result;
}

/* weights[c / TILE_COLS][t][u][k][c % TILE_COLS] = w[k][r][s][c], where taps r, s belong to row t, column u
 * of the window. */
static void pack_backward(const struct ops_conv *s, const void *w, int phase_r, int phase_s,
                          const struct pass *p)
{
    size_t panel = (size_t)p->window.tall * p->window.wide * s->k * TILE_COLS;
    float *pixel = conv_scratch((size_t)conv_round_up(s->c, TILE_COLS) * sizeof(float));
    float *to = p->weights;

    memset(pixel, 0, (size_t)conv_round_up(s->c, TILE_COLS) * sizeof(float));
    for (int t = 0; t < p->window.tall; t++) {
        for (int u = 0; u < p->window.wide; u++) {
            int r = phase_r + s->stride * (p->window.tall - 1 - t);
            int column = phase_s + s->stride * (p->window.wide - 1 - u);

            for (int k = 0; k < s->k; k++, to += TILE_COLS) {
                conv_read(w, s->type, (((size_t)k * s->r + r) * s->s + column) * s->c, s->c, pixel);
                for (int c = 0; c < s->c; c += TILE_COLS)
                    memcpy(to + (size_t)(c / TILE_COLS) * panel, pixel + c, TILE_COLS * sizeof(float));
            }
        }
    }
    free(pixel);
}

void cpu_conv_backward_data(const struct op_conv_backward_data *args)
{
    const struct ops_conv *s = &args->shape;

    for (int phase_r = 0; phase_r < s->stride; phase_r++) {
        for (int phase_s = 0; phase_s < s->stride; phase_s++) {
            struct phase down = phase_of(s->h, s->r, s->stride, s->pad, phase_r);
            struct phase across = phase_of(s->w, s->s, s->stride, s->pad, phase_s);
            struct pass p = {
                .window = {.type = s->type,
                           .source = args->dy,
                           .c = s->k,
                           .tall = down.taps,
                           .wide = across.taps,
                           .step = 1,
                           .top = down.top,
                           .left = across.top,
                           .count = across.count},
                .out = args->dx,
                .rows = down.count,
                .channels = s->c,
                .out_h = s->h,
                .out_w = s->w,
                .out_step = s->stride,
                .out_top = down.first,
                .out_left = across.first,
                .accumulate = args->accumulate,
            };

            p.window.h = conv_out(s->h, s->r, s->stride, s->pad);
            p.window.w = conv_out(s->w, s->s, s->stride, s->pad);
            p.weights = weights_scratch(&p);
            pack_backward(s, args->w, phase_r, phase_s, &p);
            run_pass(&p, s->n);
            free(p.weights);
        }
    }
}

/* Batch normalization, CPU reference, over the rows (n * h * w) of each column (channel):
 *     forward:  y = act(gamma * (x - mean) * rstd + beta + residual)
 *     backward: g = dy * act'; dbeta = sum g; dgamma = sum g * xhat;
 *               dx = gamma * rstd * (g - dbeta / rows - xhat * dgamma / rows), xhat = (x - mean) * rstd
 * The rows are divided into parts, whose number depends on the shape only. Each part has its own sums, in
 * double, which are added in order, so that the result does not depend on the number of threads. The CUDA
 * side is batchnorm.cu. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

/* The most parts, the fewest rows in a part, and the elements in a piece of an elementwise pass. */
enum { MOST_PARTS = 16, LEAST_ROWS = 64, PIECE = 1 << 15 };

/* A pass over the rows that computes one or two sums for every column. */
struct sums {
    enum ops_type type;
    int rows, cols, parts;
    const void *x, *dy, *y; /* dy and y of the backward pass, or NULL */
    const float *mean;      /* subtracted from x, or NULL */
    const float *rstd;      /* of the backward pass, or NULL */
    double *first, *second; /* [parts][cols] */
};

static void *scratch(size_t bytes)
{
    void *p = calloc(bytes ? bytes : 1, 1);

    if (!p) {
        fprintf(stderr, "batchnorm: no memory for %zu bytes of scratch\n", bytes);
        abort();
    }
    return p;
}

static int parts_of(int rows)
{
    int parts = rows / LEAST_ROWS;

    return parts < 1 ? 1 : parts > MOST_PARTS ? MOST_PARTS : parts;
}

/* One chunk of one row: forward first += x - mean, second += (x - mean)^2; backward first += g,
 * second += g * xhat. */
static void add_chunk(const struct sums *s, size_t at, int col, int count, double *first, double *second)
{
    float from_x[TYPES_CHUNK], from_dy[TYPES_CHUNK], from_y[TYPES_CHUNK];
    const float *x = types_read(s->x, s->type, at, count, from_x);
    const float *dy = s->dy ? types_read(s->dy, s->type, at, count, from_dy) : NULL;
    const float *y = s->y ? types_read(s->y, s->type, at, count, from_y) : NULL;

    for (int j = 0; j < count; j++) {
        double centred = (double)x[j] - (s->mean ? (double)s->mean[col + j] : 0.0);
        double g = dy ? (double)dy[j] : 0.0;

        if (y && !(y[j] > 0.0f))
            g = 0.0;
        first[j] += dy ? g : centred;
        second[j] += dy ? g * centred * (double)s->rstd[col + j] : centred * centred;
    }
}

static void run_parts(const void *arg, size_t begin, size_t end)
{
    const struct sums *s = arg;

    for (size_t part = begin; part < end; part++) {
        double *first = s->first + part * s->cols, *second = s->second + part * s->cols;
        size_t row = (size_t)s->rows * part / s->parts;
        size_t last = (size_t)s->rows * (part + 1) / s->parts;

        for (; row < last; row++) {
            for (int col = 0; col < s->cols; col += TYPES_CHUNK)
                add_chunk(s, row * s->cols + col, col, (int)types_smaller(TYPES_CHUNK, s->cols - col),
                          first + col, second + col);
        }
    }
}

/* Adds the sums of all parts to those of the first. */
static void add_up(struct sums *s)
{
    s->parts = parts_of(s->rows);
    s->first = scratch(2 * sizeof(double) * s->parts * s->cols);
    s->second = s->first + (size_t)s->parts * s->cols;
    cpu_threads_for(s->parts, 1, run_parts, s);
    for (int part = 1; part < s->parts; part++) {
        for (int c = 0; c < s->cols; c++) {
            s->first[c] += s->first[(size_t)part * s->cols + c];
            s->second[c] += s->second[(size_t)part * s->cols + c];
        }
    }
}

/* Computes the mean first, then the sum of squared distances from it, to avoid cancellation. */
static void statistics(const struct op_batchnorm_forward *a)
{
    struct sums s = {.type = a->type, .rows = a->rows, .cols = a->cols, .x = a->x};

    add_up(&s);
    for (int c = 0; c < a->cols; c++)
        a->mean[c] = (float)(s.first[c] / a->rows);
    free(s.first);
    s.mean = a->mean;
    add_up(&s);
    for (int c = 0; c < a->cols; c++) {
        double rest = s.first[c] / a->rows; /* rounding error of the mean */
        double variance = s.second[c] / a->rows - rest * rest;
        double unbiased = a->rows > 1 ? variance * a->rows / (a->rows - 1) : variance;

        a->rstd[c] = (float)(1.0 / sqrt(variance + (double)a->epsilon));
        /* A batch that is not finite would make the running statistics NaN for good, even if its update is
         * skipped. */
        if (!isfinite(a->mean[c]) || !isfinite(unbiased))
            continue;
        a->running_mean[c] = (1.0f - a->momentum) * a->running_mean[c] + a->momentum * a->mean[c];
        a->running_variance[c] =
            (1.0f - a->momentum) * a->running_variance[c] + a->momentum * (float)unbiased;
    }
    free(s.first);
}

struct apply {
    const struct op_batchnorm_forward *args;
    const float *scale, *shift; /* y = x * scale + shift */
};

static void apply_chunk(const struct apply *p, size_t at, int col, int count)
{
    const struct op_batchnorm_forward *a = p->args;
    float from_x[TYPES_CHUNK], from_residual[TYPES_CHUNK], to_y[TYPES_CHUNK];
    const float *x = types_read(a->x, a->type, at, count, from_x);
    const float *residual = a->residual ? types_read(a->residual, a->type, at, count, from_residual) : NULL;
    float *y = types_target(a->y, a->type, at, to_y);

    for (int j = 0; j < count; j++) {
        float v = x[j] * p->scale[col + j] + p->shift[col + j] + (residual ? residual[j] : 0.0f);

        y[j] = a->act == OPS_ACT_RELU && v < 0.0f ? 0.0f : v;
    }
    types_write(a->y, a->type, at, count, y);
    for (int j = 0; a->mask && j < count; j++) {
        uint8_t bit = (uint8_t)(1 << (at + j) % 8), *byte = &a->mask[(at + j) / 8];

        *byte = (uint8_t)(types_load(a->y, a->type, at + j) > 0.0f ? *byte | bit : *byte & ~bit);
    }
}

static void apply_rows(const void *arg, size_t begin, size_t end)
{
    const struct apply *p = arg;
    int cols = p->args->cols;

    for (size_t row = begin; row < end; row++) {
        for (int col = 0; col < cols; col += TYPES_CHUNK)
            apply_chunk(p, row * cols + col, col, (int)types_smaller(TYPES_CHUNK, cols - col));
    }
}

void cpu_batchnorm_forward(const struct op_batchnorm_forward *args)
{
    float *scale, *shift;

    if (args->rows <= 0 || args->cols <= 0)
        return;
    if (args->training)
        statistics(args);
    scale = scratch(2 * sizeof(float) * args->cols);
    shift = scale + args->cols;
    for (int c = 0; c < args->cols; c++) {
        float mean = args->training ? args->mean[c] : args->running_mean[c];
        float rstd = args->training ? args->rstd[c] : 1.0f / sqrtf(args->running_variance[c] + args->epsilon);

        scale[c] = args->gamma[c] * rstd;
        shift[c] = args->beta[c] - mean * scale[c];
    }
    cpu_threads_for(args->rows, PIECE / (size_t)args->cols + 1, apply_rows,
                    &(struct apply){args, scale, shift});
    free(scale);
}

/* dx = g * scale + (x - mean) * slope + shift for each column. */
struct apply_back {
    const struct op_batchnorm_backward *args;
    const float *scale, *slope, *shift;
};

static void back_chunk(const struct apply_back *p, size_t at, int col, int count)
{
    const struct op_batchnorm_backward *a = p->args;
    float from_x[TYPES_CHUNK], from_dy[TYPES_CHUNK], from_y[TYPES_CHUNK], g[TYPES_CHUNK], to_dx[TYPES_CHUNK];
    const float *x = types_read(a->x, a->type, at, count, from_x);
    const float *dy = types_read(a->dy, a->type, at, count, from_dy);
    const float *y = a->act == OPS_ACT_RELU ? types_read(a->y, a->type, at, count, from_y) : NULL;
    float *dx = types_target(a->dx, a->type, at, to_dx);

    for (int j = 0; j < count; j++)
        g[j] = y && !(y[j] > 0.0f) ? 0.0f : dy[j];
    for (int j = 0; j < count; j++)
        dx[j] = g[j] * p->scale[col + j] + (x[j] - a->mean[col + j]) * p->slope[col + j] + p->shift[col + j];
    if (a->dresidual)
        types_write(a->dresidual, a->type, at, count, g);
    types_write(a->dx, a->type, at, count, dx);
}

static void back_rows(const void *arg, size_t begin, size_t end)
{
    const struct apply_back *p = arg;
    int cols = p->args->cols;

    for (size_t row = begin; row < end; row++) {
        for (int col = 0; col < cols; col += TYPES_CHUNK)
            back_chunk(p, row * cols + col, col, (int)types_smaller(TYPES_CHUNK, cols - col));
    }
}

void cpu_batchnorm_backward(const struct op_batchnorm_backward *args)
{
    struct sums s = {.type = args->type,
                     .rows = args->rows,
                     .cols = args->cols,
                     .x = args->x,
                     .dy = args->dy,
                     .y = args->act == OPS_ACT_RELU ? args->y : NULL,
                     .mean = args->mean,
                     .rstd = args->rstd};
    float *scale, *slope, *shift;

    if (args->rows <= 0 || args->cols <= 0)
        return;
    add_up(&s);
    scale = scratch(3 * sizeof(float) * args->cols);
    slope = scale + args->cols;
    shift = slope + args->cols;
    for (int c = 0; c < args->cols; c++) {
        scale[c] = args->gamma[c] * args->rstd[c];
        slope[c] = (float)(-(double)scale[c] * (double)args->rstd[c] * s.second[c] / args->rows);
        shift[c] = (float)(-(double)scale[c] * s.first[c] / args->rows);
        args->dgamma[c] = (args->accumulate ? args->dgamma[c] : 0.0f) + (float)s.second[c];
        args->dbeta[c] = (args->accumulate ? args->dbeta[c] : 0.0f) + (float)s.first[c];
    }
    cpu_threads_for(args->rows, PIECE / (size_t)args->cols + 1, back_rows,
                    &(struct apply_back){args, scale, slope, shift});
    free(scale);
    free(s.first);
}

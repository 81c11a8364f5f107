/* Layer norm, CPU reference, with the residual sum before it. Shapes: x, residual, sum, y, dy, dsum, dx are
 * [rows][cols], gamma, beta, dgamma, dbeta [cols], mean and rstd [rows].
 *     forward:  sum = x + residual; xhat = (sum - mean) * rstd; y = xhat * gamma + beta
 *     backward: g = dy * gamma; dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + dsum
 * The statistics are computed from the sum as it is stored, since backward reads that. dgamma and dbeta are
 * computed by strips of columns, in the order of the rows, and before dx, which may overwrite dy. The kernels
 * beside it are layernorm.cu. */
#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

#include <math.h>

enum { ROWS_OF_A_PIECE = 8, STRIP = 256 };

static void add_row(const struct op_layernorm_forward *args, size_t first)
{
    float scratch_x[TYPES_CHUNK], scratch_r[TYPES_CHUNK], scratch_sum[TYPES_CHUNK];

    for (size_t c = 0; c < (size_t)args->cols; c += TYPES_CHUNK) {
        size_t count = types_smaller(TYPES_CHUNK, (size_t)args->cols - c);
        const float *x = types_read(args->x, args->type, first + c, count, scratch_x);
        const float *r =
            args->residual ? types_read(args->residual, args->type, first + c, count, scratch_r) : NULL;
        float *sum = types_target(args->sum, args->type, first + c, scratch_sum);

        for (size_t i = 0; i < count; i++)
            sum[i] = r ? x[i] + r[i] : x[i];
        types_write(args->sum, args->type, first + c, count, sum);
    }
}

static void row_statistics(const void *x, enum ops_type type, size_t first, int cols, float epsilon,
                           float *mean, float *rstd)
{
    float scratch[TYPES_CHUNK];
    double sum = 0.0, squares = 0.0;

    for (size_t c = 0; c < (size_t)cols; c += TYPES_CHUNK) {
        size_t count = types_smaller(TYPES_CHUNK, (size_t)cols - c);
        const float *v = types_read(x, type, first + c, count, scratch);

        for (size_t i = 0; i < count; i++) {
            sum += (double)v[i];
            squares += (double)v[i] * (double)v[i];
        }
    }
    sum /= cols;
    *mean = (float)sum;
    *rstd = (float)(1.0 / sqrt(fmax(squares / cols - sum * sum, 0.0) + (double)epsilon));
}

static void normalize_row(const struct op_layernorm_forward *args, const void *x, size_t row)
{
    float scratch_x[TYPES_CHUNK], scratch_y[TYPES_CHUNK];
    size_t first = row * (size_t)args->cols;
    float mean = args->mean[row], rstd = args->rstd[row];

    for (size_t c = 0; c < (size_t)args->cols; c += TYPES_CHUNK) {
        size_t count = types_smaller(TYPES_CHUNK, (size_t)args->cols - c);
        const float *v = types_read(x, args->type, first + c, count, scratch_x);
        float *y = types_target(args->y, args->type, first + c, scratch_y);

        for (size_t i = 0; i < count; i++)
            y[i] = (v[i] - mean) * rstd * args->gamma[c + i] + args->beta[c + i];
        types_write(args->y, args->type, first + c, count, y);
    }
}

static void forward_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_layernorm_forward *args = arg;
    const void *x = args->sum ? args->sum : args->x;

    for (size_t row = begin; row < end; row++) {
        size_t first = row * (size_t)args->cols;

        if (args->sum)
            add_row(args, first);
        row_statistics(x, args->type, first, args->cols, args->epsilon, &args->mean[row], &args->rstd[row]);
        normalize_row(args, x, row);
    }
}

void cpu_layernorm_forward(const struct op_layernorm_forward *args)
{
    if (args->cols > 0)
        cpu_threads_for((size_t)args->rows, ROWS_OF_A_PIECE, forward_rows, args);
}

static void parameter_columns(const void *arg, size_t begin, size_t end)
{
    const struct op_layernorm_backward *args = arg;
    size_t count = end - begin;
    float scratch_x[STRIP], scratch_dy[STRIP];
    float gamma[STRIP] = {0}, beta[STRIP] = {0};

    for (size_t row = 0; row < (size_t)args->rows; row++) {
        size_t at = row * (size_t)args->cols + begin;
        const float *x = types_read(args->x, args->type, at, count, scratch_x);
        const float *dy = types_read(args->dy, args->type, at, count, scratch_dy);
        float mean = args->mean[row], rstd = args->rstd[row];

        for (size_t i = 0; i < count; i++) {
            gamma[i] += dy[i] * ((x[i] - mean) * rstd);
            beta[i] += dy[i];
        }
    }
    for (size_t i = 0; i < count; i++) {
        args->dgamma[begin + i] = gamma[i] + (args->accumulate ? args->dgamma[begin + i] : 0.0f);
        args->dbeta[begin + i] = beta[i] + (args->accumulate ? args->dbeta[begin + i] : 0.0f);
    }
}

/* Computes the means of g and of g * xhat over a row. */
static void row_means(const struct op_layernorm_backward *args, size_t row, float *mean_g, float *mean_gx)
{
    float scratch_x[TYPES_CHUNK], scratch_dy[TYPES_CHUNK];
    double sum_g = 0.0, sum_gx = 0.0;

    for (size_t c = 0; c < (size_t)args->cols; c += TYPES_CHUNK) {
        size_t count = types_smaller(TYPES_CHUNK, (size_t)args->cols - c);
        size_t at = row * (size_t)args->cols + c;
        const float *x = types_read(args->x, args->type, at, count, scratch_x);
        const float *dy = types_read(args->dy, args->type, at, count, scratch_dy);

        for (size_t i = 0; i < count; i++) {
            float g = dy[i] * args->gamma[c + i];

            sum_g += (double)g;
            sum_gx += (double)(g * ((x[i] - args->mean[row]) * args->rstd[row]));
        }
    }
    *mean_g = (float)(sum_g / args->cols);
    *mean_gx = (float)(sum_gx / args->cols);
}

static void input_row(const struct op_layernorm_backward *args, size_t row, float mean_g, float mean_gx)
{
    float scratch_x[TYPES_CHUNK], scratch_dy[TYPES_CHUNK], scratch_dsum[TYPES_CHUNK], scratch_dx[TYPES_CHUNK];
    float mean = args->mean[row], rstd = args->rstd[row];

    for (size_t c = 0; c < (size_t)args->cols; c += TYPES_CHUNK) {
        size_t count = types_smaller(TYPES_CHUNK, (size_t)args->cols - c);
        size_t at = row * (size_t)args->cols + c;
        const float *x = types_read(args->x, args->type, at, count, scratch_x);
        const float *dy = types_read(args->dy, args->type, at, count, scratch_dy);
        const float *dsum = args->dsum ? types_read(args->dsum, args->type, at, count, scratch_dsum) : NULL;
        float *dx = types_target(args->dx, args->type, at, scratch_dx);

        for (size_t i = 0; i < count; i++) {
            float xhat = (x[i] - mean) * rstd;

            dx[i] = rstd * (dy[i] * args->gamma[c + i] - mean_g - xhat * mean_gx) + (dsum ? dsum[i] : 0.0f);
        }
        types_write(args->dx, args->type, at, count, dx);
    }
}

static void input_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_layernorm_backward *args = arg;

    for (size_t row = begin; row < end; row++) {
        float mean_g, mean_gx;

        row_means(args, row, &mean_g, &mean_gx);
        input_row(args, row, mean_g, mean_gx);
    }
}

void cpu_layernorm_backward(const struct op_layernorm_backward *args)
{
    cpu_threads_for((size_t)args->cols, STRIP, parameter_columns, args);
    if (args->cols > 0)
        cpu_threads_for((size_t)args->rows, ROWS_OF_A_PIECE, input_rows, args);
}

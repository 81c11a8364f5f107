/* Bias and activation, CPU reference. Shapes: x, y, dx, dy, saved are [rows][cols], bias and dbias are
 * [cols].
 *     forward:  y = act(x + bias)
 *     backward: dx = dy * act'; dbias = the sum of dx over the rows
 * For relu the derivative is computed from y, so that the argument need not be kept; for gelu from x + bias.
 * Threads share rows in forward and strips of columns in backward, so that one thread sums a column in the
 * order of the rows. The kernels beside it are bias_act.cu. */
#include "kernels/act.h"
#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

enum { STRIP = 256, PIECE_ELEMENTS = 1 << 15 };

static size_t rows_of_a_piece(int cols)
{
    return cols < PIECE_ELEMENTS ? PIECE_ELEMENTS / (size_t)cols : 1;
}

static void forward_part(const struct op_bias_act_forward *args, size_t row, size_t col, size_t count)
{
    float scratch_x[TYPES_CHUNK], scratch_bias[TYPES_CHUNK], scratch_y[TYPES_CHUNK];
    size_t at = row * (size_t)args->cols + col;
    const float *x = types_read(args->x, args->type, at, count, scratch_x);
    float *y = types_target(args->y, args->type, at, scratch_y);

    if (args->bias) {
        const float *bias = types_read(args->bias, args->type, col, count, scratch_bias);

        for (size_t i = 0; i < count; i++)
            y[i] = x[i] + bias[i];
    } else if (y != x) {
        memcpy(y, x, count * sizeof(float));
    }
    act_apply(y, count, args->act);
    types_write(args->y, args->type, at, count, y);
}

static void forward_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_bias_act_forward *args = arg;

    for (size_t row = begin; row < end; row++) {
        for (size_t col = 0; col < (size_t)args->cols; col += TYPES_CHUNK)
            forward_part(args, row, col, types_smaller(TYPES_CHUNK, (size_t)args->cols - col));
    }
}

void cpu_bias_act_forward(const struct op_bias_act_forward *args)
{
    if (args->cols > 0)
        cpu_threads_for((size_t)args->rows, rows_of_a_piece(args->cols), forward_rows, args);
}

/* Computes dx of a part of a row and adds it to sum. */
static void backward_part(const struct op_bias_act_backward *args, size_t at, size_t count, float *sum)
{
    float scratch_dy[STRIP], scratch_saved[STRIP], scratch_dx[STRIP];
    const float *dy = types_read(args->dy, args->type, at, count, scratch_dy);
    const float *saved =
        args->act == OPS_ACT_NONE ? dy : types_read(args->saved, args->type, at, count, scratch_saved);
    float *dx = types_target(args->dx, args->type, at, scratch_dx);

    if (args->act == OPS_ACT_RELU) {
        for (size_t i = 0; i < count; i++)
            dx[i] = saved[i] > 0.0f ? dy[i] : 0.0f;
    } else if (args->act == OPS_ACT_GELU) {
        for (size_t i = 0; i < count; i++)
            dx[i] = dy[i] * act_gelu_slope(saved[i]);
    } else if (dx != dy) {
        memcpy(dx, dy, count * sizeof(float));
    }
    for (size_t i = 0; i < count; i++)
        sum[i] += dx[i];
    types_write(args->dx, args->type, at, count, dx);
}

static void backward_columns(const void *arg, size_t begin, size_t end)
{
    const struct op_bias_act_backward *args = arg;
    size_t count = end - begin;
    float sum[STRIP] = {0};

    for (size_t row = 0; row < (size_t)args->rows; row++)
        backward_part(args, row * (size_t)args->cols + begin, count, sum);
    for (size_t i = 0; args->dbias && i < count; i++)
        args->dbias[begin + i] = sum[i] + (args->accumulate ? args->dbias[begin + i] : 0.0f);
}

void cpu_bias_act_backward(const struct op_bias_act_backward *args)
{
    cpu_threads_for((size_t)args->cols, STRIP, backward_columns, args);
}

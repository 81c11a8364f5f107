/* Softmax and cross-entropy, CPU reference. Shapes: logits, dlogits are [rows][cols], labels, losses, lse are
 * [rows].
 *     forward:  lse = max + log(sum of exp(logits - max)); losses = lse - logits[label]
 *     backward: dlogits = scale * *scale_by * (exp(logits - lse) - onehot(label))
 * The row's maximum is subtracted so that no logit overflows. A negative label: loss and gradient are 0. The
 * kernels beside it are softmax_xent.cu. */
#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

#include <math.h>

enum { ROWS_OF_A_PIECE = 8 };

static float row_max(const struct op_softmax_xent_forward *args, size_t row)
{
    float scratch[TYPES_CHUNK];
    float max = -INFINITY;

    for (size_t c = 0; c < (size_t)args->cols; c += TYPES_CHUNK) {
        size_t count = types_smaller(TYPES_CHUNK, (size_t)args->cols - c);
        const float *x = types_read(args->logits, args->type, row * (size_t)args->cols + c, count, scratch);

        for (size_t i = 0; i < count; i++)
            max = x[i] > max ? x[i] : max;
    }
    return max;
}

static double row_sum(const struct op_softmax_xent_forward *args, size_t row, float max)
{
    float scratch[TYPES_CHUNK];
    double sum = 0.0;

    for (size_t c = 0; c < (size_t)args->cols; c += TYPES_CHUNK) {
        size_t count = types_smaller(TYPES_CHUNK, (size_t)args->cols - c);
        const float *x = types_read(args->logits, args->type, row * (size_t)args->cols + c, count, scratch);

        for (size_t i = 0; i < count; i++)
            sum += (double)expf(x[i] - max);
    }
    return sum;
}

static void forward_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_softmax_xent_forward *args = arg;

    for (size_t row = begin; row < end; row++) {
        int32_t label = args->labels[row];
        float max = row_max(args, row);
        float lse = max + (float)log(row_sum(args, row, max));

        args->lse[row] = lse;
        args->losses[row] =
            label < 0 ? 0.0f
                      : lse - types_load(args->logits, args->type, row * (size_t)args->cols + (size_t)label);
    }
}

void cpu_softmax_xent_forward(const struct op_softmax_xent_forward *args)
{
    cpu_threads_for((size_t)args->rows, ROWS_OF_A_PIECE, forward_rows, args);
}

static void backward_part(const struct op_softmax_xent_backward *args, size_t row, size_t col, float scale)
{
    float scratch_x[TYPES_CHUNK], scratch_d[TYPES_CHUNK];
    size_t count = types_smaller(TYPES_CHUNK, (size_t)args->cols - col);
    size_t at = row * (size_t)args->cols + col;
    size_t label = (size_t)args->labels[row];
    const float *x = types_read(args->logits, args->type, at, count, scratch_x);
    float *d = types_target(args->dlogits, args->type, at, scratch_d);

    if (args->labels[row] < 0) {
        for (size_t i = 0; i < count; i++)
            d[i] = 0.0f;
    } else {
        for (size_t i = 0; i < count; i++)
            d[i] = scale * (expf(x[i] - args->lse[row]) - (col + i == label ? 1.0f : 0.0f));
    }
    types_write(args->dlogits, args->type, at, count, d);
}

static void backward_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_softmax_xent_backward *args = arg;
    float scale = args->scale * (args->scale_by ? *args->scale_by : 1.0f);

    for (size_t row = begin; row < end; row++) {
        for (size_t col = 0; col < (size_t)args->cols; col += TYPES_CHUNK)
            backward_part(args, row, col, scale);
    }
}

void cpu_softmax_xent_backward(const struct op_softmax_xent_backward *args)
{
    cpu_threads_for((size_t)args->rows, ROWS_OF_A_PIECE, backward_rows, args);
}

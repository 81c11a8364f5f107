/* Mean squared error, CPU reference. x and target are [rows][cols].
 *     forward:  losses[row] = the mean of (x - target)^2 over cols
 *     backward: dx = scale * *scale_by * 2 / cols * (x - target)
 * Threads share rows; a row is added up in order, chunk by chunk. The CUDA side is mse.cu. */
#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

/* Elements in a piece of work for one thread. */
enum { PIECE = 1 << 15 };

static void loss_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_mse_forward *a = arg;

    for (size_t row = begin; row < end; row++) {
        double total = 0.0;

        for (int c = 0; c < a->cols; c += TYPES_CHUNK) {
            int count = (int)types_smaller(TYPES_CHUNK, a->cols - c);
            size_t at = row * a->cols + c;
            float from_x[TYPES_CHUNK], from_target[TYPES_CHUNK];
            const float *x = types_read(a->x, a->type, at, count, from_x);
            const float *target = types_read(a->target, a->type, at, count, from_target);

            for (int j = 0; j < count; j++)
                total += ((double)x[j] - (double)target[j]) * ((double)x[j] - (double)target[j]);
        }
        a->losses[row] = (float)(total / a->cols);
    }
}

void cpu_mse_forward(const struct op_mse_forward *args)
{
    if (args->cols > 0)
        cpu_threads_for(args->rows, PIECE / (size_t)args->cols + 1, loss_rows, args);
}

static void gradient_pieces(const void *arg, size_t begin, size_t end)
{
    const struct op_mse_backward *a = arg;
    float factor = a->scale * (a->scale_by ? *a->scale_by : 1.0f) * 2.0f / (float)a->cols;

    for (size_t at = begin; at < end; at += TYPES_CHUNK) {
        size_t count = types_smaller(TYPES_CHUNK, end - at);
        float from_x[TYPES_CHUNK], from_target[TYPES_CHUNK], to_dx[TYPES_CHUNK];
        const float *x = types_read(a->x, a->type, at, count, from_x);
        const float *target = types_read(a->target, a->type, at, count, from_target);
        float *dx = types_target(a->dx, a->type, at, to_dx);

        for (size_t j = 0; j < count; j++)
            dx[j] = factor * (x[j] - target[j]);
        types_write(a->dx, a->type, at, count, dx);
    }
}

void cpu_mse_backward(const struct op_mse_backward *args)
{
    cpu_threads_for((size_t)args->rows * args->cols, PIECE, gradient_pieces, args);
}

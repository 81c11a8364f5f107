/* upsample and channels_copy, CPU reference. Images are [n][h][w][c].
 *     upsample:      y[n][2h][2w][c]: each pixel four times; the gradient is the sum of the four
 *     channels_copy: out[row][out_from + i] = or += x[row][x_from + i] for i < cols
 * Threads share rows. The CUDA side is upsample.cu. */
#include <string.h>

#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

/* Elements in a piece of work for one thread. */
enum { PIECE = 1 << 15 };

/* Row `row` of y is row row / 2 of x, over all images, since the height of y is even. */
static void up_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_upsample_forward *a = arg;
    size_t bytes = ops_type_bytes(a->type) * a->c;

    for (size_t row = begin; row < end; row++) {
        const char *x = (const char *)a->x + row / 2 * a->w * bytes;
        char *y = (char *)a->y + row * 2 * a->w * bytes;

        for (int i = 0; i < 2 * a->w; i++)
            memcpy(y + i * bytes, x + i / 2 * bytes, bytes);
    }
}

void cpu_upsample_forward(const struct op_upsample_forward *args)
{
    cpu_threads_for((size_t)args->n * args->h * 2, PIECE / ((size_t)args->w * 2 * args->c + 1) + 1, up_rows,
                    args);
}

static void up_back_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_upsample_backward *a = arg;
    size_t line = (size_t)a->w * 2 * a->c;

    for (size_t row = begin; row < end; row++) {
        for (int x = 0; x < a->w; x++) {
            for (int c = 0; c < a->c; c += TYPES_CHUNK) {
                int count = (int)types_smaller(TYPES_CHUNK, a->c - c);
                size_t at = row * 2 * line + (size_t)x * 2 * a->c + c;
                float sum[TYPES_CHUNK], scratch[TYPES_CHUNK];

                memset(sum, 0, count * sizeof(float));
                for (int i = 0; i < 4; i++) {
                    size_t from = at + i / 2 * line + (size_t)(i % 2) * a->c;
                    const float *dy = types_read(a->dy, a->type, from, count, scratch);

                    for (int j = 0; j < count; j++)
                        sum[j] += dy[j];
                }
                types_write(a->dx, a->type, (row * a->w + x) * a->c + c, count, sum);
            }
        }
    }
}

void cpu_upsample_backward(const struct op_upsample_backward *args)
{
    cpu_threads_for((size_t)args->n * args->h, PIECE / ((size_t)args->w * args->c + 1) + 1, up_back_rows,
                    args);
}

static void copy_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_channels_copy *a = arg;

    for (size_t row = begin; row < end; row++) {
        for (int c = 0; c < a->cols; c += TYPES_CHUNK) {
            int count = (int)types_smaller(TYPES_CHUNK, a->cols - c);
            size_t from = row * a->x_cols + a->x_from + c, to = row * a->out_cols + a->out_from + c;
            float from_x[TYPES_CHUNK], from_out[TYPES_CHUNK], sum[TYPES_CHUNK];
            const float *x = types_read(a->x, a->type, from, count, from_x);

            if (a->accumulate) {
                const float *out = types_read(a->out, a->type, to, count, from_out);

                for (int j = 0; j < count; j++)
                    sum[j] = x[j] + out[j];
                x = sum;
            }
            types_write(a->out, a->type, to, count, x);
        }
    }
}

void cpu_channels_copy(const struct op_channels_copy *args)
{
    if (args->cols > 0)
        cpu_threads_for(args->rows, PIECE / (size_t)args->cols + 1, copy_rows, args);
}

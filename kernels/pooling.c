/* Pooling, CPU reference. Images are [n][h][w][c].
 *     maxpool: y = the largest value of a window, where = its index in the window
 *     avgpool: y[n][c] = the mean over h and w
 * The gradient of maxpool gathers: each pixel adds up dy of the windows that chose it, in their order.
 * Threads share rows of results. The CUDA side is pooling.cu. */
#include <math.h>
#include <string.h>

#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

/* Elements in a piece of work for one thread. */
enum { PIECE = 1 << 14 };

static int out_size(int size, int window, int stride, int pad)
{
    return (size + 2 * pad - window) / stride + 1;
}

/* Computes one chunk of channels of one result. The first of several equal values is chosen, and NaN is
 * chosen over any number. Indices are kept as floats until the end, so that the loop has one element width
 * and vectorizes. */
static void max_chunk(const struct op_maxpool_forward *a, size_t image, int top, int left, int channel,
                      size_t at, int count)
{
    float best[TYPES_CHUNK], place[TYPES_CHUNK], scratch[TYPES_CHUNK];

    for (int j = 0; j < count; j++) {
        best[j] = -INFINITY;
        place[j] = UINT8_MAX;
    }
    for (int i = 0; i < a->size * a->size; i++) {
        int y = top + i / a->size, x = left + i % a->size;
        const float *pixel;

        if (y < 0 || y >= a->h || x < 0 || x >= a->w)
            continue;
        pixel = types_read(a->x, a->type, ((image * a->h + y) * a->w + x) * a->c + channel, count, scratch);
        for (int j = 0; j < count; j++) {
            int wins = (pixel[j] > best[j]) | (pixel[j] != pixel[j]) | (place[j] == UINT8_MAX);

            best[j] = wins ? pixel[j] : best[j];
            place[j] = wins ? (float)i : place[j];
        }
    }
    for (int j = 0; j < count; j++)
        a->where[at + j] = (uint8_t)place[j];
    types_write(a->y, a->type, at, count, best);
}

static void max_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_maxpool_forward *a = arg;
    int oh = out_size(a->h, a->size, a->stride, a->pad), ow = out_size(a->w, a->size, a->stride, a->pad);

    for (size_t row = begin; row < end; row++) {
        for (int x = 0; x < ow; x++) {
            for (int c = 0; c < a->c; c += TYPES_CHUNK)
                max_chunk(a, row / oh, (int)(row % oh) * a->stride - a->pad, x * a->stride - a->pad, c,
                          (row * ow + x) * a->c + c, (int)types_smaller(TYPES_CHUNK, a->c - c));
        }
    }
}

void cpu_maxpool_forward(const struct op_maxpool_forward *args)
{
    size_t oh = out_size(args->h, args->size, args->stride, args->pad);
    size_t ow = out_size(args->w, args->size, args->stride, args->pad);

    cpu_threads_for(args->n * oh, PIECE / (ow * args->c + 1) + 1, max_rows, args);
}

/* Computes one chunk of channels of one pixel: adds up the windows that contain it, in order. */
static void max_back_chunk(const struct op_maxpool_backward *a, size_t image, int y, int x, int channel,
                           int count)
{
    int oh = out_size(a->h, a->size, a->stride, a->pad), ow = out_size(a->w, a->size, a->stride, a->pad);
    float sum[TYPES_CHUNK], scratch[TYPES_CHUNK];
    int first_y = y + a->pad - a->size + 1, first_x = x + a->pad - a->size + 1;

    memset(sum, 0, count * sizeof(float));
    first_y = first_y > 0 ? (first_y + a->stride - 1) / a->stride : 0;
    first_x = first_x > 0 ? (first_x + a->stride - 1) / a->stride : 0;
    for (int wy = first_y; wy < oh && wy * a->stride - a->pad <= y; wy++) {
        for (int wx = first_x; wx < ow && wx * a->stride - a->pad <= x; wx++) {
            int place = (y - wy * a->stride + a->pad) * a->size + x - wx * a->stride + a->pad;
            size_t at = ((image * oh + wy) * ow + wx) * a->c + channel;
            const float *dy = types_read(a->dy, a->type, at, count, scratch);

            for (int j = 0; j < count; j++)
                sum[j] += a->where[at + j] == place ? dy[j] : 0.0f;
        }
    }
    types_write(a->dx, a->type, ((image * a->h + y) * a->w + x) * a->c + channel, count, sum);
}

static void max_back_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_maxpool_backward *a = arg;

    for (size_t row = begin; row < end; row++) {
        for (int x = 0; x < a->w; x++) {
            for (int c = 0; c < a->c; c += TYPES_CHUNK)
                max_back_chunk(a, row / a->h, (int)(row % a->h), x, c,
                               (int)types_smaller(TYPES_CHUNK, a->c - c));
        }
    }
}

void cpu_maxpool_backward(const struct op_maxpool_backward *args)
{
    cpu_threads_for((size_t)args->n * args->h, PIECE / ((size_t)args->w * args->c + 1) + 1, max_back_rows,
                    args);
}

static void avg_images(const void *arg, size_t begin, size_t end)
{
    const struct op_avgpool_forward *a = arg;
    size_t pixels = (size_t)a->h * a->w;

    for (size_t n = begin; n < end; n++) {
        for (int c = 0; c < a->c; c += TYPES_CHUNK) {
            int count = (int)types_smaller(TYPES_CHUNK, a->c - c);
            float sum[TYPES_CHUNK], scratch[TYPES_CHUNK];

            memset(sum, 0, count * sizeof(float));
            for (size_t i = 0; i < pixels; i++) {
                const float *x = types_read(a->x, a->type, (n * pixels + i) * a->c + c, count, scratch);

                for (int j = 0; j < count; j++)
                    sum[j] += x[j];
            }
            for (int j = 0; j < count; j++)
                sum[j] /= (float)pixels;
            types_write(a->y, a->type, n * a->c + c, count, sum);
        }
    }
}

void cpu_avgpool_forward(const struct op_avgpool_forward *args)
{
    cpu_threads_for(args->n, 1, avg_images, args);
}

static void avg_back_images(const void *arg, size_t begin, size_t end)
{
    const struct op_avgpool_backward *a = arg;
    size_t pixels = (size_t)a->h * a->w;

    for (size_t n = begin; n < end; n++) {
        for (int c = 0; c < a->c; c += TYPES_CHUNK) {
            int count = (int)types_smaller(TYPES_CHUNK, a->c - c);
            float scratch[TYPES_CHUNK], mean[TYPES_CHUNK];
            const float *dy = types_read(a->dy, a->type, n * a->c + c, count, scratch);

            for (int j = 0; j < count; j++)
                mean[j] = dy[j] / (float)pixels;
            for (size_t i = 0; i < pixels; i++)
                types_write(a->dx, a->type, (n * pixels + i) * a->c + c, count, mean);
        }
    }
}

void cpu_avgpool_backward(const struct op_avgpool_backward *args)
{
    cpu_threads_for(args->n, 1, avg_back_images, args);
}

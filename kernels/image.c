/* image_prepare, CPU reference: crops, scales, mirrors and normalizes images; see op_image_prepare in ops.h.
 * Threads share rows of results. The CUDA side, which computes the same expressions in the same order, is
 * image.cu. */
#include <math.h>

#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

/* Elements in a piece of work for one thread. */
enum { PIECE = 1 << 13 };

/* The two source pixels next to a position, and the weight of the second. */
struct between {
    int low, high;
    float weight;
};

static struct between between_of(float from, float length, int index, int count, int size)
{
    float at = from + ((float)index + 0.5f) * (length / (float)count) - 0.5f;
    struct between b;

    at = fminf(fmaxf(at, 0.0f), (float)(size - 1));
    b.low = (int)at;
    b.high = b.low + 1 < size ? b.low + 1 : b.low;
    b.weight = at - (float)b.low;
    return b;
}

static void prepare_pixel(const struct op_image_prepare *a, const uint8_t *image, struct between down,
                          struct between across, size_t at)
{
    const uint8_t *top = image + (size_t)down.low * a->w * a->c;
    const uint8_t *bottom = image + (size_t)down.high * a->w * a->c;

    for (int c = 0; c < a->c; c++) {
        float t0 = top[across.low * a->c + c], t1 = top[across.high * a->c + c];
        float b0 = bottom[across.low * a->c + c], b1 = bottom[across.high * a->c + c];
        float t = t0 + (t1 - t0) * across.weight;
        float b = b0 + (b1 - b0) * across.weight;
        float value = t + (b - t) * down.weight;

        types_store(a->out, a->type, at + c, (value / 255.0f - a->mean[c]) / a->deviation[c]);
    }
}

static void prepare_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_image_prepare *a = arg;
    const struct ops_crop whole = {0.0f, 0.0f, (float)a->h, (float)a->w, 0};

    for (size_t row = begin; row < end; row++) {
        size_t n = row / a->oh;
        const struct ops_crop *crop = a->crops ? &a->crops[n] : &whole;
        struct between down = between_of(crop->top, crop->height, (int)(row % a->oh), a->oh, a->h);

        for (int x = 0; x < a->ow; x++) {
            int source = crop->mirror ? a->ow - 1 - x : x;

            prepare_pixel(a, a->x + n * a->h * a->w * a->c, down,
                          between_of(crop->left, crop->width, source, a->ow, a->w), (row * a->ow + x) * a->c);
        }
    }
}

void cpu_image_prepare(const struct op_image_prepare *args)
{
    cpu_threads_for((size_t)args->n * args->oh, PIECE / ((size_t)args->ow * args->c + 1) + 1, prepare_rows,
                    args);
}

/* Decoded pictures of any size into places of one size, CPU reference: each pixel of the result is the mean,
 * in integers, over the area of the picture that it covers. Along an axis a pixel of the picture is `fit`
 * units long and one of the result `size` units, so that all weights are whole numbers. Threads share rows of
 * results. The kernel beside it is image_fit.cu; harness/data/image_shrink.c does the same while decoding. */
#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"

/* Elements of a piece of work that is worth handing to a thread. */
enum { PIECE = 1 << 13 };

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Adds up channel c of the picture over the area of pixel (y, x) of the result. */
static uint64_t sum_area(const struct ops_picture *p, int channels, uint64_t y, uint64_t x, int c)
{
    uint64_t top = y * (uint64_t)p->h, bottom = top + (uint64_t)p->h, total = 0;
    uint64_t left = x * (uint64_t)p->w, right = left + (uint64_t)p->w;
    uint64_t fit_h = (uint64_t)p->fit_h, fit_w = (uint64_t)p->fit_w;

    for (uint64_t at_y = top; at_y < bottom;) {
        uint64_t row = at_y / fit_h, next_y = least((row + 1) * fit_h, bottom), across = 0;

        for (uint64_t at_x = left; at_x < right;) {
            uint64_t column = at_x / fit_w, next_x = least((column + 1) * fit_w, right);

            across +=
                (next_x - at_x) * p->x[(row * (uint64_t)p->w + column) * (uint64_t)channels + (uint64_t)c];
            at_x = next_x;
        }
        total += (next_y - at_y) * across;
        at_y = next_y;
    }
    return total;
}

static void fit_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_image_fit *a = arg;

    for (size_t row = begin; row < end; row++) {
        const struct ops_picture *p = &a->pictures[row / (size_t)a->h];
        uint8_t *out = a->out + row * (size_t)a->w * (size_t)a->c;
        uint64_t area = p->x ? (uint64_t)p->h * (uint64_t)p->w : 0;
        uint64_t y = row % (size_t)a->h;

        for (int x = 0; x < a->w && area; x++) {
            for (int c = 0; c < a->c; c++) {
                uint64_t total = sum_area(p, a->c, least(y, (uint64_t)p->fit_h - 1),
                                          least((uint64_t)x, (uint64_t)p->fit_w - 1), c);

                *out++ = (uint8_t)((total + area / 2) / area);
            }
        }
    }
}

void cpu_image_fit(const struct op_image_fit *args)
{
    cpu_threads_for((size_t)args->n * (size_t)args->h, PIECE / ((size_t)args->w * (size_t)args->c + 1) + 1,
                    fit_rows, args);
}

/* prune, quantize and dequantize, CPU reference: prune sets small weights to 0; quantize stores rows of
 * weights as bytes with one scale per row (max |x| / 127, halves to even); dequantize converts them back. The
 * kernels beside it are quantize.cu. */
#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

#include <math.h>

enum { PIECE = 1 << 16, LARGEST_BYTE = 127 };

static void prune_piece(const void *arg, size_t begin, size_t end)
{
    const struct op_prune *args = arg;

    for (size_t i = begin; i < end; i++)
        args->x[i] = fabsf(args->x[i]) < args->threshold ? 0.0f : args->x[i];
}

void cpu_prune(const struct op_prune *args)
{
    cpu_threads_for(args->count, PIECE, prune_piece, args);
}

static int8_t to_byte(float v)
{
    float rounded = rintf(v);

    if (!(rounded > (float)-LARGEST_BYTE)) /* also true for NaN */
        return -LARGEST_BYTE;
    return rounded < (float)LARGEST_BYTE ? (int8_t)rounded : LARGEST_BYTE;
}

void cpu_quantize(const struct op_quantize *args)
{
    size_t cols = (size_t)args->cols;

    for (size_t row = 0; row < (size_t)args->rows; row++) {
        const float *x = args->x + row * cols;
        float max = 0.0f;

        for (size_t c = 0; c < cols; c++)
            max = fmaxf(max, fabsf(x[c]));
        args->scale[row] = max / (float)LARGEST_BYTE;
        for (size_t c = 0; c < cols; c++)
            args->q[row * cols + c] = max > 0.0f ? to_byte(x[c] / args->scale[row]) : 0;
    }
}

void cpu_dequantize(const struct op_dequantize *args)
{
    size_t cols = (size_t)args->cols;

    for (size_t row = 0; row < (size_t)args->rows; row++) {
        for (size_t c = 0; c < cols; c++)
            types_store(args->x, args->type, row * cols + c,
                        (float)args->q[row * cols + c] * args->scale[row]);
    }
}

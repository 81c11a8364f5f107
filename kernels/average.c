/* average, CPU reference: every parts[p][i] = the mean over p, summed in the order of p. The kernel beside it
 * is average.cu. */
#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"

enum { PIECE = 1 << 15 };

static void average_piece(const void *arg, size_t begin, size_t end)
{
    const struct op_average *args = arg;
    float factor = 1.0f / (float)args->count;

    for (size_t i = begin; i < end; i++) {
        float sum = args->parts[0][i];

        for (int p = 1; p < args->count; p++)
            sum += args->parts[p][i];
        sum *= factor;
        for (int p = 0; p < args->count; p++)
            args->parts[p][i] = sum;
    }
}

void cpu_average(const struct op_average *args)
{
    if (args->count > 1)
        cpu_threads_for(args->elements, PIECE, average_piece, args);
}

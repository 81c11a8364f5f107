/* fill, CPU reference: out[count] = value. The kernel beside it is fill.cu. */
#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

enum { FILL_GRAIN = 1 << 18 };

static void fill_piece(const void *arg, size_t begin, size_t end)
{
    const struct op_fill *args = arg;
    float piece[TYPES_CHUNK];

    for (size_t i = 0; i < TYPES_CHUNK; i++)
        piece[i] = args->value;
    for (size_t at = begin; at < end; at += TYPES_CHUNK)
        types_write(args->out, args->type, at, types_smaller(TYPES_CHUNK, end - at), piece);
}

void cpu_fill(const struct op_fill *args)
{
    cpu_threads_for(args->count, FILL_GRAIN, fill_piece, args);
}

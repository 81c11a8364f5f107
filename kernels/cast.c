/* cast and add, CPU reference: out[i] = x[i] from one type to another; out[i] = a[i] + b[i]. The kernels
 * beside it are cast.cu. */
#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

enum { CAST_GRAIN = 1 << 16 };

static void cast_piece(const void *arg, size_t begin, size_t end)
{
    const struct op_cast *args = arg;
    float scratch[TYPES_CHUNK];

    for (size_t at = begin; at < end; at += TYPES_CHUNK) {
        size_t count = types_smaller(TYPES_CHUNK, end - at);

        types_write(args->out, args->out_type, at, count,
                    types_read(args->x, args->x_type, at, count, scratch));
    }
}

void cpu_cast(const struct op_cast *args)
{
    cpu_threads_for(args->count, CAST_GRAIN, cast_piece, args);
}

static void add_piece(const void *arg, size_t begin, size_t end)
{
    const struct op_add *args = arg;
    float scratch_a[TYPES_CHUNK], scratch_b[TYPES_CHUNK], scratch_out[TYPES_CHUNK];

    for (size_t at = begin; at < end; at += TYPES_CHUNK) {
        size_t count = types_smaller(TYPES_CHUNK, end - at);
        const float *a = types_read(args->a, args->type, at, count, scratch_a);
        const float *b = types_read(args->b, args->type, at, count, scratch_b);
        float *out = types_target(args->out, args->type, at, scratch_out);

        for (size_t i = 0; i < count; i++)
            out[i] = a[i] + b[i];
        types_write(args->out, args->type, at, count, out);
    }
}

void cpu_add(const struct op_add *args)
{
    cpu_threads_for(args->count, CAST_GRAIN, add_piece, args);
}

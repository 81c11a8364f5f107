/* dropout, CPU reference: y[i] = x[i] / (1 - rate) where element i is kept, else 0. dropout.h decides which
 * elements are kept; the kernel beside it is dropout.cu. */
#include "kernels/dropout.h"

#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

enum { PIECE = 1 << 16 };
_Static_assert(TYPES_CHUNK % DROPOUT_GROUP == 0 && PIECE % TYPES_CHUNK == 0,
               "a piece must consist of whole groups");

static void drop_chunk(const float *x, float *y, size_t at, size_t count, uint64_t key, float rate)
{
    uint32_t threshold = dropout_threshold(rate);
    float factor = rate < 1.0f ? 1.0f / (1.0f - rate) : 0.0f;

    for (size_t i = 0; i < count; i++) {
        uint64_t bits = dropout_bits(key, (at + i) / DROPOUT_GROUP);

        y[i] = dropout_keeps(bits, (int)(i % DROPOUT_GROUP), threshold) ? x[i] * factor : 0.0f;
    }
}

static void drop_piece(const void *arg, size_t begin, size_t end)
{
    const struct op_dropout *args = arg;
    uint64_t key = dropout_key(args->seed, args->step ? *args->step : 0);
    float scratch_x[TYPES_CHUNK], scratch_y[TYPES_CHUNK];

    for (size_t at = begin; at < end; at += TYPES_CHUNK) {
        size_t count = types_smaller(TYPES_CHUNK, end - at);
        float *y = types_target(args->y, args->type, at, scratch_y);

        drop_chunk(types_read(args->x, args->type, at, count, scratch_x), y, at, count, key, args->rate);
        types_write(args->y, args->type, at, count, y);
    }
}

void cpu_dropout(const struct op_dropout *args)
{
    cpu_threads_for(args->count, PIECE, drop_piece, args);
}

/* Embedding of tokens and positions, CPU reference. Shapes: tokens [rows], tables [vocabulary][cols] and
 * [length][cols], out and dout [rows][cols].
 *     forward:  out[row] = tokens_table[tokens[row]] + positions_table[row % length]
 *     backward: the sums of dout over the rows of each token and of each position
 * Backward goes by strips of columns, each in the order of the rows. The kernels beside it are embedding.cu.
 */
#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

enum { ROWS_OF_A_PIECE = 16, STRIP = 64 };

static void forward_part(const struct op_embedding_forward *args, size_t row, size_t col, size_t count)
{
    float scratch_t[TYPES_CHUNK], scratch_p[TYPES_CHUNK], scratch_out[TYPES_CHUNK];
    size_t cols = (size_t)args->cols, at = row * cols + col;
    const float *t =
        types_read(args->tokens_table, args->type, (size_t)args->tokens[row] * cols + col, count, scratch_t);
    float *out = types_target(args->out, args->type, at, scratch_out);

    if (args->positions_table) {
        size_t position = row % (size_t)args->length;
        const float *p =
            types_read(args->positions_table, args->type, position * cols + col, count, scratch_p);

        for (size_t i = 0; i < count; i++)
            out[i] = t[i] + p[i];
        t = out;
    }
    types_write(args->out, args->type, at, count, t);
}

static void forward_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_embedding_forward *args = arg;

    for (size_t row = begin; row < end; row++) {
        for (size_t col = 0; col < (size_t)args->cols; col += TYPES_CHUNK)
            forward_part(args, row, col, types_smaller(TYPES_CHUNK, (size_t)args->cols - col));
    }
}

void cpu_embedding_forward(const struct op_embedding_forward *args)
{
    cpu_threads_for((size_t)args->rows, ROWS_OF_A_PIECE, forward_rows, args);
}

static void clear_columns(float *table, size_t rows, size_t cols, size_t begin, size_t end)
{
    for (size_t row = 0; row < rows; row++)
        memset(table + row * cols + begin, 0, (end - begin) * sizeof(float));
}

static void add_part(float *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

static void backward_columns(const void *arg, size_t begin, size_t end)
{
    const struct op_embedding_backward *args = arg;
    size_t cols = (size_t)args->cols, count = end - begin;
    float scratch[STRIP];

    if (!args->accumulate) {
        clear_columns(args->dtokens_table, (size_t)args->vocabulary, cols, begin, end);
        if (args->dpositions_table)
            clear_columns(args->dpositions_table, (size_t)args->length, cols, begin, end);
    }
    for (size_t row = 0; row < (size_t)args->rows; row++) {
        const float *d = types_read(args->dout, args->type, row * cols + begin, count, scratch);

        add_part(args->dtokens_table + (size_t)args->tokens[row] * cols + begin, d, count);
        if (args->dpositions_table)
            add_part(args->dpositions_table + row % (size_t)args->length * cols + begin, d, count);
    }
}

void cpu_embedding_backward(const struct op_embedding_backward *args)
{
    cpu_threads_for((size_t)args->cols, STRIP, backward_columns, args);
}

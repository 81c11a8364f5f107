/* Shared by the three convolutions of the CPU table (conv.c, conv_filter.c): reads rows of an image as padded
 * floats, and defines the shape of the register tile. Every sum runs in an order that follows from the shapes
 * alone, so a result does not depend on the number of threads. Included by these two files only. */
#ifndef KERNELS_CONV_PASS_H
#define KERNELS_CONV_PASS_H

#include <string.h>

#include "kernels/types.h"

/* A tile of TILE_ROWS x TILE_COLS sums stays in registers: 16 of aarch64's 32, 8 of x86-64's 16. */
enum {
    LANES = 4,
    TILE_ROWS = 4,
#ifdef __aarch64__
    TILE_VECTORS = 4,
#else
    TILE_VECTORS = 2,
#endif
    TILE_COLS = LANES * TILE_VECTORS
};

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

/* The rows that one row of results is made from: results x = 0 ... count - 1 of row y need, for each t <
 * tall, the source's row y * step + t - top from column x * step - left on, wide pixels. */
struct conv_window {
    enum ops_type type;
    const void *source; /* [n][h][w][c] */
    int h, w, c;
    int tall, wide;
    int step, top, left;
    int count;
};

/* Returns the window of a forward pass over x, which is also that of the gradient of the filters. */
struct conv_window conv_window_of(const struct ops_conv *shape, const void *x);

/* Returns the floats in one row of the window, with room for a tile that extends past the end. */
size_t conv_row_floats(const struct conv_window *window);

/* Fills rows[t][...] for row y of image n as described above, with zeros outside of the image. rows has tall
 * * conv_row_floats() floats. */
void conv_fill_rows(const struct conv_window *window, int n, int y, float *rows);

/* Copies count elements from index `at` on into `to`, as floats. */
static inline void conv_read(const void *from, enum ops_type type, size_t at, size_t count, float *to)
{
    const float *floats = types_read(from, type, at, count, to);

    if (floats != to)
        memcpy(to, floats, count * sizeof(float));
}

static inline int conv_out(int size, int filter, int stride, int pad)
{
    return (size + 2 * pad - filter) / stride + 1;
}

static inline int conv_round_up(int value, int unit)
{
    return (value + unit - 1) / unit * unit;
}

/* malloc. Ends the program with a message if the machine is out of memory: operations have no way to report
 * that. */
void *conv_scratch(size_t bytes);

#endif

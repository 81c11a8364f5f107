/* Shrinks an RGB picture row by row while it is decoded, so that a large picture is never in memory as a
 * whole. Each output pixel is the mean of the area it covers, rounded, in integer arithmetic: the same on
 * every machine. */
#ifndef HARNESS_IMAGE_SHRINK_H
#define HARNESS_IMAGE_SHRINK_H

#include <stddef.h>
#include <stdint.h>

/* The part of an input row that one output pixel covers. */
struct image_shrink_span {
    uint32_t first;        /* first pixel covered */
    uint32_t first_weight; /* its weight; pixels after it have weight out_w */
    uint32_t whole;        /* number of those */
    uint32_t last_weight;  /* weight of the pixel after them; may be 0 */
};

struct image_shrink {
    uint32_t in_h, in_w, out_h, out_w;
    uint8_t *out;
    size_t stride;                  /* bytes from one row of out to the next */
    struct image_shrink_span *span; /* [out_w]; NULL: same size, rows are copied */
    uint32_t *sum;                  /* weighted sum of the input rows of the current output row: [in_w][3] */
    uint32_t in_y;                  /* input rows taken */
    uint32_t out_y;                 /* output rows done */
    uint32_t filled;                /* weight in `sum`; the output row is complete at in_h */
};

/* Sets the size of an in_h x in_w picture that is shrunk, with its aspect ratio, to fit max_h x max_w.
 * Never enlarges. */
void image_shrink_fit(uint32_t in_h, uint32_t in_w, uint32_t max_h, uint32_t max_w, uint32_t *out_h,
                      uint32_t *out_w);

/* Returns 0, or -1 without memory. Sides are 1 to 65535, in_h * in_w is at most 2^28, and the output is not
 * larger than the input. */
int image_shrink_begin(struct image_shrink *shrink, uint32_t in_h, uint32_t in_w, uint32_t out_h,
                       uint32_t out_w, uint8_t *out, size_t stride);

/* Takes the next row of in_w pixels. Ignores rows after the last. */
void image_shrink_row(struct image_shrink *shrink, const uint8_t *pixels);

/* Frees the buffers. May be called at any time after image_shrink_begin, even if that failed. */
void image_shrink_end(struct image_shrink *shrink);

#endif

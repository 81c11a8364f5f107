/* Makes a picture smaller while it is decoded, row by row, so that a large picture never lies in memory
 * whole. Each result is the exact mean over the area that it covers, rounded, in integers: the same on every
 * machine. */
#ifndef HARNESS_IMAGE_SHRINK_H
#define HARNESS_IMAGE_SHRINK_H

#include <stddef.h>
#include <stdint.h>

/* What one pixel of the output takes of a row of the input. */
struct image_shrink_span {
    uint32_t first;        /* pixel */
    uint32_t first_weight; /* its share; those after it count out_w each */
    uint32_t whole;        /* how many of those */
    uint32_t last_weight;  /* the share of the one behind them; may be 0 */
};

struct image_shrink {
    uint32_t in_h, in_w, out_h, out_w, channels;
    uint8_t *out;
    size_t stride;                  /* bytes from one row of out to the next */
    struct image_shrink_span *span; /* [out_w]; NULL: nothing is to be made smaller, rows are copied */
    uint32_t *sum;                  /* the rows of input under way, weighted: [in_w][channels] */
    uint32_t in_y;                  /* rows taken */
    uint32_t out_y;                 /* rows done */
    uint32_t filled;                /* of in_h that the row under way needs */
};

/* The size of in_h x in_w when it is made to fit max_h x max_w with its proportions kept; never larger. */
void image_shrink_fit(uint32_t in_h, uint32_t in_w, uint32_t max_h, uint32_t max_w, uint32_t *out_h,
                      uint32_t *out_w);

/* 0, or -1 without memory. Sides are from 1 to 65535, in_h * in_w is at most 2^28, out_h at most in_h, out_w
 * at most in_w. */
int image_shrink_begin(struct image_shrink *shrink, uint32_t in_h, uint32_t in_w, uint32_t out_h,
                       uint32_t out_w, uint32_t channels, uint8_t *out, size_t stride);

/* The next row of in_w pixels. Rows beyond the last are ignored. */
void image_shrink_row(struct image_shrink *shrink, const uint8_t *pixels);

/* Frees; allowed at any time after image_shrink_begin, also when that failed. */
void image_shrink_end(struct image_shrink *shrink);

#endif

/* Area averaging. Along each axis a pixel of the input covers `out` units and one of the output covers `in`
 * units of the same line of in * out units, so that all weights are whole numbers. Rows are added up first,
 * which the compiler makes vector code of; along the row it is done once for each row of output. */
#include "harness/data/image_shrink.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    RGB = 3,
    BEYOND = 2 /* pixels after a row that are read with a weight of 0 */
};

void image_shrink_fit(uint32_t in_h, uint32_t in_w, uint32_t max_h, uint32_t max_w, uint32_t *out_h,
                      uint32_t *out_w)
{
    *out_h = in_h;
    *out_w = in_w;
    if (in_h <= max_h && in_w <= max_w)
        return;
    if ((uint64_t)in_h * max_w >= (uint64_t)in_w * max_h) { /* the height limits the size */
        *out_h = max_h;
        *out_w = (uint32_t)((uint64_t)in_w * max_h / in_h);
    } else {
        *out_w = max_w;
        *out_h = (uint32_t)((uint64_t)in_h * max_w / in_w);
    }
    *out_h = *out_h ? *out_h : 1;
    *out_w = *out_w ? *out_w : 1;
}

static void plan_row(struct image_shrink *shrink)
{
    uint32_t out_w = shrink->out_w;

    for (uint32_t to = 0; to < out_w; to++) {
        struct image_shrink_span *span = &shrink->span[to];
        uint64_t begin = (uint64_t)to * shrink->in_w, end = begin + shrink->in_w;

        span->first = (uint32_t)(begin / out_w);
        span->first_weight = out_w - (uint32_t)(begin % out_w);
        span->whole = (uint32_t)(end / out_w) - span->first - 1;
        span->last_weight = (uint32_t)(end % out_w);
    }
}

int image_shrink_begin(struct image_shrink *shrink, uint32_t in_h, uint32_t in_w, uint32_t out_h,
                       uint32_t out_w, uint8_t *out, size_t stride)
{
    memset(shrink, 0, sizeof(*shrink));
    shrink->in_h = in_h;
    shrink->in_w = in_w;
    shrink->out_h = out_h;
    shrink->out_w = out_w;
    shrink->out = out;
    shrink->stride = stride;
    if (in_h == out_h && in_w == out_w)
        return 0;
    shrink->span = malloc(out_w * sizeof(*shrink->span));
    shrink->sum = calloc((size_t)(in_w + BEYOND) * RGB, sizeof(*shrink->sum));
    if (!shrink->span || !shrink->sum)
        return -1;
    plan_row(shrink);
    return 0;
}

/* The sums of one span, colour by colour. */
static inline void add_span(const struct image_shrink_span *span, const uint32_t *sums, uint32_t out_w,
                            uint64_t total[RGB])
{
    const uint32_t *at = sums + (size_t)span->first * RGB;

    for (int c = 0; c < RGB; c++)
        total[c] = (uint64_t)span->first_weight * at[c];
    for (uint32_t i = 0; i < span->whole; i++) {
        at += RGB;
        for (int c = 0; c < RGB; c++)
            total[c] += (uint64_t)out_w * at[c];
    }
    if (span->last_weight) {
        at += RGB;
        for (int c = 0; c < RGB; c++)
            total[c] += (uint64_t)span->last_weight * at[c];
    }
}

/* The same for a picture that shrinks by less than half, where a span is at most three pixels: without
 * branches, which would be mispredicted half of the time. */
static inline void add_three(const struct image_shrink_span *span, const uint32_t *sums, uint32_t out_w,
                             uint64_t total[RGB])
{
    const uint32_t *at = sums + (size_t)span->first * RGB;
    uint32_t second = span->whole ? out_w : span->last_weight, third = span->whole ? span->last_weight : 0;

    for (int c = 0; c < RGB; c++)
        total[c] = (uint64_t)span->first_weight * at[c] + (uint64_t)second * at[RGB + c] +
                   (uint64_t)third * at[2 * RGB + c];
}

static void narrow(const struct image_shrink *shrink)
{
    /* Quotients are at least 2^-28 apart and below 2^8, so that a reciprocal that is too large by 2^-40 of
     * itself gives the whole part exactly, whatever the last bit of a product is. */
    uint64_t area = (uint64_t)shrink->in_h * shrink->in_w, half = area / 2;
    double reciprocal = (1.0 + 0x1p-40) / (double)area;
    uint32_t out_w = shrink->out_w;
    bool near = shrink->in_w < 2 * out_w;
    /* restrict: else every byte written might change what is read. */
    uint8_t *restrict out = shrink->out + (size_t)shrink->out_y * shrink->stride;
    const struct image_shrink_span *restrict span = shrink->span;
    const uint32_t *restrict sums = shrink->sum;

    for (uint32_t to = 0; to < out_w; to++, out += RGB) {
        uint64_t total[RGB];

        if (near)
            add_three(&span[to], sums, out_w, total);
        else
            add_span(&span[to], sums, out_w, total);
        for (int c = 0; c < RGB; c++)
            out[c] = (uint8_t)(int)((double)(total[c] + half) * reciprocal);
    }
}

static void finish_row(struct image_shrink *shrink)
{
    narrow(shrink);
    memset(shrink->sum, 0, (size_t)shrink->in_w * RGB * sizeof(*shrink->sum));
    shrink->filled = 0;
    shrink->out_y++;
}

static void add_row(uint32_t *restrict sum, const uint8_t *restrict pixels, size_t count, uint32_t weight)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += weight * pixels[i];
}

void image_shrink_row(struct image_shrink *shrink, const uint8_t *pixels)
{
    size_t count = (size_t)shrink->in_w * RGB;
    uint32_t left = shrink->out_h;

    if (shrink->in_y >= shrink->in_h)
        return;
    shrink->in_y++;
    if (!shrink->span) {
        memcpy(shrink->out + (size_t)shrink->out_y++ * shrink->stride, pixels, count);
        return;
    }
    while (left) {
        uint32_t need = shrink->in_h - shrink->filled;
        uint32_t take = left < need ? left : need;

        add_row(shrink->sum, pixels, count, take);
        left -= take;
        shrink->filled += take;
        if (shrink->filled == shrink->in_h)
            finish_row(shrink);
    }
}

void image_shrink_end(struct image_shrink *shrink)
{
    free(shrink->span);
    free(shrink->sum);
    shrink->span = NULL;
    shrink->sum = NULL;
}

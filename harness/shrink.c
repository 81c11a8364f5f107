/* Area averaging. Along each axis a pixel of the input covers `out` units and one of the output covers `in`
 * units of the same line of in * out units, so that all weights are whole numbers. */
#include "shrink.h"

#include <stdlib.h>
#include <string.h>

enum { FRACTION_BITS = 8, FRACTION = 1 << FRACTION_BITS, RGB = 3, MAX_CHANNELS = 4, SCALE_BITS = 32 };

/* Divisions are multiplications with a reciprocal of SCALE_BITS. */
static const uint64_t ONE = (uint64_t)1 << SCALE_BITS, HALF = (uint64_t)1 << (SCALE_BITS - 1);

void shrink_fit(uint32_t in_h, uint32_t in_w, uint32_t max_h, uint32_t max_w, uint32_t *out_h,
                uint32_t *out_w)
{
    *out_h = in_h;
    *out_w = in_w;
    if (in_h <= max_h && in_w <= max_w)
        return;
    if ((uint64_t)in_h * max_w >= (uint64_t)in_w * max_h) { /* height is what binds */
        *out_h = max_h;
        *out_w = (uint32_t)((uint64_t)in_w * max_h / in_h);
    } else {
        *out_w = max_w;
        *out_h = (uint32_t)((uint64_t)in_h * max_w / in_w);
    }
    *out_h = *out_h ? *out_h : 1;
    *out_w = *out_w ? *out_w : 1;
}

static void plan_row(struct shrink *shrink)
{
    uint32_t out_w = shrink->out_w;

    for (uint32_t to = 0; to < out_w; to++) {
        struct shrink_span *span = &shrink->span[to];
        uint64_t begin = (uint64_t)to * shrink->in_w, end = begin + shrink->in_w;

        span->first = (uint32_t)(begin / out_w);
        span->first_weight = out_w - (uint32_t)(begin % out_w);
        span->whole = (uint32_t)(end / out_w) - span->first - 1;
        span->last_weight = (uint32_t)(end % out_w);
    }
}

int shrink_begin(struct shrink *shrink, uint32_t in_h, uint32_t in_w, uint32_t out_h, uint32_t out_w,
                 uint32_t channels, uint8_t *out, size_t stride)
{
    size_t cells = (size_t)out_w * channels;

    memset(shrink, 0, sizeof(*shrink));
    shrink->in_h = in_h;
    shrink->in_w = in_w;
    shrink->out_h = out_h;
    shrink->out_w = out_w;
    shrink->channels = channels;
    shrink->out = out;
    shrink->stride = stride;
    if (in_h == out_h && in_w == out_w)
        return 0;
    shrink->span = malloc(out_w * sizeof(*shrink->span));
    shrink->row = malloc(cells * sizeof(*shrink->row));
    shrink->sum = calloc(cells, sizeof(*shrink->sum));
    if (!shrink->span || !shrink->row || !shrink->sum)
        return -1;
    plan_row(shrink);
    return 0;
}

/* The sums of one span, channel by channel; channels is a constant where this is called. */
static inline void add_span(const struct shrink_span *span, const uint8_t *pixels, uint32_t out_w,
                            uint32_t channels, uint32_t sum[MAX_CHANNELS])
{
    const uint8_t *pixel = pixels + (size_t)span->first * channels;

    for (uint32_t c = 0; c < channels; c++)
        sum[c] = span->first_weight * pixel[c];
    for (uint32_t i = 0; i < span->whole; i++) {
        pixel += channels;
        for (uint32_t c = 0; c < channels; c++)
            sum[c] += out_w * pixel[c];
    }
    if (span->last_weight) {
        pixel += channels;
        for (uint32_t c = 0; c < channels; c++)
            sum[c] += span->last_weight * pixel[c];
    }
}

static inline void narrow(struct shrink *shrink, const uint8_t *pixels, uint32_t channels)
{
    const uint64_t scale = ((uint64_t)FRACTION << SCALE_BITS) / shrink->in_w; /* sum / in_w is at most 255 */
    uint16_t *out = shrink->row;

    for (uint32_t to = 0; to < shrink->out_w; to++) {
        uint32_t sum[MAX_CHANNELS];

        add_span(&shrink->span[to], pixels, shrink->out_w, channels, sum);
        for (uint32_t c = 0; c < channels; c++)
            *out++ = (uint16_t)((sum[c] * scale + HALF) >> SCALE_BITS);
    }
}

static void finish_row(struct shrink *shrink)
{
    const uint64_t scale = (ONE + shrink->in_h / 2) / shrink->in_h;
    size_t cells = (size_t)shrink->out_w * shrink->channels;
    uint8_t *out = shrink->out + (size_t)shrink->out_y * shrink->stride;

    for (size_t i = 0; i < cells; i++)
        out[i] = (uint8_t)((shrink->sum[i] * scale + HALF * FRACTION) >> SCALE_BITS >> FRACTION_BITS);
    memset(shrink->sum, 0, cells * sizeof(*shrink->sum));
    shrink->filled = 0;
    shrink->out_y++;
}

void shrink_row(struct shrink *shrink, const uint8_t *pixels)
{
    size_t cells = (size_t)shrink->out_w * shrink->channels;
    uint32_t left = shrink->out_h;

    if (shrink->in_y >= shrink->in_h)
        return;
    shrink->in_y++;
    if (!shrink->span) {
        memcpy(shrink->out + (size_t)shrink->out_y++ * shrink->stride, pixels, cells);
        return;
    }
    if (shrink->channels == RGB)
        narrow(shrink, pixels, RGB);
    else
        narrow(shrink, pixels, shrink->channels);
    while (left) {
        uint32_t need = shrink->in_h - shrink->filled;
        uint32_t take = left < need ? left : need;

        for (size_t i = 0; i < cells; i++)
            shrink->sum[i] += take * shrink->row[i];
        left -= take;
        shrink->filled += take;
        if (shrink->filled == shrink->in_h)
            finish_row(shrink);
    }
}

void shrink_end(struct shrink *shrink)
{
    free(shrink->span);
    free(shrink->row);
    free(shrink->sum);
    shrink->span = NULL;
    shrink->row = NULL;
    shrink->sum = NULL;
}

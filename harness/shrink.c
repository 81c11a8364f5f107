/* Area averaging. Along each axis a pixel of the input covers out units and one of the output covers in units
 * of the same line of in * out units, so that all weights are whole numbers. */
#include "shrink.h"

#include <stdlib.h>
#include <string.h>

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
        return 0; /* rows are copied */
    shrink->row = malloc(cells * sizeof(*shrink->row));
    shrink->sum = calloc(cells, sizeof(*shrink->sum));
    return shrink->row && shrink->sum ? 0 : -1;
}

static void narrow(struct shrink *shrink, const uint8_t *pixels)
{
    uint32_t channels = shrink->channels;
    uint32_t x = 0;
    uint32_t left = shrink->out_w; /* of input pixel x that is not used yet */

    for (uint32_t to = 0; to < shrink->out_w; to++) {
        uint32_t need = shrink->in_w;
        uint32_t sum[4] = {0};

        while (need) {
            uint32_t take = left < need ? left : need;

            for (uint32_t c = 0; c < channels; c++)
                sum[c] += take * pixels[(size_t)x * channels + c];
            need -= take;
            left -= take;
            if (!left) {
                x++;
                left = shrink->out_w;
            }
        }
        memcpy(shrink->row + (size_t)to * channels, sum, channels * sizeof(sum[0]));
    }
}

static void finish_row(struct shrink *shrink)
{
    uint64_t area = (uint64_t)shrink->in_h * shrink->in_w;
    size_t cells = (size_t)shrink->out_w * shrink->channels;
    uint8_t *out = shrink->out + (size_t)shrink->out_y * shrink->stride;

    for (size_t i = 0; i < cells && area; i++)
        out[i] = (uint8_t)((shrink->sum[i] + area / 2) / area);
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
    if (!shrink->row) {
        memcpy(shrink->out + (size_t)shrink->out_y++ * shrink->stride, pixels, cells);
        return;
    }
    narrow(shrink, pixels);
    while (left) {
        uint32_t need = shrink->in_h - shrink->filled;
        uint32_t take = left < need ? left : need;

        for (size_t i = 0; i < cells; i++)
            shrink->sum[i] += (uint64_t)take * shrink->row[i];
        left -= take;
        shrink->filled += take;
        if (shrink->filled == shrink->in_h)
            finish_row(shrink);
    }
}

void shrink_end(struct shrink *shrink)
{
    free(shrink->row);
    free(shrink->sum);
    shrink->row = NULL;
    shrink->sum = NULL;
}

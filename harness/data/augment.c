/* Crops, preparation and degrading. Random draws use struct rng only, and no libm function whose last bits
 * differ between machines (sqrtf is exact). */
#include "harness/data/augment.h"

#include <math.h>
#include <string.h>

/* The range of proportions and the number of tries are those of the usual random resized crop. */
static const float least_ratio = 0.75f, most_ratio = 1.0f / 0.75f;
enum { TRIES = 10, NOISE = 64, NOISE_BYTES = 8, SQUARE_PART = 4, GREY = 128 };

static float uniform(struct rng *rng, float from, float to)
{
    return from + (to - from) * (0.5f + 0.5f * rng_symmetric(rng));
}

struct ops_crop augment_middle(const struct data_spec *spec, int h, int w)
{
    struct ops_crop crop = {0.0f, 0.0f, (float)h, (float)w, 0};
    float wanted = (float)spec->w / (float)spec->h;

    if (crop.width > crop.height * wanted)
        crop.width = crop.height * wanted;
    else
        crop.height = crop.width / wanted;
    crop.top = ((float)h - crop.height) * 0.5f;
    crop.left = ((float)w - crop.width) * 0.5f;
    return crop;
}

/* Returns a crop of random area, aspect ratio and place. */
static struct ops_crop cut_inside(const struct data_spec *spec, float min_area, int h, int w, struct rng *rng)
{
    for (int i = 0; i < TRIES; i++) {
        float area = uniform(rng, min_area, 1.0f) * (float)h * (float)w;
        float ratio = uniform(rng, least_ratio, most_ratio) * (float)spec->w / (float)spec->h;
        float width = sqrtf(area * ratio), height = sqrtf(area / ratio);

        if (width <= (float)w && height <= (float)h && width >= 1.0f && height >= 1.0f)
            return (struct ops_crop){uniform(rng, 0.0f, (float)h - height),
                                     uniform(rng, 0.0f, (float)w - width), height, width, 0};
    }
    return augment_middle(spec, h, w);
}

struct ops_crop augment_random(const struct data_spec *spec, const struct source_augment *allowed, int h,
                               int w, struct rng *rng)
{
    struct ops_crop crop;

    if (allowed->min_area < 1.0f) {
        crop = cut_inside(spec, allowed->min_area, h, w, rng);
    } else {
        int reach = (int)allowed->shift;

        crop = augment_middle(spec, h, w);
        crop.top += (float)((int)rng_below(rng, (uint64_t)(2 * reach + 1)) - reach);
        crop.left += (float)((int)rng_below(rng, (uint64_t)(2 * reach + 1)) - reach);
    }
    if (allowed->mirror)
        crop.mirror = (int32_t)rng_below(rng, 2);
    return crop;
}

void augment_extend(const struct data_spec *spec, uint8_t *bytes, int h, int w)
{
    size_t c = (size_t)spec->c, stride = (size_t)spec->raw_w * c;

    for (int y = 0; y < h && w < spec->raw_w; y++) {
        uint8_t *row = bytes + (size_t)y * stride;

        for (int x = w; x < spec->raw_w; x++)
            memcpy(row + (size_t)x * c, row + (size_t)(w - 1) * c, c);
    }
    for (int y = h; y < spec->raw_h; y++)
        memcpy(bytes + (size_t)y * stride, bytes + (size_t)(h - 1) * stride, stride);
}

/* Where an output pixel falls on one axis of the source: two neighbours and the weight of the second. */
struct tap {
    int first, second;
    float weight;
};

static struct tap find_tap(int to, float from, float step, int size)
{
    float at = from + ((float)to + 0.5f) * step - 0.5f;
    float whole;
    struct tap tap;

    at = at < 0.0f ? 0.0f : at;
    at = at > (float)(size - 1) ? (float)(size - 1) : at;
    whole = floorf(at);
    tap.first = (int)whole;
    tap.second = tap.first + 1 < size ? tap.first + 1 : size - 1;
    tap.weight = at - whole;
    return tap;
}

/* Interpolates between two rows for the pixels [from, to). The second half of bilinear interpolation is
 * along the row. */
static void blend_rows(const uint8_t *upper, const uint8_t *lower, float weight, size_t from, size_t to,
                       float *out)
{
    for (size_t i = from; i < to; i++)
        out[i] = (float)upper[i] + weight * (float)(lower[i] - upper[i]);
}

static inline void prepare_row(const struct data_spec *spec, const float *row, const struct tap *taps, int c,
                               float *out)
{
    for (int x = 0; x < spec->w; x++) {
        const float *first = row + (size_t)taps[x].first * (size_t)c;
        const float *second = row + (size_t)taps[x].second * (size_t)c;

        for (int i = 0; i < c; i++) {
            float value = first[i] + taps[x].weight * (second[i] - first[i]);

            *out++ = (value / 255.0f - spec->mean[i]) / spec->deviation[i];
        }
    }
}

/* The pixels of a row that the taps read. */
static void find_range(const struct tap *taps, int count, size_t *from, size_t *to)
{
    const struct tap *left = taps, *right = &taps[count - 1];

    if (left->first > right->first) { /* mirrored */
        left = right;
        right = taps;
    }
    *from = (size_t)left->first;
    *to = (size_t)right->second + 1;
}

void augment_prepare(const struct data_spec *spec, const struct ops_crop *crop, const uint8_t *bytes,
                     float *out)
{
    size_t c = (size_t)spec->c, stride = (size_t)spec->raw_w * c, from, to;
    float step_y = crop->height / (float)spec->h, step_x = crop->width / (float)spec->w;
    float row[DATA_MAX_SIDE * DATA_MAX_CHANNELS];
    struct tap taps[DATA_MAX_SIDE];

    if (spec->w < 1)
        return;
    for (int x = 0; x < spec->w; x++)
        taps[x] = find_tap(crop->mirror ? spec->w - 1 - x : x, crop->left, step_x, spec->raw_w);
    find_range(taps, spec->w, &from, &to);
    for (int y = 0; y < spec->h; y++) {
        struct tap tap = find_tap(y, crop->top, step_y, spec->raw_h);
        float *to_row = out + (size_t)y * (size_t)spec->w * c;

        blend_rows(bytes + (size_t)tap.first * stride, bytes + (size_t)tap.second * stride, tap.weight,
                   from * c, to * c, row);
        if (spec->c == 3) /* the compiler then unrolls it */
            prepare_row(spec, row, taps, 3, to_row);
        else
            prepare_row(spec, row, taps, spec->c, to_row);
    }
}

static uint8_t clamp(int value)
{
    return (uint8_t)(value < 0 ? 0 : value > UINT8_MAX ? UINT8_MAX : value);
}

void augment_degrade(const struct data_spec *spec, const uint8_t *from, uint8_t *to, int h, int w,
                     struct rng *rng)
{
    size_t c = (size_t)spec->c, stride = (size_t)spec->raw_w * c, bytes = stride * (size_t)spec->raw_h;
    int side = (h < w ? h : w) / SQUARE_PART;
    size_t top = rng_below(rng, (uint64_t)(h - side + 1)), left = rng_below(rng, (uint64_t)(w - side + 1));

    for (size_t i = 0; i < bytes; i += NOISE_BYTES) {
        uint64_t noise = rng_next(rng);

        for (size_t j = i; j < i + NOISE_BYTES && j < bytes; j++, noise >>= NOISE_BYTES)
            to[j] = clamp(from[j] + (int)(noise & (NOISE - 1)) - NOISE / 2);
    }
    for (size_t y = top; y < top + (size_t)side; y++)
        memset(to + y * stride + left * c, GREY, (size_t)side * c);
}

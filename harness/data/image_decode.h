/* JPEG and PNG files as RGB bytes, made to fit while they are decoded. The file is hostile: whatever is in
 * it, decoding ends with a picture or with what is wrong, within bounded memory (IMAGE_MEMORY and a few rows)
 * and bounded work (IMAGE_MAX_PIXELS, IMAGE_MAX_SCANS). Any thread may decode; there is no state. */
#ifndef HARNESS_IMAGE_DECODE_H
#define HARNESS_IMAGE_DECODE_H

#include <stddef.h>
#include <stdint.h>

enum {
    IMAGE_CHANNELS = 3,
    IMAGE_MAX_SIDE = 65535,
    IMAGE_MAX_PIXELS = 1 << 26, /* 8192 x 8192: above what cameras make, and a second of decoding */
    IMAGE_MAX_SCANS = 100,      /* of a progressive JPEG; encoders write about 10 */
    IMAGE_MEMORY = 128 << 20,   /* of a progressive JPEG (40 megapixels) or an interlaced PNG, held whole */
    IMAGE_MAX_FILE = 64 << 20,
    IMAGE_MESSAGE = 256,
};

/* The picture, at most max_h x max_w after shrinking (proportions are kept; it is never made larger). Row y
 * starts at out + y * max_w * IMAGE_CHANNELS; what is right of and below the picture is left as it was. */
struct image {
    uint8_t *out;
    uint32_t max_h, max_w;
    uint32_t h, w; /* result */
};

enum image_result { IMAGE_OK, IMAGE_CORRUPT, IMAGE_NO_MEMORY };

/* What is wrong is in message. After a failure, out may hold a part of the picture. */
enum image_result image_decode(struct image *image, const uint8_t *file, size_t bytes,
                               char message[IMAGE_MESSAGE]);

/* The two formats, by image_decode. Where the library was not there when this was built, they say so. */
enum image_result image_decode_jpeg(struct image *image, const uint8_t *file, size_t bytes,
                                    char message[IMAGE_MESSAGE]);
enum image_result image_decode_png(struct image *image, const uint8_t *file, size_t bytes,
                                   char message[IMAGE_MESSAGE]);

/* 0, or -1 with the reason: sides of 0, too long, or too many pixels. */
int image_decode_check_size(uint64_t h, uint64_t w, char message[IMAGE_MESSAGE]);

#endif

/* Decodes JPEG and PNG files to RGB bytes and shrinks them on the way. Files are untrusted: decoding any
 * bytes ends with a picture or a reason, within bounded memory (IMAGE_MEMORY and a few rows) and bounded
 * work (IMAGE_MAX_PIXELS, IMAGE_MAX_SCANS). No state; any thread. */
#ifndef HARNESS_IMAGE_DECODE_H
#define HARNESS_IMAGE_DECODE_H

#include <stddef.h>
#include <stdint.h>

enum {
    IMAGE_CHANNELS = 3,
    IMAGE_MAX_SIDE = 65535,
    IMAGE_MAX_PIXELS = 1 << 26, /* 8192 x 8192: more than cameras have, about a second of decoding */
    IMAGE_MAX_SCANS = 100,      /* of a progressive JPEG; encoders write about 10 */
    IMAGE_MEMORY = 128 << 20, /* for pictures held whole: progressive JPEG (40 megapixels), interlaced PNG */
    IMAGE_MAX_FILE = 64 << 20,
    IMAGE_MESSAGE = 256,
};

/* The destination: a picture of at most max_h x max_w. Larger pictures are shrunk with their aspect ratio,
 * smaller ones stay as they are. Row y starts at out + y * max_w * IMAGE_CHANNELS; bytes outside the
 * picture are not written. */
struct image {
    uint8_t *out;
    uint32_t max_h, max_w;
    uint32_t h, w; /* result */
};

enum image_result { IMAGE_OK, IMAGE_CORRUPT, IMAGE_NO_MEMORY };

/* Decodes a file in memory, JPEG or PNG by its first bytes. On failure, `message` is the reason and `out`
 * may hold a part of the picture. */
enum image_result image_decode(struct image *image, const uint8_t *file, size_t bytes,
                               char message[IMAGE_MESSAGE]);

/* The two formats; image_decode calls them. Built without the library of a format, its function fails and
 * says so. */
enum image_result image_decode_jpeg(struct image *image, const uint8_t *file, size_t bytes,
                                    char message[IMAGE_MESSAGE]);
enum image_result image_decode_png(struct image *image, const uint8_t *file, size_t bytes,
                                   char message[IMAGE_MESSAGE]);

/* Returns 0, or -1 with the reason in `message` if a side is 0 or too long, or there are too many pixels. */
int image_decode_check_size(uint64_t h, uint64_t w, char message[IMAGE_MESSAGE]);

#endif

/* PNG by libpng. Errors come back by longjmp. Palettes, grey, 16 bits and transparency all become RGB bytes.
 * Rows are shrunk as they come; only an interlaced file must lie in memory whole. */
#include "harness/data/image_decode.h"

#include <stdbool.h>
#include <stdio.h>

#ifndef HARNESS_HAVE_PNG

enum image_result image_decode_png(struct image *image, const uint8_t *file, size_t bytes,
                                   char message[IMAGE_MESSAGE])
{
    (void)image;
    (void)file;
    (void)bytes;
    snprintf(message, IMAGE_MESSAGE, "it is a PNG file, and this was built without libpng");
    return IMAGE_CORRUPT;
}

#else

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <png.h>

#include "harness/data/image_shrink.h"

/* Limit of what libpng keeps of other chunks. Texts and colour profiles are not used. */
enum { CHUNK_BYTES = 8 << 20, CHUNKS = 64 };

enum { SIGNATURE_BYTES = 8, CHUNK_FRAME = 12 /* length, name, checksum */ };

/* Everything that must survive a longjmp. */
struct decoder {
    png_structp png;
    png_infop info;
    struct image_shrink shrink;
    uint8_t *pixels; /* one row, or the whole interlaced picture */
    const uint8_t *file;
    size_t left;
    char *message;
    enum image_result result;
    jmp_buf back;
};

static void fail(png_structp png, png_const_charp text)
{
    struct decoder *decoder = png_get_error_ptr(png);

    if (!strcasecmp(text, "out of memory") || !strcasecmp(text, "insufficient memory")) /* libpng's words */
        decoder->result = IMAGE_NO_MEMORY;
    snprintf(decoder->message, IMAGE_MESSAGE, "%s", text);
    longjmp(decoder->back, 1);
}

static void ignore(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void read_bytes(png_structp png, png_bytep into, size_t bytes)
{
    struct decoder *decoder = png_get_io_ptr(png);

    if (bytes > decoder->left)
        png_error(png, "it is truncated");
    memcpy(into, decoder->file, bytes);
    decoder->file += bytes;
    decoder->left -= bytes;
}

/* libpng allocates a chunk before it reads it, so no chunk may be longer than the file. What follows the last
 * one is not read: some programs add bytes there. */
static bool chunks_fit(const uint8_t *file, size_t bytes)
{
    size_t at = SIGNATURE_BYTES;

    while (at + CHUNK_FRAME <= bytes) {
        size_t length = (size_t)file[at] << 24 | (size_t)file[at + 1] << 16 | (size_t)file[at + 2] << 8 |
                        (size_t)file[at + 3];

        if (length > bytes - at - CHUNK_FRAME)
            return false;
        if (!memcmp(file + at + sizeof(uint32_t), "IEND", sizeof(uint32_t)))
            return true;
        at += CHUNK_FRAME + length;
    }
    return at > SIGNATURE_BYTES;
}

static void open_file(struct decoder *decoder)
{
    png_structp png = decoder->png;

    png_set_read_fn(png, decoder, read_bytes);
    png_set_user_limits(png, IMAGE_MAX_SIDE, IMAGE_MAX_SIDE);
    png_set_chunk_malloc_max(png, CHUNK_BYTES);
    png_set_chunk_cache_max(png, CHUNKS);
    png_read_info(png, decoder->info);
    png_set_expand(png);
    png_set_scale_16(png);
    png_set_strip_alpha(png);
    png_set_gray_to_rgb(png);
}

static void read_rows(struct decoder *decoder, uint32_t h, uint32_t w, bool interlaced, int passes)
{
    size_t stride = (size_t)w * IMAGE_CHANNELS;

    for (int pass = 0; pass < passes; pass++) {
        for (uint32_t y = 0; y < h; y++) {
            uint8_t *row = decoder->pixels + (interlaced ? y * stride : 0);

            png_read_row(decoder->png, row, NULL);
            if (pass + 1 == passes)
                image_shrink_row(&decoder->shrink, row);
        }
    }
}

static void decode(struct decoder *decoder, struct image *image)
{
    png_structp png = decoder->png;
    uint32_t h, w;
    bool interlaced;
    int passes;
    size_t bytes;

    open_file(decoder);
    h = png_get_image_height(png, decoder->info);
    w = png_get_image_width(png, decoder->info);
    if (image_decode_check_size(h, w, decoder->message))
        longjmp(decoder->back, 1);
    passes = png_set_interlace_handling(png);
    png_read_update_info(png, decoder->info);
    interlaced = passes > 1;
    bytes = (size_t)w * IMAGE_CHANNELS * (interlaced ? h : 1);
    if (png_get_rowbytes(png, decoder->info) != (size_t)w * IMAGE_CHANNELS)
        png_error(png, "its pixels cannot be made RGB");
    if (bytes > IMAGE_MEMORY)
        png_error(png, "it is interlaced and too large to be held whole");
    image_shrink_fit(h, w, image->max_h, image->max_w, &image->h, &image->w);
    decoder->pixels = calloc(1, bytes);
    if (!decoder->pixels || image_shrink_begin(&decoder->shrink, h, w, image->h, image->w, image->out,
                                               (size_t)image->max_w * IMAGE_CHANNELS))
        png_error(png, "out of memory");
    read_rows(decoder, h, w, interlaced, passes);
    png_read_end(png, NULL);
    decoder->result = IMAGE_OK;
}

static void read_file(struct decoder *decoder, struct image *image)
{
    decoder->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, decoder, fail, ignore);
    if (decoder->png)
        decoder->info = png_create_info_struct(decoder->png);
    if (decoder->info)
        decode(decoder, image);
    else
        decoder->result = IMAGE_NO_MEMORY;
}

enum image_result image_decode_png(struct image *image, const uint8_t *file, size_t bytes,
                                   char message[IMAGE_MESSAGE])
{
    struct decoder *decoder = calloc(1, sizeof(*decoder));
    enum image_result result;

    snprintf(message, IMAGE_MESSAGE, "out of memory");
    if (!decoder)
        return IMAGE_NO_MEMORY;
    decoder->file = file;
    decoder->left = bytes;
    decoder->message = message;
    decoder->result = IMAGE_CORRUPT; /* until it is over */
    if (!chunks_fit(file, bytes))
        snprintf(message, IMAGE_MESSAGE, "it is truncated");
    else if (!setjmp(decoder->back))
        read_file(decoder, image);
    result = decoder->result;
    png_destroy_read_struct(&decoder->png, &decoder->info, NULL);
    image_shrink_end(&decoder->shrink);
    free(decoder->pixels);
    free(decoder);
    return result;
}

#endif

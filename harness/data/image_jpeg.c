/* JPEG by libjpeg-turbo. Errors return by longjmp. So do warnings about damaged data, which libjpeg would
 * replace by grey. The library itself can shrink by 2, 4 or 8 while decoding, which saves most of the work
 * for large pictures. */
#include "harness/data/image_decode.h"

#include <stdbool.h>
#include <stdio.h>

#ifndef HARNESS_HAVE_JPEG

enum image_result image_decode_jpeg(struct image *image, const uint8_t *file, size_t bytes,
                                    char message[IMAGE_MESSAGE])
{
    (void)image;
    (void)file;
    (void)bytes;
    snprintf(message, IMAGE_MESSAGE, "it is a JPEG file, and this was built without libjpeg");
    return IMAGE_CORRUPT;
}

#else

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "harness/data/image_shrink.h"

enum { CMYK = 4, BYTE_MAX = 255, LARGEST_DENOMINATOR = 8 };

/* Everything that must survive a longjmp. */
struct decoder {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    struct image_shrink shrink;
    uint8_t *row;
    char *message;
    enum image_result result;
    jmp_buf back;
};

static void fail(j_common_ptr info)
{
    struct decoder *decoder = info->client_data;
    char text[JMSG_LENGTH_MAX];

    info->err->format_message(info, text);
    if (info->err->msg_code == JERR_NO_BACKING_STORE) /* max_memory_to_use is not enough */
        snprintf(text, sizeof(text), "it is progressive and too large to be held whole");
    if (info->err->msg_code == JERR_OUT_OF_MEMORY)
        decoder->result = IMAGE_NO_MEMORY;
    snprintf(decoder->message, IMAGE_MESSAGE, "%.*s", IMAGE_MESSAGE - 1, text);
    longjmp(decoder->back, 1);
}

static bool means_damage(int code)
{
    return code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
           code == JWRN_MUST_RESYNC || code == JWRN_ARITH_BAD_CODE;
}

static void hear(j_common_ptr info, int level)
{
    if (level < 0 && means_damage(info->err->msg_code))
        fail(info);
}

static void say_nothing(j_common_ptr info)
{
    (void)info;
}

static void watch_scans(j_common_ptr info)
{
    struct decoder *decoder = info->client_data;

    if (decoder->info.input_scan_number > IMAGE_MAX_SCANS) {
        snprintf(decoder->message, IMAGE_MESSAGE, "it has more than %d scans", IMAGE_MAX_SCANS);
        longjmp(decoder->back, 1);
    }
}

/* Chooses the size of the result, and how far libjpeg shrinks: never below that size. */
static void choose_sizes(struct jpeg_decompress_struct *info, struct image *image)
{
    image_shrink_fit(info->image_height, info->image_width, image->max_h, image->max_w, &image->h, &image->w);
    info->scale_num = 1;
    for (info->scale_denom = LARGEST_DENOMINATOR; info->scale_denom > 1; info->scale_denom /= 2) {
        jpeg_calc_output_dimensions(info);
        if (info->output_height >= image->h && info->output_width >= image->w)
            break;
    }
    if (info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK)
        info->out_color_space = JCS_CMYK;
    else
        info->out_color_space = JCS_RGB;
}

/* Converts CMYK to RGB in place. Files with Adobe's marker store inverted inks. */
static void cmyk_to_rgb(uint8_t *row, size_t pixels, bool inverted)
{
    for (size_t i = 0; i < pixels; i++) {
        const uint8_t *from = row + i * CMYK;
        unsigned flip = inverted ? 0 : BYTE_MAX;
        unsigned black = from[IMAGE_CHANNELS] ^ flip;
        uint8_t rgb[IMAGE_CHANNELS];

        for (int c = 0; c < IMAGE_CHANNELS; c++)
            rgb[c] = (uint8_t)((from[c] ^ flip) * black / BYTE_MAX);
        memcpy(row + i * IMAGE_CHANNELS, rgb, sizeof(rgb));
    }
}

static void decode(struct decoder *decoder, struct image *image, const uint8_t *file, size_t bytes)
{
    struct jpeg_decompress_struct *info = &decoder->info;

    jpeg_create_decompress(info);
    info->client_data = decoder;
    info->mem->max_memory_to_use = IMAGE_MEMORY;
    decoder->progress.progress_monitor = watch_scans;
    info->progress = &decoder->progress;
    jpeg_mem_src(info, file, bytes);
    jpeg_read_header(info, TRUE);
    if (image_decode_check_size(info->image_height, info->image_width, decoder->message))
        longjmp(decoder->back, 1);
    choose_sizes(info, image);
    jpeg_start_decompress(info);
    decoder->row = malloc((size_t)info->output_width * CMYK);
    if (!decoder->row ||
        image_shrink_begin(&decoder->shrink, info->output_height, info->output_width, image->h, image->w,
                           image->out, (size_t)image->max_w * IMAGE_CHANNELS)) {
        snprintf(decoder->message, IMAGE_MESSAGE, "no host memory to decode it");
        decoder->result = IMAGE_NO_MEMORY;
        longjmp(decoder->back, 1);
    }
    while (info->output_scanline < info->output_height) {
        jpeg_read_scanlines(info, &decoder->row, 1);
        if (info->out_color_space == JCS_CMYK)
            cmyk_to_rgb(decoder->row, info->output_width, info->saw_Adobe_marker);
        image_shrink_row(&decoder->shrink, decoder->row);
    }
    jpeg_finish_decompress(info);
    decoder->result = IMAGE_OK;
}

enum image_result image_decode_jpeg(struct image *image, const uint8_t *file, size_t bytes,
                                    char message[IMAGE_MESSAGE])
{
    struct decoder *decoder = calloc(1, sizeof(*decoder));
    enum image_result result;

    if (!decoder) {
        snprintf(message, IMAGE_MESSAGE, "no host memory to decode it");
        return IMAGE_NO_MEMORY;
    }
    decoder->result = IMAGE_CORRUPT; /* until it is over */
    decoder->message = message;
    decoder->info.err = jpeg_std_error(&decoder->errors);
    decoder->info.client_data = decoder;
    decoder->errors.error_exit = fail;
    decoder->errors.emit_message = hear;
    decoder->errors.output_message = say_nothing;
    if (!setjmp(decoder->back))
        decode(decoder, image, file, bytes);
    result = decoder->result;
    jpeg_destroy_decompress(&decoder->info);
    image_shrink_end(&decoder->shrink);
    free(decoder->row);
    free(decoder);
    return result;
}

#endif

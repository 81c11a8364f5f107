/* Tells the formats apart by their first bytes, not by the file's name. */
#include "harness/data/image_decode.h"

#include <stdio.h>
#include <string.h>

static const uint8_t jpeg_mark[] = {0xff, 0xd8, 0xff};
static const uint8_t png_mark[] = {0x89, 'P', 'N', 'G'};

int image_decode_check_size(uint64_t h, uint64_t w, char message[IMAGE_MESSAGE])
{
    if (h > 0 && w > 0 && h <= IMAGE_MAX_SIDE && w <= IMAGE_MAX_SIDE && h * w <= IMAGE_MAX_PIXELS)
        return 0;
    snprintf(message, IMAGE_MESSAGE, "its size is %llux%llu; at most %d a side and %d pixels are read",
             (unsigned long long)w, (unsigned long long)h, IMAGE_MAX_SIDE, IMAGE_MAX_PIXELS);
    return -1;
}

enum image_result image_decode(struct image *image, const uint8_t *file, size_t bytes,
                               char message[IMAGE_MESSAGE])
{
    if (bytes == 0) {
        snprintf(message, IMAGE_MESSAGE, "it is empty");
        return IMAGE_CORRUPT;
    }
    if (bytes >= sizeof(jpeg_mark) && !memcmp(file, jpeg_mark, sizeof(jpeg_mark)))
        return image_decode_jpeg(image, file, bytes, message);
    if (bytes >= sizeof(png_mark) && !memcmp(file, png_mark, sizeof(png_mark)))
        return image_decode_png(image, file, bytes, message);
    snprintf(message, IMAGE_MESSAGE, "it is neither a JPEG nor a PNG file");
    return IMAGE_CORRUPT;
}

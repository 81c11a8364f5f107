/* Tells by its markers whether a JPEG file is one that a JPEG engine decodes as libjpeg does, without
 * decoding it. Files are untrusted. No state; any thread. */
#ifndef HARNESS_IMAGE_HEADER_H
#define HARNESS_IMAGE_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct image_header {
    uint32_t h, w;
};

/* Returns true, and the size, for a complete baseline file of 8 bits: grey or YCbCr, with chroma of full size
 * or halved along one axis or both, in one scan, from the first marker to the last with the restarts in their
 * order. Everything else, damaged files among it, is for image_decode, which says what is wrong. Does not
 * look into the coded data between markers. */
bool image_header_read(const uint8_t *file, size_t bytes, struct image_header *out);

#endif

/* Checks, by its markers and without decoding it, whether a JPEG engine decodes a JPEG file as libjpeg does.
 * Files are untrusted. No state; any thread. */
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
 * order. Returns false for all others and for damaged files: image_decode decodes them or names the fault.
 * Does not read the coded data between markers. */
bool image_header_read(const uint8_t *file, size_t bytes, struct image_header *out);

#endif

/* IDX files (MNIST's format): 0 0 TYPE DIMENSIONS, then a big-endian 32-bit size per dimension, then the
 * data. Reads unsigned bytes only. Files are untrusted: every size is checked against the file's length,
 * and a file with an error is refused as a whole. */
#ifndef HARNESS_IDX_H
#define HARNESS_IDX_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"

enum { IDX_MAX_DIMENSIONS = 4 };

struct idx {
    int dimensions;
    size_t size[IDX_MAX_DIMENSIONS];
    size_t count;        /* bytes of data: the product of the sizes */
    const uint8_t *data; /* points into the parsed bytes */
    uint8_t *file;       /* the bytes, where idx_load read them; NULL after idx_parse */
};

/* Parses `length` bytes. Returns NULL, or what is wrong with them. */
const char *idx_parse(struct idx *idx, const uint8_t *bytes, size_t length);

/* Reads and parses a file. On failure prints its name and the reason. */
enum status idx_load(struct idx *idx, const char *path);

void idx_unload(struct idx *idx);

#endif

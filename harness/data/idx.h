/* IDX files (the format of MNIST): 0 0 TYPE DIMENSIONS, then one big-endian 32-bit size per dimension, then
 * the data. Only unsigned bytes are read. The bytes are hostile until proven otherwise: nothing is believed
 * that the file's own length does not confirm, and a file is refused, never repaired. */
#ifndef HARNESS_IDX_H
#define HARNESS_IDX_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"

enum { IDX_MAX_DIMENSIONS = 4 };

struct idx {
    int dimensions;
    size_t size[IDX_MAX_DIMENSIONS];
    size_t count;        /* product of the sizes: bytes of data */
    const uint8_t *data; /* inside the parsed bytes */
    uint8_t *file;       /* owned by idx_load, NULL after idx_parse */
};

/* Reads the header of the given bytes. Returns NULL, or what is wrong with them. */
const char *idx_parse(struct idx *idx, const uint8_t *bytes, size_t length);

/* Reads and parses a file; on failure says which file and why. */
enum status idx_load(struct idx *idx, const char *path);

void idx_unload(struct idx *idx);

#endif

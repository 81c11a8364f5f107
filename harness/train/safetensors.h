/* The safetensors format: eight bytes that say how long the header is, the header (JSON: the name of each
 * tensor with its type, shape and place), and the data. Little-endian. No device, no file: bytes only. Files
 * are untrusted: a header is accepted only if it describes exactly the data bytes, as the format demands. */
#ifndef HARNESS_SAFETENSORS_H
#define HARNESS_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

enum {
    SAFETENSORS_DIMS = 8,
    SAFETENSORS_NAME_BYTES = 128,
    SAFETENSORS_TYPE_BYTES = 12,
    SAFETENSORS_MAX_TENSORS = 65536,
    SAFETENSORS_MAX_HEADER = 32 << 20,
    SAFETENSORS_LENGTH_BYTES = 8
};

struct safetensors_tensor {
    char name[SAFETENSORS_NAME_BYTES];
    char type[SAFETENSORS_TYPE_BYTES]; /* F32, I32, ... */
    int dims;
    uint64_t shape[SAFETENSORS_DIMS];
    uint64_t begin, end; /* in the data */
};

struct safetensors_table {
    struct safetensors_tensor *tensors; /* in the order of the data */
    size_t count, room;
};

/* Reads a header of `count` bytes, behind which there are data_bytes bytes of data. Returns NULL, or what is
 * wrong, as the rest of a sentence that begins with the file; the table is then empty. */
const char *safetensors_parse(const char *text, size_t count, uint64_t data_bytes,
                              struct safetensors_table *out);
void safetensors_free(struct safetensors_table *table);

/* Returns the tensor of that name, or NULL. */
const struct safetensors_tensor *safetensors_find(const struct safetensors_table *table, const char *name);

/* Returns the bytes of an element, 0 for a type that is not known. */
size_t safetensors_type_bytes(const char *type);

/* Makes the beginning of a file: length and header, padded to eight bytes. Sets the tensors' places, one
 * behind the other. Names are plain ASCII without quotes. Returns memory to free, NULL without memory. */
char *safetensors_make_header(struct safetensors_tensor *tensors, size_t count, size_t *bytes);

#endif

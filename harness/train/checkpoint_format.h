/* The checkpoint file: a header of fixed size, a table with one entry per parameter, then their contents in
 * the order of the table (weight, and for trained ones what the optimizer keeps). All numbers are
 * little-endian. The checksum covers everything after it. The parser here reads hostile bytes: it never
 * reads beyond them and never believes a size that the file does not have. */
#ifndef HARNESS_CHECKPOINT_FORMAT_H
#define HARNESS_CHECKPOINT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CHECKPOINT_VERSION = 1,
    CHECKPOINT_NAME_BYTES = 256,
    CHECKPOINT_SCALARS_BYTES = 64,
    CHECKPOINT_MAX_PARAMS = 1 << 16
};
#define CHECKPOINT_MAGIC "GPUCAPCK"

struct checkpoint_header {
    char magic[8];
    uint64_t checksum; /* of the rest of the file */
    uint32_t version;
    uint32_t param_count;
    uint64_t file_bytes;
    uint64_t step, micro;
    uint64_t data_seed, data_samples;
    uint8_t scalars[CHECKPOINT_SCALARS_BYTES]; /* struct ops_scalars (scale 0: not fp16), the rest zero */
    char name[CHECKPOINT_NAME_BYTES];          /* of the model and its sizes, ended by a zero */
};

struct checkpoint_entry {
    uint32_t rows, cols;
    uint32_t copies; /* how many arrays of rows * cols floats: 1 to 3 */
    uint32_t reserved;
};

struct checkpoint_sum {
    uint64_t state;
    uint8_t rest[8];
    size_t count;
};

void checkpoint_sum_open(struct checkpoint_sum *sum);
void checkpoint_sum_add(struct checkpoint_sum *sum, const void *bytes, size_t count);
uint64_t checkpoint_sum_close(struct checkpoint_sum *sum);

/* NULL, or what is wrong with a header that was read from a file of that size. */
const char *checkpoint_check_header(const struct checkpoint_header *header, uint64_t file_bytes);

/* NULL, or what is wrong with the table: its contents must fill the file exactly. */
const char *checkpoint_check_entries(const struct checkpoint_header *header,
                                     const struct checkpoint_entry *entries);

static inline uint64_t checkpoint_entry_bytes(const struct checkpoint_entry *entry)
{
    return (uint64_t)entry->rows * entry->cols * entry->copies * sizeof(float);
}

#endif

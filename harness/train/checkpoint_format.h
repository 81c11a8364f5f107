/* The checkpoint file: a header of fixed size, a table with one entry per parameter, then the parameters'
 * contents in that order (the weight, and for trained ones the optimizer's state). A small checkpoint, for
 * evaluation, has weights only, and at least one of another form than floats. Numbers are little-endian. The
 * checksum covers everything after it. Files are untrusted: the parser never reads beyond the bytes it got,
 * and checks every size against the file's. */
#ifndef HARNESS_CHECKPOINT_FORMAT_H
#define HARNESS_CHECKPOINT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CHECKPOINT_VERSION = 1,
    CHECKPOINT_NAME_BYTES = 232,
    CHECKPOINT_SCALARS_BYTES = 56,
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
    uint8_t scalars[CHECKPOINT_SCALARS_BYTES]; /* struct ops_scalars (scale 0: not fp16), padded with zeros */
    double val_best;                           /* lowest validation loss so far; 0: none */
    char name[CHECKPOINT_NAME_BYTES];          /* the model and its sizes, zero-terminated */
    uint64_t train_samples, val_samples;       /* how --validation divided the data (older files have 0) */
    uint64_t missed; /* not 0: a signal interrupted the validation of this step (older files have 0) */
};

/* floats: arrays of rows * cols floats. int8: rows * cols bytes, then a float per row, the scale. sparse: a
 * bit per weight, the first one lowest, then the weights whose bit is set, as floats. */
enum checkpoint_form { CHECKPOINT_FLOATS, CHECKPOINT_INT8, CHECKPOINT_SPARSE };

struct checkpoint_entry {
    uint32_t rows, cols;
    uint32_t copies; /* floats: number of arrays, 1 to 3; int8: 1; sparse: weights whose bit is set */
    uint32_t form;   /* enum checkpoint_form */
};

struct checkpoint_sum {
    uint64_t state;
    uint8_t rest[8];
    size_t count;
};

void checkpoint_sum_open(struct checkpoint_sum *sum);
void checkpoint_sum_add(struct checkpoint_sum *sum, const void *bytes, size_t count);
uint64_t checkpoint_sum_close(struct checkpoint_sum *sum);

/* Returns NULL, or what is wrong with the header of a file of `file_bytes` bytes. */
const char *checkpoint_check_header(const struct checkpoint_header *header, uint64_t file_bytes);

/* Returns NULL, or what is wrong with the table. The contents must fill the file exactly. */
const char *checkpoint_check_entries(const struct checkpoint_header *header,
                                     const struct checkpoint_entry *entries);

/* Returns true for a checkpoint that has no optimizer state: it is for evaluation only. */
bool checkpoint_is_small(const struct checkpoint_header *header, const struct checkpoint_entry *entries);

/* Returns the size of the contents. The caller has checked that rows * cols is no more than a file has. */
static inline uint64_t checkpoint_entry_bytes(const struct checkpoint_entry *entry)
{
    uint64_t elements = (uint64_t)entry->rows * entry->cols;

    if (entry->form == CHECKPOINT_INT8)
        return elements + entry->rows * (uint64_t)sizeof(float);
    if (entry->form == CHECKPOINT_SPARSE)
        return (elements + 7) / 8 + entry->copies * (uint64_t)sizeof(float);
    return elements * entry->copies * sizeof(float);
}

#endif

/* A checkpoint file that is being written or read: bytes and their checksum. One thread. */
#ifndef HARNESS_CHECKPOINT_FILE_H
#define HARNESS_CHECKPOINT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/train/checkpoint_format.h"

enum { CHECKPOINT_CHUNK = 16 << 20 };

struct checkpoint_file {
    const char *path;
    int fd;
    struct checkpoint_sum sum;
    uint8_t *buffer; /* CHECKPOINT_CHUNK bytes */
};

/* Prints path, `what` and errno. Returns `status`. */
enum status checkpoint_file_fail(const struct checkpoint_file *file, enum status status, const char *what);

/* Writes bytes; checkpoint_file_add also adds them to the sum. */
enum status checkpoint_file_write(struct checkpoint_file *file, const void *bytes, size_t count);
enum status checkpoint_file_add(struct checkpoint_file *file, const void *bytes, size_t count);

/* Returns false at the end of the file and on an error. */
bool checkpoint_file_read(struct checkpoint_file *file, void *bytes, size_t count);

#endif

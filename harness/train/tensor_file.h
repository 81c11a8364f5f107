/* Writes a safetensors file under a temporary name and then renames it, so that a file of the final name is
 * always complete. */
#ifndef HARNESS_TENSOR_FILE_H
#define HARNESS_TENSOR_FILE_H

#include <limits.h>
#include <stdio.h>

#include "harness/base/status.h"
#include "harness/train/safetensors.h"

struct tensor_file {
    const char *path;
    char temporary[PATH_MAX];
    FILE *file;
};

/* Writes the header, and sets the tensors' places. The data follows in their order. Call tensor_file_close
 * also after a failure. */
enum status tensor_file_open(struct tensor_file *file, const char *path, struct safetensors_tensor *tensors,
                             size_t count);
enum status tensor_file_write(struct tensor_file *file, const void *bytes, size_t count);

/* Renames the file to its final name, or, if `status` is a failure, removes it. Returns the first failure, or
 * STATUS_OK. */
enum status tensor_file_close(struct tensor_file *file, enum status status);

#endif

/* Writes a safetensors file beside its place and then puts it there, so that the file is whole or not there.
 */
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

/* Puts the file in its place, or, if `status` is a failure, removes it. Returns the status, or what failed.
 */
enum status tensor_file_close(struct tensor_file *file, enum status status);

#endif

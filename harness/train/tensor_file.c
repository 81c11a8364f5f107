/* Safetensors files that are whole or not there. See tensor_file.h. */
#include "harness/train/tensor_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum status fail(const struct tensor_file *file, const char *what)
{
    return status_fail(STATUS_FAILED, "%s: %s: %s", file->path, what, strerror(errno));
}

enum status tensor_file_open(struct tensor_file *file, const char *path, struct safetensors_tensor *tensors,
                             size_t count)
{
    enum status status;
    char *header;
    size_t bytes;

    *file = (struct tensor_file){.path = path};
    /* A name of this process's own: another may write to the same path. */
    if (snprintf(file->temporary, sizeof(file->temporary), "%s.%ld.tmp", path, (long)getpid()) >=
        (int)sizeof(file->temporary))
        return status_fail(STATUS_FAILED, "%s: the path is too long", path);
    file->file = fopen(file->temporary, "we");
    if (!file->file)
        return fail(file, "it cannot be created");
    header = safetensors_make_header(tensors, count, &bytes);
    if (!header)
        return status_fail(STATUS_NO_MEMORY, "no host memory for the table of %s", path);
    status = tensor_file_write(file, header, bytes);
    free(header);
    return status;
}

enum status tensor_file_write(struct tensor_file *file, const void *bytes, size_t count)
{
    return fwrite(bytes, 1, count, file->file) == count ? STATUS_OK : fail(file, "it cannot be written");
}

enum status tensor_file_close(struct tensor_file *file, enum status status)
{
    if (!file->file)
        return status;
    if (!status && (fflush(file->file) || fsync(fileno(file->file))))
        status = fail(file, "it cannot be written");
    if (fclose(file->file) && !status)
        status = fail(file, "it cannot be closed");
    file->file = NULL;
    if (!status && rename(file->temporary, file->path))
        status = fail(file, "it cannot be put in its place");
    if (status)
        unlink(file->temporary);
    return status;
}

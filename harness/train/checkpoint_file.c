/* Writing and reading a checkpoint file to the last byte. See checkpoint_file.h. */
#include "harness/train/checkpoint_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum status checkpoint_file_fail(const struct checkpoint_file *file, enum status status, const char *what)
{
    return status_fail(status, "%s: %s: %s", file->path, what, strerror(errno));
}

enum status checkpoint_file_write(struct checkpoint_file *file, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;

    while (count > 0) {
        ssize_t written = write(file->fd, at, count);

        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            errno = written < 0 ? errno : ENOSPC;
            return checkpoint_file_fail(file, STATUS_UNSAVED, "the checkpoint cannot be written");
        }
        at += written;
        count -= (size_t)written;
    }
    return STATUS_OK;
}

enum status checkpoint_file_add(struct checkpoint_file *file, const void *bytes, size_t count)
{
    checkpoint_sum_add(&file->sum, bytes, count);
    return checkpoint_file_write(file, bytes, count);
}

bool checkpoint_file_read(struct checkpoint_file *file, void *bytes, size_t count)
{
    uint8_t *at = bytes;

    while (count > 0) {
        ssize_t got = read(file->fd, at, count);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        count -= (size_t)got;
    }
    return true;
}

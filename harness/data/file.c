/* The reading of files; see file.h. Reasons are constant strings, so that no thread overwrites another's. */
#include "harness/data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* strerrordesc_np: strerror's buffer is shared by all threads. */
static const char *describe(int error)
{
    const char *text = strerrordesc_np(error);

    return text ? text : "unknown error";
}

int file_open(const char *path, int *fd, uint64_t *bytes, const char **reason)
{
    struct stat info;

    /* O_NONBLOCK: opening a pipe by mistake must not hang. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) {
        *reason = describe(errno);
        return -1;
    }
    if (fstat(*fd, &info))
        *reason = describe(errno);
    else if (!S_ISREG(info.st_mode))
        *reason = "not a regular file";
    else {
        *bytes = (uint64_t)info.st_size;
        return 0;
    }
    close(*fd);
    *fd = -1;
    return -1;
}

int file_read_at(int fd, uint8_t *into, size_t bytes, uint64_t offset, const char **reason)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t got = pread(fd, into + done, bytes - done, (off_t)(offset + done));

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            *reason = got < 0 ? describe(errno) : "it became shorter while it was read";
            return -1;
        }
        done += (size_t)got;
    }
    return 0;
}

/* files: reads a small file whole. Owns no lock. */
#ifndef GPUCAP_FILES_H
#define GPUCAP_FILES_H

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads a file, at most `size` bytes of it. Returns how many, or -errno; -EINVAL for a pipe, which would read
 * as an empty file without a writer. */
static inline ssize_t files_read(const char *path, char *out, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat kind;
    size_t used = 0;

    if (fd < 0)
        return -errno;
    int rc = fstat(fd, &kind) || S_ISFIFO(kind.st_mode) ? -EINVAL : 0;
    while (rc == 0 && used < size) {
        const ssize_t got = read(fd, out + used, size - used);

        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            rc = -errno;
        used += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    return rc ? rc : (ssize_t)used;
}

#endif

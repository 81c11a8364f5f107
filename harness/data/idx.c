/* The IDX parser and loader. The file is read, not mapped: a file that shrinks under a mapping would kill the
 * program. */
#include "harness/data/idx.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC_BYTES = 4, SIZE_BYTES = 4, TYPE_UBYTE = 0x08, GZIP_FIRST = 0x1f, GZIP_SECOND = 0x8b };

/* MNIST's largest file is 47 MB. A far larger one was hardly meant to be loaded into memory as a whole. */
static const size_t max_file_bytes = (size_t)1 << 31;

static size_t read_be32(const uint8_t *p)
{
    return (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | (size_t)p[3];
}

const char *idx_parse(struct idx *idx, const uint8_t *bytes, size_t length)
{
    size_t header;

    memset(idx, 0, sizeof(*idx));
    if (length >= 2 && bytes[0] == GZIP_FIRST && bytes[1] == GZIP_SECOND)
        return "it is compressed with gzip; unpack it first";
    if (length < MAGIC_BYTES)
        return "it is too short for an IDX header";
    if (bytes[0] != 0 || bytes[1] != 0)
        return "it does not start as an IDX file does (0 0)";
    if (bytes[2] != TYPE_UBYTE)
        return "its data type is not unsigned byte (8)";
    if (bytes[3] == 0 || bytes[3] > IDX_MAX_DIMENSIONS)
        return "it must have 1 to 4 dimensions";
    idx->dimensions = bytes[3];
    header = MAGIC_BYTES + (size_t)idx->dimensions * SIZE_BYTES;
    if (length < header)
        return "it ends within its header";
    idx->count = 1;
    for (int d = 0; d < idx->dimensions; d++) {
        idx->size[d] = read_be32(bytes + MAGIC_BYTES + (size_t)d * SIZE_BYTES);
        if (idx->size[d] == 0)
            return "one of its dimensions is 0";
        if (__builtin_mul_overflow(idx->count, idx->size[d], &idx->count))
            return "its dimensions multiply to more than can be addressed";
    }
    if (idx->count > length - header)
        return "it is truncated: its dimensions promise more data than it holds";
    if (idx->count < length - header)
        return "it has data behind its end";
    idx->data = bytes + header;
    return NULL;
}

static enum status read_all(int fd, const char *path, uint8_t *into, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t got = read(fd, into + done, bytes - done);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return status_fail(STATUS_FAILED, "%s: %s", path, strerror(errno));
        if (got == 0)
            return status_fail(STATUS_FAILED, "%s: it became shorter while it was read", path);
        done += (size_t)got;
    }
    return STATUS_OK;
}

static enum status load_open_file(struct idx *idx, int fd, const char *path)
{
    struct stat info;
    uint8_t *file;
    const char *wrong;
    enum status status;

    if (fstat(fd, &info))
        return status_fail(STATUS_FAILED, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return status_fail(STATUS_FAILED, "%s: not a regular file", path);
    if (info.st_size == 0 || (size_t)info.st_size > max_file_bytes)
        return status_fail(STATUS_FAILED, "%s: %lld bytes is no size for an IDX file", path,
                           (long long)info.st_size);
    file = malloc((size_t)info.st_size);
    if (!file)
        return status_fail(STATUS_NO_MEMORY, "%s: no host memory for %lld bytes", path,
                           (long long)info.st_size);
    status = read_all(fd, path, file, (size_t)info.st_size);
    if (!status && (wrong = idx_parse(idx, file, (size_t)info.st_size)))
        status = status_fail(STATUS_FAILED, "%s: %s", path, wrong);
    if (status) {
        free(file);
        memset(idx, 0, sizeof(*idx));
        return status;
    }
    idx->file = file;
    return STATUS_OK;
}

enum status idx_load(struct idx *idx, const char *path)
{
    /* O_NONBLOCK: opening a pipe by mistake must not hang. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum status status;

    memset(idx, 0, sizeof(*idx));
    if (fd < 0)
        return status_fail(STATUS_FAILED, "%s: %s", path, strerror(errno));
    status = load_open_file(idx, fd, path);
    close(fd);
    return status;
}

void idx_unload(struct idx *idx)
{
    free(idx->file);
    memset(idx, 0, sizeof(*idx));
}

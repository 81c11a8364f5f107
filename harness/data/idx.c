/* The IDX parser and loader. The file is read, not mapped: a file that shrinks under a mapping would kill the
 * program. */
#include "harness/data/idx.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/data/file.h"

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

static enum status load_open_file(struct idx *idx, int fd, uint64_t bytes, const char *path)
{
    const char *wrong;
    uint8_t *file;

    if (bytes == 0 || bytes > max_file_bytes)
        return status_fail(STATUS_FAILED, "%s: %llu bytes is no size for an IDX file", path,
                           (unsigned long long)bytes);
    file = malloc(bytes);
    if (!file)
        return status_fail(STATUS_NO_MEMORY, "%s: no host memory for %llu bytes", path,
                           (unsigned long long)bytes);
    if (file_read_at(fd, file, bytes, 0, &wrong) || (wrong = idx_parse(idx, file, bytes))) {
        free(file);
        memset(idx, 0, sizeof(*idx));
        return status_fail(STATUS_FAILED, "%s: %s", path, wrong);
    }
    idx->file = file;
    return STATUS_OK;
}

enum status idx_load(struct idx *idx, const char *path)
{
    enum status status;
    const char *wrong;
    uint64_t bytes;
    int fd;

    memset(idx, 0, sizeof(*idx));
    if (file_open(path, &fd, &bytes, &wrong))
        return status_fail(STATUS_FAILED, "%s: %s", path, wrong);
    status = load_open_file(idx, fd, bytes, path);
    close(fd);
    return status;
}

void idx_unload(struct idx *idx)
{
    free(idx->file);
    memset(idx, 0, sizeof(*idx));
}

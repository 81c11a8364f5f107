/* recording_write: see recording_write.h. */
#include "interpose/see/recording_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interpose/base/clock.h"
#include "interpose/base/pages.h"
#include "interpose/base/withhold.h"

#if GPUCAP_HAVE_ZSTD
#define ZSTD_STATIC_LINKING_ONLY /* for a context in memory of our own */
#include <zstd.h>
#define LEVEL 1

/* zstd refers to these weakly. Undefined, they would be bound to functions of the program's own zstd. */
unsigned long long ZSTD_trace_compress_begin(const ZSTD_CCtx *context);
void ZSTD_trace_compress_end(unsigned long long number, const void *trace);

unsigned long long ZSTD_trace_compress_begin(const ZSTD_CCtx *context)
{
    (void)context;
    return 0;
}

void ZSTD_trace_compress_end(unsigned long long number, const void *trace)
{
    (void)number;
    (void)trace;
}
#endif

/* A smaller block would be packed less well: 256 KiB are 4,700 events. */
#define BLOCK_BYTES (UINT32_C(256) << 10)

struct recording_write_system recording_write_system = {.write = write, .now = clock_ns};

/* ---- names ---- */

/* Replaces what follows a '%'. Returns the number of characters, or -EINVAL. */
static int expand(char letter, char *out, size_t size)
{
    switch (letter) {
    case 'p':
        return snprintf(out, size, "%ld", (long)getpid());
    case 'h':
        if (gethostname(out, size) || !memchr(out, '\0', size))
            return snprintf(out, size, "host");
        return (int)strlen(out);
    case '%':
        return snprintf(out, size, "%%");
    default:
        return -EINVAL;
    }
}

int recording_write_name(const char *name, char path[RECORDING_WRITE_PATH])
{
    size_t length = 0;

    for (; *name; name++) {
        char part[256] = {*name, '\0'};
        const int count = *name == '%' ? expand(*++name, part, sizeof(part)) : 1;

        if (count < 0)
            return -EINVAL;
        if (length + (size_t)count >= RECORDING_WRITE_PATH)
            return -ENAMETOOLONG;
        memcpy(path + length, part, (size_t)count);
        length += (size_t)count;
    }
    path[length] = '\0';
    return length ? 0 : -EINVAL;
}

/* ---- the file ---- */

/* Returns true if the file is empty or an old recording. */
static bool may_be_emptied(int fd)
{
    char magic[sizeof(RECORDING_MAGIC)];
    const ssize_t got = pread(fd, magic, sizeof(magic), 0);

    return got == 0 || (got == (ssize_t)sizeof(magic) && !memcmp(magic, RECORDING_MAGIC, sizeof(magic)));
}

static int say(char why[RECORDING_WRITE_WHY], const char *path, const char *what)
{
    snprintf(why, RECORDING_WRITE_WHY, "%.160s %s", path, what);
    return -EPERM;
}

/* Opens the file and locks it against other recorders, until the last descriptor ends, also by SIGKILL. */
static int open_file(const char *path, char why[RECORDING_WRITE_WHY])
{
    struct stat kind;
    const int fd =
        open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, S_IRUSR | S_IWUSR);
    int rc = 0;

    if (fd < 0) {
        rc = -errno;
        snprintf(why, RECORDING_WRITE_WHY, "%.160s: %s", path, rc == -ELOOP ? "it is a link" : strerror(-rc));
        return rc;
    }
    if (fstat(fd, &kind) || !S_ISREG(kind.st_mode))
        rc = say(why, path, "is not a file");
    else if (flock(fd, LOCK_EX | LOCK_NB))
        rc = say(why, path, "is in use by another process: put %p into its name");
    else if (!may_be_emptied(fd))
        rc = say(why, path, "exists and is not a recording");
    else if (ftruncate(fd, 0))
        rc = say(why, path, "cannot be written");
    if (rc == 0)
        return fd;
    close(fd);
    return rc;
}

static size_t stored_most(void)
{
#if GPUCAP_HAVE_ZSTD
    return sizeof(struct recording_block) + ZSTD_compressBound(RECORDING_BLOCK_MAX);
#else
    return sizeof(struct recording_block) + RECORDING_BLOCK_MAX;
#endif
}

static size_t packer_bytes(void)
{
#if GPUCAP_HAVE_ZSTD
    return ZSTD_estimateCCtxSize(LEVEL);
#else
    return 0;
#endif
}

static bool map_buffers(struct recording_write *file)
{
    const size_t stored = (stored_most() + 63) & ~(size_t)63;

    file->mapped = RECORDING_BLOCK_MAX + stored + packer_bytes();
    file->plain = pages_map(file->mapped);
    if (!file->plain)
        return false;
    file->stored = file->plain + RECORDING_BLOCK_MAX;
#if GPUCAP_HAVE_ZSTD
    file->packer = ZSTD_initStaticCCtx(file->stored + stored, packer_bytes());
#endif
    return true;
}

/* Returns true if fd still refers to our file. */
static bool is_open(const struct recording_write *file)
{
    struct stat now;

    return file->fd >= 0 && fstat(file->fd, &now) == 0 && now.st_dev == file->device &&
           now.st_ino == file->inode;
}

/* Gives the file up. */
static void close_file(struct recording_write *file)
{
    if (is_open(file))
        close(file->fd);
    file->fd = -1;
}

/* Writes everything, or returns -errno. */
static int write_all(struct recording_write *file, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;

    if (!is_open(file))
        return -EBADF;
    for (size_t left = count; left;) {
        const ssize_t done = recording_write_system.write(file->fd, at, left);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? -errno : -ENOSPC;
        at += done;
        left -= (size_t)done;
    }
    file->whole += count;
    return 0;
}

int recording_write_open(struct recording_write *file, const char *path, const struct recording_head *head,
                         char why[RECORDING_WRITE_WHY])
{
    *file = (struct recording_write){.fd = -1};
    const int fd = open_file(path, why);
    if (fd < 0)
        return fd;
    struct withheld signals;
    struct stat kind;
    file->fd = fd;
    if (fstat(fd, &kind) == 0) {
        file->device = kind.st_dev;
        file->inode = kind.st_ino;
    }
    withhold_begin(&signals); /* later writes are those of a thread that has blocked them */
    int rc = map_buffers(file) ? write_all(file, head, sizeof(*head)) : -ENOMEM;
    withhold_end(&signals, -rc);
    if (rc) {
        snprintf(why, RECORDING_WRITE_WHY, "%.160s: %s", path, strerror(-rc));
        recording_write_close(file);
    }
    return rc;
}

/* ---- blocks ---- */

int recording_write_reserve(struct recording_write *file, size_t bytes)
{
    return file->used + bytes > BLOCK_BYTES ? recording_write_flush(file) : 0;
}

void recording_write_add(struct recording_write *file, const void *record, size_t bytes)
{
    if (file->used == 0)
        file->since_ns = recording_write_system.now();
    if (file->used + bytes > RECORDING_BLOCK_MAX)
        return;
    memcpy(file->plain + file->used, record, bytes);
    file->used += bytes;
}

/* Packs the records behind the place of the block's head. Returns the codec and *stored. */
static uint32_t pack(struct recording_write *file, size_t *stored)
{
    unsigned char *to = file->stored + sizeof(struct recording_block);

#if GPUCAP_HAVE_ZSTD
    if (file->packer) {
        *stored = ZSTD_compressCCtx(file->packer, to, stored_most() - sizeof(struct recording_block),
                                    file->plain, file->used, LEVEL);
        if (!ZSTD_isError(*stored))
            return RECORDING_ZSTD;
    }
#endif
    memcpy(to, file->plain, file->used);
    *stored = file->used;
    return RECORDING_PLAIN;
}

int recording_write_flush(struct recording_write *file)
{
    size_t stored;

    if (file->used == 0 || file->fd < 0)
        return 0;
    const uint32_t codec = pack(file, &stored);
    const struct recording_block head = {
        .magic = RECORDING_BLOCK,
        .codec = codec,
        .stored = (uint32_t)stored,
        .plain = (uint32_t)file->used,
        .checksum = recording_checksum(file->stored + sizeof(head), stored),
    };
    memcpy(file->stored, &head, sizeof(head));
    file->used = 0;
    const int rc = write_all(file, file->stored, sizeof(head) + stored);
    if (rc) {
        /* If the file cannot be cut either, a reader stops at the half block. */
        if (is_open(file))
            (void)!ftruncate(file->fd, (off_t)file->whole);
        close_file(file);
    }
    return rc;
}

void recording_write_close(struct recording_write *file)
{
    close_file(file);
    if (file->plain)
        munmap(file->plain, file->mapped);
    *file = (struct recording_write){.fd = -1};
}

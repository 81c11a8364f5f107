/* recording_write: the file of a recording: opens it, collects records, and writes them in whole blocks.
 *
 * Used by the recorder's thread alone. A block is one write, so that what was flushed survives the end of the
 * process, however it ends. Memory comes from mmap, not from the program's allocator. Owns no lock.
 */
#ifndef GPUCAP_RECORDING_WRITE_H
#define GPUCAP_RECORDING_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "interpose/see/recording.h"

#define RECORDING_WRITE_PATH 1024
#define RECORDING_WRITE_WHY  256

/* What a test replaces. */
struct recording_write_system {
    ssize_t (*write)(int fd, const void *bytes, size_t count);
    uint64_t (*now)(void); /* CLOCK_MONOTONIC, ns */
};
extern struct recording_write_system recording_write_system;

struct recording_write {
    int fd;       /* -1: none, or given up */
    dev_t device; /* of our file: the program may close fd, and the number may become another file's */
    ino_t inode;
    uint64_t whole;    /* bytes of the file up to the end of its last whole block */
    uint64_t since_ns; /* when the first record of `plain` was added */
    size_t used;       /* bytes in `plain` */
    unsigned char *plain, *stored;
    void *packer; /* zstd's context; NULL: blocks are not compressed */
    size_t mapped;
};

/* Writes the file name with %p (process), %h (host) and %% replaced. Returns 0, -EINVAL for another letter
 * after a %, or -ENAMETOOLONG. */
int recording_write_name(const char *name, char path[RECORDING_WRITE_PATH]);

/* Creates the file, or empties an old recording, and writes the head. Never follows a link, and never touches
 * a file that is not a recording or that another process is recording to. Returns 0, or -errno with a
 * sentence in `why`. */
int recording_write_open(struct recording_write *file, const char *path, const struct recording_head *head,
                         char why[RECORDING_WRITE_WHY]);

/* Makes sure that `bytes` more records fit into the block: writes it if not. Returns 0 or -errno. */
int recording_write_reserve(struct recording_write *file, size_t bytes);
/* Adds a record, of a multiple of 8 bytes; there must be room. */
void recording_write_add(struct recording_write *file, const void *record, size_t bytes);

/* Writes what was added. On an error the file is cut back to its last whole block, and nothing more is
 * written. Returns 0 or -errno. */
int recording_write_flush(struct recording_write *file);

void recording_write_close(struct recording_write *file);

#endif

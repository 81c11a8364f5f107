/* Reading files that may be anything: a pipe, a folder, a file that is cut while it is read. Nothing is
 * mapped: a file that shrinks under a mapping would kill the program. Any thread. */
#ifndef HARNESS_FILE_H
#define HARNESS_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Opens a regular file for reading: 0 and *fd, *bytes; or -1 and the reason. `dir` is a folder's descriptor
 * that name is relative to, or AT_FDCWD. */
int file_open(int dir, const char *name, int *fd, uint64_t *bytes, const char **reason);

/* Reads exactly bytes at offset: 0, or -1 and the reason. */
int file_read_at(int fd, uint8_t *into, size_t bytes, uint64_t offset, const char **reason);

#endif

/* Reads files that may be anything: a pipe, a folder, a file that is truncated meanwhile. Does not map
 * files: access beyond the new end of a truncated file would kill the program. Any thread. */
#ifndef HARNESS_FILE_H
#define HARNESS_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Opens a regular file for reading and sets *fd and *bytes. Returns 0, or -1 and sets *reason. */
int file_open(const char *path, int *fd, uint64_t *bytes, const char **reason);

/* Reads exactly `bytes` bytes at `offset`. Returns 0, or -1 and sets *reason. */
int file_read_at(int fd, uint8_t *into, size_t bytes, uint64_t offset, const char **reason);

#endif

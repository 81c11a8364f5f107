/* output: a file that a command writes whole or not at all. Owns no lock. */
#ifndef GPUCAP_OUTPUT_H
#define GPUCAP_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

/* NULL after a message. Without a path, or with "-": stdout. */
FILE *output_open(const char *command, const char *path);

/* Returns true after a message if the path names one of the files that the command reads: it would be lost.
 */
bool output_is_input(const char *command, const char *path, char *const *inputs, int count);

/* Ends what output_open() began. With `good` false, or when not all could be written, a file is removed. 0,
 * or CLI_FAILED after a message. */
int output_close(const char *command, const char *path, FILE *out, bool good);

#endif

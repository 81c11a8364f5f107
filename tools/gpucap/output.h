/* output: an output file that is either complete or removed. Owns no lock. */
#ifndef GPUCAP_OUTPUT_H
#define GPUCAP_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

/* Opens the file; without a path, or with "-", stdout. Returns NULL after a message. */
FILE *output_open(const char *command, const char *path);

/* Returns true after a message if the path is a recording, as the first one is in `-o run-*.gpucap`. */
bool output_is_recording(const char *command, const char *path);

/* Closes the file of output_open(). If `good` is false, or not all could be written, removes it. Returns 0,
 * or CLI_FAILED after a message. */
int output_close(const char *command, const char *path, FILE *out, bool good);

#endif

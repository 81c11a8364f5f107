/* summary: runs a program and prints the summary of `gpucap run --summary` when it has ended. Owns no lock.
 */
#ifndef GPUCAP_SUMMARY_H
#define GPUCAP_SUMMARY_H

#include <stdbool.h>

/* Starts a child and returns false in it: it becomes the program. In the parent, waits for its end, prints
 * one line per card about the job on stderr, and returns true with the exit status (128 + the number of the
 * signal that ended it). Meanwhile it passes signals on to the child, except those of the terminal, which
 * reach the child anyway. `driver`: the folder of simulated GPUs, or NULL. */
bool summary_watch(const char *job, const char *driver, int *status);

#endif

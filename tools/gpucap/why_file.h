/* why_file: explains the refusals of recordings, as `gpucap why` explains those of living processes. Owns no
 * lock. */
#ifndef GPUCAP_WHY_FILE_H
#define GPUCAP_WHY_FILE_H

#include <stdbool.h>

/* True if the word names a file, and is no number of a process. */
bool why_names_file(const char *word);

/* Explains the last refusal of each process of the recordings; the others are its neighbours. Returns an exit
 * status. */
int why_files(char **paths, int count);

#endif

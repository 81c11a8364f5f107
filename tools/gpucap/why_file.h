/* why_file: explains the refusals of recordings, as `gpucap why` explains those of living processes. Owns no
 * lock. */
#ifndef GPUCAP_WHY_FILE_H
#define GPUCAP_WHY_FILE_H

#include <stdbool.h>

/* Returns true if the word is a file and not a process id. */
bool why_names_file(const char *word);

/* Explains the last refusal of each process of the recordings; the other processes are its neighbours.
 * Returns an exit status. */
int why_files(char **paths, int count);

#endif

/* replay_fit: finds the smallest limit under which the program of a recording would have run, by replaying it
 * against the pool on simulated cards of different sizes, each in a process of its own. Owns no lock. */
#ifndef GPUCAP_REPLAY_FIT_H
#define GPUCAP_REPLAY_FIT_H

#include "tools/gpucap/timeline.h"

/* Writes the bytes that the pool needs for the blocks of the first device of the recording `path`, too high
 * by at most 1/REPLAY_FIT_PART. Returns 0, or -1 with the reason in `why`. */
#define REPLAY_FIT_PART 200
int replay_fit(const char *path, const struct timeline *timeline, uint64_t *bytes, char why[RECORDING_WHY]);

#endif

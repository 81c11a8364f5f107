/* recording_words: texts about a timeline. Pure: no state, no locks. */
#ifndef GPUCAP_RECORDING_WORDS_H
#define GPUCAP_RECORDING_WORDS_H

#include "tools/gpucap/timeline.h"

#define RECORDING_SENTENCE 512
#define RECORDING_TIME     24
#define RECORDING_NAMED    8 /* holders that are listed by name */

struct recording_holder {
    const char *name;
    uint64_t bytes;
};

/* Lists the holders of the memory after `steps` steps, largest first: live blocks by tag or by owner
 * (timeline_best_by), and "CUDA context", "idle in the pool", "idle in the driver's pools" and "not named" if
 * these are not 0. At most RECORDING_NAMED entries, then the rest as "others". Returns the number of entries.
 */
int recording_holders(const struct timeline *timeline, size_t steps,
                      struct recording_holder holders[RECORDING_NAMED + 1]);

/* Writes "Peak 7.9 of 8.0 GiB at 12.4 s: activations 4.6 GiB, optimizer state 1.4 GiB, ...". Returns text. */
const char *recording_sentence(const struct timeline *timeline, char text[RECORDING_SENTENCE]);

/* Writes a time or a duration: "12.4 s", "3.20 ms", "17 us", "2 m 05 s". Returns text. */
const char *recording_time(uint64_t ns, char text[RECORDING_TIME]);

/* Writes "7.91 GiB", "147 MiB": one more digit than words_size(), for sizes that are compared. Returns text.
 */
const char *recording_size(uint64_t bytes, char text[RECORDING_TIME]);

/* Writes "5.62 of 8.00 GiB"; without a limit (TIMELINE_NO) "5.62 GiB". Returns text. */
const char *recording_of(uint64_t bytes, uint64_t limit, char text[2 * RECORDING_TIME]);

/* Returns a round number of bytes, about `most` / `count`, for the labels of an axis. words_size() writes it
 * without rounding. */
uint64_t recording_step(uint64_t most, unsigned count);

/* Returns "job limit", "the card itself". */
const char *recording_limit_name(uint8_t limit);

#endif

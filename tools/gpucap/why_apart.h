/* why_apart: describes the idle memory at a refusal, why it did not form one block, and what to do about it,
 * for processes and recordings. Owns no lock. */
#ifndef GPUCAP_WHY_APART_H
#define GPUCAP_WHY_APART_H

#include "tools/gpucap/timeline.h"

#define WHY_APART_UNKNOWN UINT64_MAX

/* Reads the idle memory at a refusal of the recording, and into *others what the other processes of the job
 * had (WHY_APART_UNKNOWN: it is in no job, or no limit refused). Returns false if the recording lacks it,
 * because an older library wrote it. */
bool why_apart_read(const struct recording *recording, const struct recording_event *refusal,
                    uint64_t apart[RECORDING_APART_COUNT], uint64_t *others);

/* Prints it, in lines of at most 80 columns that begin with `label` and "kept apart". */
void why_apart_print(const char *label, const uint64_t apart[RECORDING_APART_COUNT]);

/* Writes the same as a part of a sentence: "263 MiB idled in 31 pieces, at most 60 MiB in one block: ...".
 * Empty if nothing idled. */
#define WHY_APART_SENTENCE 480
const char *why_apart_sentence(const uint64_t apart[RECORDING_APART_COUNT], char text[WHY_APART_SENTENCE]);

/* Prints one more command to try, under "Try:". `count` is the number of those before. */
__attribute__((format(printf, 2, 3))) void why_try(int *count, const char *format, ...);

/* The same for a command that sets a limit at which a request fits: "BEFORE=12GAFTER", in whole GiB from 4
 * GiB on, and below that in steps of 128 MiB. */
void why_try_limit(int *count, const char *before, uint64_t limit, const char *after);

/* The same for a full card: commands that show who holds it or, with `is_kept`, for which jobs the rest is
 * kept, and a command that waits for memory. `option`: as in struct ledgers. */
void why_try_card(int *count, bool is_kept, const char *option);

/* The same as why_try_limit() if the limits of the job and of the process are both too low. */
void why_try_limits(int *count, uint64_t max, uint64_t each);

/* Prints the commands that help if `missing` bytes were idle. `option`: as in struct ledgers. */
void why_apart_advise(int *count, const uint64_t apart[RECORDING_APART_COUNT], uint64_t missing,
                      const char *option);

/* Returns true if the memory between live blocks would have been enough: then a picture of the blocks helps.
 */
bool why_apart_is_between(const uint64_t apart[RECORDING_APART_COUNT], uint64_t missing);

/* Returns the word for a reason in tables: "work", "chunks". */
const char *why_apart_word(unsigned reason);

#endif

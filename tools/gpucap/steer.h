/* steer: changes limits and gives idle memory back, for `gpucap set`, `gpucap trim` and `gpucap top`. Reports
 * what it did on the given stream. Owns no lock. */
#ifndef GPUCAP_STEER_H
#define GPUCAP_STEER_H

#include "interpose/settings/rules.h"
#include "tools/gpucap/ledgers.h"

#include <stdio.h>

#define STEER_TRIM_MS 5000 /* measured: about 10 ms per GiB; the largest cards have less than 300 GiB */

struct steer_max {
    enum ledger_limit limit; /* which one is set */
    bool none;               /* no limit */
    struct size_value size;
    struct rules ceiling; /* the administrator's, which no limit may exceed */
};

/* Returns true if a limit is so small that most likely its unit is missing: 8 instead of 8G. Files and
 * variables may have such limits, with which nobody can use a card. */
#define STEER_LITTLE "less than 1M: a size needs its unit"
bool steer_lacks_unit(const struct size_value *size);

/* Reads "12G", "50%" or "none" for a limit, and the administrator's ceiling. Returns NULL, or the error in
 * the text. */
const char *steer_parse_max(const char *text, enum ledger_limit limit, struct steer_max *max);
/* Returns the administrator's ceiling for a card. */
uint64_t steer_ceiling(const struct ledgers_card *card, const struct steer_max *max);
/* Returns the limit's name: "max", "min" or "high". */
const char *steer_name(enum ledger_limit limit);

/* Sets the limit of the chosen processes' jobs, on each card where such a process is. Reads the ledgers
 * again. Returns 0, or CLI_UNDONE if anything was not done. Prints changes to `out`, and failures with their
 * reasons to `err`. */
int steer_set(struct ledgers *ledgers, const struct steer_max *max, FILE *out, FILE *err);

/* Makes the job `name`, which has no process yet, on every card, with this limit. Returns the same as
 * steer_set. */
int steer_make(struct ledgers *ledgers, const char *name, const struct steer_max *max, FILE *out, FILE *err);

/* Makes the chosen processes give idle memory back. Returns the same as steer_set. `brief`: prints only one
 * line. */
int steer_trim(struct ledgers *ledgers, bool brief, FILE *out);

#endif

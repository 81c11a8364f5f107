/* why_limits: which limits of a process a refused request has met, and by how much they are too low for it
 * now. Pure: figures of the ledger in, figures out. Owns no lock. */
#ifndef GPUCAP_WHY_LIMITS_H
#define GPUCAP_WHY_LIMITS_H

#include "tools/gpucap/ledgers.h"

#define WHY_LIMITS_RESERVE (UINT64_C(64) << 20) /* what the library leaves to the driver by default */

/* Returns what counted against the limit: all of the job, or of the process if the limit is its own. */
uint64_t why_limits_in_use(const struct ledger_refusal *refusal);
/* Returns true if what is free on the card was kept for other jobs. */
bool why_limits_is_kept(const struct ledger_refusal *refusal);
/* Returns true if the limit left enough: then the card was full, or memory came free too late. */
bool why_limits_left_enough(const struct ledger_refusal *refusal);
/* Returns the limit below which the request does not fit. */
uint64_t why_limits_needed(const struct ledger_refusal *refusal);
/* Returns the limit that refused, as it is now. */
uint64_t why_limits_now(const struct ledgers_process *process, const struct ledger_refusal *refusal);
/* A process of a job may have two limits: max, for all of them, and each, for it alone. Returns the one that
 * did not refuse, as it is now, or LEDGER_UNLIMITED if there is none. */
uint64_t why_limits_other(const struct ledgers_process *process, const struct ledger_refusal *refusal);

/* Returns true if `other` is another process of the job. */
bool why_limits_is_neighbour(const struct ledgers_process *process, const struct ledgers_process *other);
/* Returns what the job's other processes hold idle. */
uint64_t why_limits_idle_of_others(const struct ledgers_card *card, const struct ledgers_process *process);

/* By how much limits are too low for the request, as they are now. */
struct why_lacks {
    uint64_t refused, other; /* the limit that refused, and the other one */
    uint64_t idle;           /* the job's limit, if idle memory of its processes covers that */
};
struct why_lacks why_limits_find_lacks(const struct ledgers_card *card, const struct ledgers_process *process,
                                       const struct ledger_refusal *refusal);

/* What limits have to be; 0: they may stay as they are. */
struct why_needs {
    uint64_t max, each, most;
};
struct why_needs why_limits_find_needs(const struct why_lacks *lacks, const struct ledgers_process *process,
                                       const struct ledger_refusal *refusal);

#endif

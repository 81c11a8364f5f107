/* why_limits: computes which limits of a process refused a request, and by how much they are too low for it
 * now, from figures of the ledger. Pure. Owns no lock. */
#ifndef GPUCAP_WHY_LIMITS_H
#define GPUCAP_WHY_LIMITS_H

#include "tools/gpucap/ledgers.h"

/* Returns the bytes that counted against the limit: of the whole job, or of the process if the limit is its
 * own. */
uint64_t why_limits_in_use(const struct ledger_refusal *refusal);
/* Returns true if the free memory of the card was kept for other jobs. */
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
/* Returns the idle bytes of the job's other processes. */
uint64_t why_limits_idle_of_others(const struct ledgers_card *card, const struct ledgers_process *process);

/* By how much limits are too low for the request, as they are now. */
struct why_lacks {
    uint64_t refused, other; /* the limit that refused, and the other one */
    uint64_t idle;           /* the job's limit, if idle memory of its processes covers that */
};
struct why_lacks why_limits_find_lacks(const struct ledgers_card *card, const struct ledgers_process *process,
                                       const struct ledger_refusal *refusal);

/* The limits needed; 0: no change is needed. */
struct why_needs {
    uint64_t max, each, most;
};
struct why_needs why_limits_find_needs(const struct why_lacks *lacks, const struct ledgers_process *process,
                                       const struct ledger_refusal *refusal);

#endif

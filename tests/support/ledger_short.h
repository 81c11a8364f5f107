/* ledger_short: calls of the ledger with the usual arguments, for tests. */
#ifndef GPUCAP_LEDGER_SHORT_H
#define GPUCAP_LEDGER_SHORT_H

#include "interpose/account/ledger.h"

static inline int ledger_join(struct ledger *ledger, const char *job, uint64_t max)
{
    return ledger_join_within(ledger, job, &(struct ledger_limits){.max = max});
}

static inline int ledger_extend(struct ledger *ledger, uint64_t least)
{
    return ledger_extend_beside(ledger, least, 0);
}

static inline int ledger_set_max(struct ledger *ledger, const char *job, uint64_t max)
{
    return ledger_set_limit(ledger, job, LEDGER_MAX, max);
}

#endif

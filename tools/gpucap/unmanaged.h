/* unmanaged: the processes on the cards that do not run under gpucap, from NVML's lists. Owns no lock. */
#ifndef GPUCAP_UNMANAGED_H
#define GPUCAP_UNMANAGED_H

#include "tools/gpucap/ledgers.h"

/* Fills `unmanaged` of all cards, and adds the cards without a ledger that have such processes. Call it after
 * ledgers_look. Skips a card if NVML's list lacks the processes of its ledger: they are in another PID
 * namespace, where process ids mean other processes. */
void unmanaged_find(struct ledgers *ledgers);

#endif

/* unmanaged: the processes of the cards that do not run under gpucap, as NVML lists them. Owns no lock. */
#ifndef GPUCAP_UNMANAGED_H
#define GPUCAP_UNMANAGED_H

#include "tools/gpucap/ledgers.h"

/* Fills `unmanaged` of all cards, and adds the cards without a ledger on which such processes are. Call it
 * after ledgers_look. Leaves a card out whose list does not have the processes of its ledger: they are in
 * another PID namespace, where numbers mean other processes. */
void unmanaged_find(struct ledgers *ledgers);

#endif

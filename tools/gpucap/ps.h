/* ps: what the forms of `gpucap ps` share: table and JSON, which are parts of their own (parts.h), and
 * Prometheus' text. */
#ifndef GPUCAP_PS_H
#define GPUCAP_PS_H

#include "ledgers.h"

/* Writes Prometheus' text to stdout; returns an exit status. */
int ps_prometheus(struct ledgers *ledgers);

/* Writes who within a process holds its memory; the word is its id. Returns an exit status. */
int ps_owners(struct ledgers *ledgers, const char *word);

/* Writes what a process is doing, such as "waiting for 512 MiB, lent 0.8 GiB"; "" if nothing is to be said.
 */
#define PS_STATE 80
void ps_state(const struct ledger_entry *entry, char state[PS_STATE]);

/* Writes the line of figures of a card: "managed 21.4 GiB (idle 3.2 GiB), other programs ..., free ...". */
#define PS_FIGURES 128
void ps_figures(const struct ledgers_card *card, char figures[PS_FIGURES]);

#endif

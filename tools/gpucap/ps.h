/* ps: shared by the output formats of `gpucap ps`: table and JSON, which are parts (parts.h), and Prometheus'
 * text. */
#ifndef GPUCAP_PS_H
#define GPUCAP_PS_H

#include "tools/gpucap/ledgers.h"

/* Writes Prometheus' text to stdout. Returns an exit status. */
int ps_prometheus(struct ledgers *ledgers);

/* Writes the owners of the memory of the process with the id `word`, with `exact` to the byte. Returns an
 * exit status. */
int ps_owners(struct ledgers *ledgers, const char *word, bool exact);

/* One line of a process's answer. */
struct ps_owner {
    int device;
    uint64_t bytes, blocks;
    char kind[16], owner[64], tag[32]; /* free of control characters */
};
/* Parses the answer, largest first on each device, and skips other lines. Returns the number of rows, at most
 * `room`. */
size_t ps_owners_read(const char *answer, struct ps_owner *rows, size_t room);

/* Writes the state of a process, such as "waiting for 512 MiB, lent 0.8 GiB"; "" if there is none to report.
 */
#define PS_STATE 80
void ps_state(const struct ledger_entry *entry, char state[PS_STATE]);

/* Writes the line of figures of a card: "managed 21.4 GiB (idle 3.2 GiB), other programs ..., free ...". */
#define PS_FIGURES 128
void ps_figures(const struct ledgers_card *card, char figures[PS_FIGURES]);

/* Returns the bytes that other jobs leave free for the job of this process now. */
uint64_t ps_kept(const struct ledgers_card *card, const struct ledger_entry *entry);

/* Returns the bytes that are left free now for jobs other than that of this process. */
uint64_t ps_kept_for_others(const struct ledgers_card *card, const struct ledger_entry *entry);

/* Writes min and high of the job of a card's process, such as "train-a: min 4.0 GiB (1.2 GiB kept free), high
 * 6.0 GiB", or of the process itself if it has no job; also max if processes have limits of their own.
 * Returns false, with "", if there is nothing to write or the process before is of the same job. */
#define PS_BOUNDS 192
bool ps_bounds(const struct ledgers_card *card, int row, char bounds[PS_BOUNDS]);

#endif

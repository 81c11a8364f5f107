/* look: how a command opens the ledgers: the setting `ledger`, the options --ledger and --sim, and what to
 * say of a process that is not there. Owns no lock. */
#ifndef GPUCAP_LOOK_H
#define GPUCAP_LOOK_H

#include "tools/gpucap/arguments.h"
#include "tools/gpucap/ledgers.h"

/* Opens the ledgers by the command's options and looks at them. Complains about ledgers that cannot be read.
 * 0, or an exit status after a message. The caller closes. */
int look_open(struct ledgers *ledgers, const struct arguments *arguments);

/* Writes the folder of the ledgers: `given` (--ledger) if it is not NULL, else as the library finds it. 0, or
 * an exit status after a message: the setting is not valid, or off. */
int look_folder(const char *command, const char *given, char folder[LEDGER_PATH]);

/* Says that no process or job of this name is there; returns CLI_UNDONE. */
int look_absent(const char *command, const struct ledgers *ledgers, const char *word);

#endif

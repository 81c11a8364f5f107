/* look: opens the ledgers for a command, by the setting `ledger` and the options --ledger and --sim, and
 * reports processes that do not exist. Owns no lock. */
#ifndef GPUCAP_LOOK_H
#define GPUCAP_LOOK_H

#include "tools/gpucap/arguments.h"
#include "tools/gpucap/ledgers.h"

/* Opens the ledgers by the command's options and reads them. Prints which ledgers cannot be read. Returns 0,
 * or an exit status after a message. The caller closes them. */
int look_open(struct ledgers *ledgers, const struct arguments *arguments);

/* Writes the folder of the ledgers: `given` (--ledger) if it is not NULL, else as the library finds it.
 * Returns 0, or an exit status after a message if the setting is invalid or off. */
int look_folder(const char *command, const char *given, char folder[LEDGER_PATH]);

/* Prints that there is no process or job of this name. Returns CLI_UNDONE. */
int look_absent(const char *command, const struct ledgers *ledgers, const char *word);

#endif

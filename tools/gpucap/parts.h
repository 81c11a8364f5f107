/* parts: the pieces of the command that need a library which not every machine has: the table of `gpucap ps`
 * (libsmartcols), its JSON (cJSON), and `gpucap top` (ncurses). Each is a shared object beside the
 * executable, loaded only when it is asked for, so that `gpucap run` starts everywhere. Owns no lock.
 *
 * A part exports one function, `part_show`, and uses the functions of the executable that parts.list names.
 */
#ifndef GPUCAP_PARTS_H
#define GPUCAP_PARTS_H

#include "tools/gpucap/ledgers.h"

enum parts_part { PARTS_TABLE, PARTS_JSON, PARTS_TOP };

/* Shows the ledgers in the part's own way; returns an exit status. */
typedef int (*parts_show)(struct ledgers *ledgers);
__attribute__((visibility("default"))) int part_show(struct ledgers *ledgers);

/* Loads a part for a command. NULL after a message that says what is missing. */
parts_show parts_load(enum parts_part part, const char *command);

#endif

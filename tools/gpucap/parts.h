/* parts: the parts of the command that need libraries which some machines lack: the table of `gpucap ps`
 * (libsmartcols), its JSON (cJSON), and `gpucap top` (ncurses). Each is a shared object beside the
 * executable, loaded only when it is needed, so that `gpucap run` starts everywhere. Owns no lock.
 *
 * A part exports one function, `part_show`, and may call the functions of the executable that parts.list
 * names. */
#ifndef GPUCAP_PARTS_H
#define GPUCAP_PARTS_H

#include "tools/gpucap/ledgers.h"

enum parts_part { PARTS_TABLE, PARTS_JSON, PARTS_TOP };

/* Shows the ledgers in the part's format. Returns an exit status. */
typedef int (*parts_show)(struct ledgers *ledgers);
__attribute__((visibility("default"))) int part_show(struct ledgers *ledgers);

/* Loads a part for a command. Returns NULL after a message that names the missing library. */
parts_show parts_load(enum parts_part part, const char *command);

#endif

/* removed: finds processes whose ledger was removed while they ran. They and programs that start later do not
 * share a ledger, so a job of both has its budget twice. Finds them by their open files; only root can see
 * those of other users' processes. Owns no lock. */
#ifndef GPUCAP_REMOVED_H
#define GPUCAP_REMOVED_H

#include <sys/types.h>

/* Calls visit(pid, argument) once for each process that uses a removed ledger of the folder. Returns their
 * number. */
int removed_each(const char *folder, void (*visit)(pid_t pid, void *argument), void *argument);

/* Lists them on stderr, for a command that shows ledgers. */
void removed_complain(const char *command, const char *folder);

#endif

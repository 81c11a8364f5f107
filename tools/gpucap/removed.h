/* removed: processes whose ledger was removed while they ran. They and programs that start later do not see
 * each other, so a job of both has its budget twice. Finds them by the files that they hold open; of other
 * users' processes only root learns. Owns no lock.
 */
#ifndef GPUCAP_REMOVED_H
#define GPUCAP_REMOVED_H

#include <sys/types.h>

/* Calls visit(pid, argument) once for each process that uses a removed ledger of the folder. Returns how
 * many there are. */
int removed_each(const char *folder, void (*visit)(pid_t pid, void *argument), void *argument);

/* Says on stderr which they are, for a command that shows ledgers. */
void removed_complain(const char *command, const char *folder);

#endif

/* who: the user and the command line of a process, as far as the caller may see them. Reads /proc and the
 * password file. Owns no lock.
 */
#ifndef GPUCAP_WHO_H
#define GPUCAP_WHO_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Writes the user's name, or the number if it has no name. */
void who_user(uid_t uid, char *name, size_t size);

/* Writes the part of a command line that the caller may see: all of it for the caller's own processes or if
 * /proc shows it, else only the short name of the program. `recorded` is the beginning of the command line
 * that the process itself noted at its start. */
void who_command(pid_t pid, uid_t uid, const char *recorded, char *command, size_t size);

/* Writes user and command line of a process from /proc; "-" if /proc does not have them. */
void who_process(pid_t pid, char *user, size_t user_size, char *command, size_t command_size);

/* Returns true if, by /proc, the process `pid` belongs to `uid` and has a ledger of the card mapped. A ledger
 * may contain ids of another PID namespace, or false ones: call this before sending a signal. */
bool who_has_ledger(pid_t pid, uid_t uid, const char *uuid);

#endif

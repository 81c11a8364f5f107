/* who: the user and the command line of a process, as far as the caller may see them. Reads /proc and the
 * password file. Owns no lock.
 */
#ifndef GPUCAP_WHO_H
#define GPUCAP_WHO_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Writes the user's name, or the number where it has none. */
void who_user(uid_t uid, char *name, size_t size);

/* Writes what the caller may see of a command line: all of it for a process of the caller or where /proc
 * shows it, else only the short name of the program. `recorded` is the beginning of the command line as the
 * process itself wrote it down when it started. */
void who_command(pid_t pid, uid_t uid, const char *recorded, char *command, size_t size);

/* Writes user and command line of a process as /proc has them; "-" for what it does not. */
void who_process(pid_t pid, char *user, size_t user_size, char *command, size_t command_size);

/* True if the process `pid` as /proc knows it belongs to `uid`. A ledger may hold numbers of another PID
 * namespace, or false ones: ask before a signal is sent. */
bool who_owns(pid_t pid, uid_t uid);

#endif

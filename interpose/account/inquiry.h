/* inquiry: a request in words to a process of the ledger, and its answer: two small files beside the ledger,
 * ask.PID and answer.PID. The asker wakes the process by ledger_poke with 0 bytes.
 *
 * A request counts only if its file belongs to the user of the process, who could do the same with a
 * debugger. Files are read and written whole, links are not followed. Owns no lock.
 */
#ifndef GPUCAP_INQUIRY_H
#define GPUCAP_INQUIRY_H

#include <stdbool.h>
#include <sys/types.h>

#define INQUIRY_QUESTION 2048  /* bytes, terminated */
#define INQUIRY_ANSWER   65536 /* bytes, terminated */

/* ---- the asker ---- */

/* Leaves a request for the process of `uid`. Returns 0 or -errno. */
int inquiry_ask(const char *folder, pid_t pid, uid_t uid, const char *text);
/* Takes the answer, and removes both files. Returns its length, or -errno: -ENOENT if there is none. */
ssize_t inquiry_hear(const char *folder, pid_t pid, uid_t uid, char answer[INQUIRY_ANSWER]);

/* ---- the process ---- */

/* Takes the request to this process. Returns false if there is none; usually one system call. */
bool inquiry_take(const char *folder, char text[INQUIRY_QUESTION]);
/* Leaves the answer. Returns 0 or -errno. */
int inquiry_answer(const char *folder, const char *text);

#endif

/* ask: puts a request in words to a running process (interpose/account/inquiry.h). Owns no lock. */
#ifndef GPUCAP_ASK_H
#define GPUCAP_ASK_H

#include "interpose/account/inquiry.h"
#include "tools/gpucap/ledgers.h"

#define ASK_MS 5000 /* for an answer */

/* Asks the process that the word (a process id) means. 0 with its answer, or an exit status after a message
 * on stderr: the word means no process, the process is another user's, or it answers "error: ...". */
int ask_process(struct ledgers *ledgers, const char *command, const char *word, const char *request,
                char answer[INQUIRY_ANSWER]);

#endif

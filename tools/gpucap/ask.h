/* ask: sends a text request to a running process (interpose/account/inquiry.h). Owns no lock. */
#ifndef GPUCAP_ASK_H
#define GPUCAP_ASK_H

#include "interpose/account/inquiry.h"
#include "tools/gpucap/ledgers.h"

#define ASK_MS 5000 /* for an answer */

/* Asks the process with the id `word`. Returns 0 and its answer, or an exit status after a message on stderr:
 * there is no such process, it is another user's, or it answered "error: ...". */
int ask_process(struct ledgers *ledgers, const char *command, const char *word, const char *request,
                char answer[INQUIRY_ANSWER]);

#endif

/* ledgers: all ledgers of a folder as the commands show and change them: one card per ledger, and the living
 * processes of each. Makes no ledger and takes no part in one. Owns no lock; use it from one thread.
 */
#ifndef GPUCAP_LEDGERS_H
#define GPUCAP_LEDGERS_H

#include "tools/gpucap/cards.h"
#include "interpose/account/ledger.h"

#include <stdbool.h>
#include <stdint.h>

#define LEDGERS_CARDS    64
#define LEDGERS_USER     33
#define LEDGERS_COMMAND  256
#define LEDGERS_FRESH_MS 50 /* how long a look waits for processes to publish their figures */

struct ledgers_process {
    struct ledger_entry entry;
    int slot;
    bool chosen; /* by ledgers_choose */
    bool asked;  /* by the last ledgers_poke, with this question */
    uint32_t question;
    bool answered;
    char user[LEDGERS_USER];
    char command[LEDGERS_COMMAND]; /* as far as the caller may see it */
};

/* A process that does not run under gpucap. */
struct ledgers_unmanaged {
    pid_t pid;
    uint64_t used; /* LEDGER_UNLIMITED: not known */
    char user[LEDGERS_USER];
    char command[LEDGERS_COMMAND]; /* "" if it is not known */
};

struct ledgers_card {
    char uuid[LEDGER_UUID];
    struct ledger *ledger; /* NULL: it cannot be opened, and `why` says why */
    char why[LEDGER_WHY];
    struct cards_facts facts;
    uint64_t managed, idle; /* sums over the processes */
    int count;
    struct ledgers_process *processes;   /* sorted by job, then by process id */
    bool bare;                           /* there is no ledger, and none was looked for (unmanaged.h) */
    int unmanaged_count;                 /* 0 until unmanaged_find() */
    struct ledgers_unmanaged *unmanaged; /* most memory first */
};

struct ledgers {
    char folder[LEDGER_PATH];
    struct cards *nvml; /* NULL: none */
    int count;
    struct ledgers_card *cards; /* sorted by number, then by UUID */
};

/* Opens every ledger of the folder and NVML (from the folder `driver`; NULL: the
 * system's). No folder means no ledgers. 0, or CLI_FAILED after a message. */
int ledgers_open(struct ledgers *ledgers, const char *command, const char *folder, const char *driver);
void ledgers_close(struct ledgers *ledgers);

/* Opens ledgers that are new, asks all processes to publish their figures, and reads everything. */
void ledgers_look(struct ledgers *ledgers);

/* Adds a card behind the last, without a ledger; NULL if there is no room. ledgers_drop_card() removes the
 * last one again. */
struct ledgers_card *ledgers_add_card(struct ledgers *ledgers, const char *uuid);
void ledgers_drop_card(struct ledgers *ledgers);

/* Reads what NVML says of the cards that were added, and sorts them in. */
void ledgers_read_facts(struct ledgers *ledgers);

/* Reads everything again, without asking. Keeps no choice. */
void ledgers_read(struct ledgers *ledgers);

/* Asks the chosen processes, or all, to give back `bytes` of idle memory; waits for at most timeout_ms. */
void ledgers_poke(struct ledgers *ledgers, bool all, uint64_t bytes, unsigned timeout_ms);

/* Chooses the processes that a word means: "all", a process id, else the name of a job. Returns how many. */
int ledgers_choose(struct ledgers *ledgers, const char *word);

/* Chooses all processes of the job of the first chosen one, on every card. Without a job nothing changes. */
void ledgers_choose_job(struct ledgers *ledgers);

/* True if the caller may change the process: it is theirs, or they are root. */
bool ledgers_may_change(const struct ledgers_process *process);

/* The limit that holds for a process: its own or its job's, whichever is less. */
uint64_t ledgers_limit(const struct ledgers_process *process);

/* True if its own is less (--each, or the administrator's). */
bool ledgers_has_own_limit(const struct ledgers_process *process);

/* The bytes of a card that neither are free nor belong to managed processes. False if that is not known. */
bool ledgers_other(const struct ledgers_card *card, uint64_t *bytes);

/* "GPU 0", or the beginning of the UUID where the number is not known. In a buffer that the next call but one
 * overwrites. */
const char *ledgers_card_name(const struct ledgers_card *card);

/* Says on stderr which ledgers could not be opened. Returns how many. */
int ledgers_complain(const struct ledgers *ledgers, const char *command);

#endif

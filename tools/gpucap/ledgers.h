/* ledgers: reads and changes all ledgers of a folder for the commands: one card per ledger, and the living
 * processes of each. Creates and joins no ledger. Owns no lock; use it from one thread. */
#ifndef GPUCAP_LEDGERS_H
#define GPUCAP_LEDGERS_H

#include "tools/gpucap/cards.h"
#include "interpose/account/ledger.h"

#include <stdbool.h>
#include <stdint.h>

#define LEDGERS_CARDS    64
#define LEDGERS_USER     33
#define LEDGERS_COMMAND  256
#define LEDGERS_FRESH_MS 50 /* how long ledgers_look waits for processes to publish their figures */

struct ledgers_process {
    struct ledger_entry entry;
    int slot;
    bool chosen; /* by ledgers_choose */
    bool asked;  /* by the last ledgers_poke, with this question */
    uint32_t question;
    bool answered;
    uint64_t given;    /* to the last steer_trim */
    uint64_t job_peak; /* of its job; its processes' own need not add up to it */
    char user[LEDGERS_USER];
    char command[LEDGERS_COMMAND]; /* as far as the caller may see it */
};

/* A process that does not run under gpucap. */
struct ledgers_unmanaged {
    pid_t pid;
    uint64_t used; /* LEDGER_UNLIMITED: unknown */
    char user[LEDGERS_USER];
    char command[LEDGERS_COMMAND]; /* "" if unknown */
};

struct ledgers_card {
    char uuid[LEDGER_UUID];
    struct ledger *ledger; /* NULL: it cannot be opened; `why` has the reason */
    char why[LEDGER_WHY];
    struct cards_facts facts;
    uint64_t managed, idle; /* sums over the processes */
    int count;
    struct ledgers_process *processes;   /* sorted by job, then by process id */
    bool bare;                           /* a card without a ledger (unmanaged.h) */
    int unmanaged_count;                 /* 0 until unmanaged_find() */
    struct ledgers_unmanaged *unmanaged; /* most memory first */
};

struct ledgers {
    char folder[LEDGER_PATH];
    char option[LEDGER_PATH + 64]; /* " --ledger=DIR" if it was given, for commands to copy; or "" */
    struct cards *nvml;            /* NULL: none */
    int count;
    bool left_out;              /* there was no room for a ledger */
    struct ledgers_card *cards; /* sorted by number, then by UUID */
};

/* Opens every ledger of the folder, and NVML (from the folder `driver`; NULL: the system's). If the folder
 * does not exist, there are no ledgers. Returns 0, or CLI_FAILED after a message. */
int ledgers_open(struct ledgers *ledgers, const char *command, const char *folder, const char *driver);
void ledgers_close(struct ledgers *ledgers);

/* Opens new ledgers, asks all processes to publish their figures, and reads everything. */
void ledgers_look(struct ledgers *ledgers);

/* Adds a card without a ledger after the last one. Returns NULL if there is no room. ledgers_drop_card()
 * removes the last one again. */
struct ledgers_card *ledgers_add_card(struct ledgers *ledgers, const char *uuid);
void ledgers_drop_card(struct ledgers *ledgers);

/* Reads NVML's facts about the added cards, and sorts these in. */
void ledgers_read_facts(struct ledgers *ledgers);

/* Reads everything again, without asking the processes. The choice of processes is lost. */
void ledgers_read(struct ledgers *ledgers);

/* Asks the chosen processes, or all, to give back `bytes` of idle memory. Waits at most timeout_ms. */
void ledgers_poke(struct ledgers *ledgers, bool all, uint64_t bytes, unsigned timeout_ms);

/* Chooses the processes named by a word: "all", a process id, else the name of a job. Returns their number.
 */
int ledgers_choose(struct ledgers *ledgers, const char *word);

/* Chooses all processes of the job of the first chosen one, on every card. Without a job nothing changes. */
void ledgers_choose_job(struct ledgers *ledgers);

/* Returns true if the caller may change the process: as its owner or as root. */
bool ledgers_may_change(const struct ledgers_process *process);

/* Returns the limit of a process: its own or its job's, whichever is less. */
uint64_t ledgers_limit(const struct ledgers_process *process);

/* Returns true if its own is less (--each, or the administrator's). */
bool ledgers_has_own_limit(const struct ledgers_process *process);

/* Sets the bytes of a card that are neither free nor used by managed processes. Returns false if that is
 * unknown. */
bool ledgers_other(const struct ledgers_card *card, uint64_t *bytes);

/* Returns "GPU 0", or the beginning of the UUID if the number is unknown, in a buffer that the next call but
 * one overwrites. */
const char *ledgers_card_name(const struct ledgers_card *card);

/* Prints on stderr which ledgers could not be opened, and if there are more than can be read. */
void ledgers_complain(const struct ledgers *ledgers, const char *command);

#endif

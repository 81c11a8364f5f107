/* ledger_file: the layout of a ledger's file, and what the parts of ledger.h share. Not for other modules.
 *
 * A change of the layout is a change of LEDGER_VERSION (tests/unit/interpose/interpose_ledger.c freezes it).
 */
#ifndef GPUCAP_LEDGER_FILE_H
#define GPUCAP_LEDGER_FILE_H

#include <pthread.h>
#include <stdatomic.h>

#include "interpose/account/ledger.h"

#define LEDGER_MAGIC   UINT64_C(0x72656764656c6367) /* "gcledger", little-endian */
#define LEDGER_VERSION 1

/* Bytes of the file on which the kernel's locks stand; beyond its end, so that nobody reads or writes them.
 */
#define LEDGER_SETUP_BYTE (INT64_C(1) << 40)
#define LEDGER_SLOT_BYTE  (LEDGER_SETUP_BYTE + 1)

enum { LEDGER_FREE, LEDGER_MEMBER, LEDGER_VISITOR /* has a slot only to take the lock */ };

struct ledger_slot {
    _Atomic uint32_t state;
    _Atomic uint32_t job; /* number + 1; 0: none */
    int32_t pid;
    uint32_t uid;
    _Atomic uint64_t lease; /* changed under the lock word, by the owner */
    _Atomic uint64_t used, cached, limit, peak;
    _Atomic uint64_t refused, lent, borrowed, waited_ms;
    uint64_t started;
    /* questions of other processes */
    _Atomic uint32_t wanted;   /* counts questions; the owner sleeps on it */
    _Atomic uint32_t answered; /* the last question that was answered */
    _Atomic uint64_t wanted_bytes;
    /* in the queue */
    _Atomic uint64_t ticket; /* 0: not waiting */
    _Atomic uint64_t waits_for;
    char command[LEDGER_COMMAND];
    struct ledger_refusal refusals[LEDGER_REFUSALS];
};

struct ledger_job {
    char name[LEDGER_NAME]; /* empty: unused */
    _Atomic uint64_t max;
    _Atomic uint64_t sum;     /* of the leases of its processes */
    _Atomic uint64_t given;   /* bytes that leases have been lowered by, ever */
    uint64_t tickets;         /* the last one that was handed out */
    _Atomic uint64_t waiting; /* processes in the queue; changed under the lock word */
};

struct ledger_head {
    uint64_t magic;
    uint32_t version, bytes;
    char uuid[LEDGER_UUID];
};

struct ledger_file {
    struct ledger_head head;
    _Atomic uint32_t lock;    /* the owner's slot + 1; 0: free */
    _Atomic uint32_t waiters; /* for the lock, about */
    _Atomic uint32_t freed;   /* counts lowered leases; those who wait for memory sleep on it */
    _Atomic uint32_t answers; /* counts answers; those who ask sleep on it */
    _Atomic uint32_t
        sizing; /* the slot + 1 of a process that makes a context to see what one takes; 0: none */
    uint32_t unused;
    _Atomic uint64_t context_bytes; /* what a context takes on this card; 0: not known yet */
    struct ledger_job jobs[LEDGER_JOBS];
    struct ledger_slot slots[LEDGER_SLOTS];
};

struct ledger {
    struct ledger_file *file;
    int fd;
    dev_t device; /* of the file behind fd: a program may close fd and get its number for a file of its own */
    ino_t inode;
    char folder[LEDGER_PATH];
    int slot;               /* -1: none */
    struct ledger_job *job; /* NULL: none */
    uint32_t state;         /* LEDGER_MEMBER or LEDGER_VISITOR */
    pthread_mutex_t mutex;  /* among the threads of this process; guards the two below */
    uint64_t lease;         /* as in the slot, which others can write */
    bool dirty;             /* the lock word was taken over: sums must be recomputed */
    uint32_t hearing;       /* the question that the listening thread works on */
    void (*notice)(void *argument, uint64_t bytes); /* of a long wait; NULL: none */
    void *notice_argument;
    atomic_bool stopped; /* ledger_wake */
};

/* Takes the lock word: 0, or -ETIMEDOUT. The ledger has a slot. */
int ledger_lock(struct ledger *ledger);
void ledger_unlock(struct ledger *ledger);

/* With the lock: frees the slots of the dead and recomputes the sums. */
void ledger_recount(struct ledger *ledger);
/* With the lock: raises the lease to `least`, and by up to a part of the room beyond, if `spare` bytes of the
 * job's max stay with nobody. 0 or -ENOMEM. */
int ledger_raise(struct ledger *ledger, uint64_t least, uint64_t spare);

/* True if fd is still the ledger's. */
bool ledger_is_open(const struct ledger *ledger);
/* Opens the file again after the program has closed it. 0 or -errno. */
int ledger_reopen(struct ledger *ledger);

/* True if a process has the slot. */
bool ledger_alive(const struct ledger *ledger, int slot);
/* Takes a free slot. 0 or -ENOSPC. */
int ledger_claim(struct ledger *ledger, uint32_t state);
/* With the lock: finds the job, or makes it. NULL if there is no room for it. */
struct ledger_job *ledger_find_job(struct ledger *ledger, const char *name, uint64_t max, bool make);
/* The job of a slot, or NULL. */
struct ledger_job *ledger_job_of(const struct ledger *ledger, const struct ledger_slot *slot);

/* The word changed, or timeout_ms have passed, or nothing has happened at all. */
void ledger_sleep(const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ms);
void ledger_rouse(_Atomic uint32_t *word);

#endif

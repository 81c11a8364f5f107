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

/* The count in the lock word makes every hold of the lock differ from all before. Otherwise a process that
 * has seen a dead owner could take the lock from a new process that has the dead one's slot by now. */
#define LEDGER_OWNER_BITS 10
#define LEDGER_OWNER_MASK ((UINT32_C(1) << LEDGER_OWNER_BITS) - 1)
_Static_assert(LEDGER_SLOTS < LEDGER_OWNER_MASK, "a slot's number fits into the lock word");

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
    _Atomic uint32_t lock;    /* LEDGER_OWNER_BITS: the owner's slot + 1, or 0; above: counts owners */
    _Atomic uint32_t waiters; /* 1: a process may be sleeping on the lock */
    _Atomic uint32_t freed;   /* bit 0: a process may be sleeping on it; above: counts lowered leases */
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
    atomic_int fd; /* for questions to the kernel; the lock on the slot holds as long as the mapping stands */
    dev_t device; /* of the file behind fd: a program may close fd and get its number for a file of its own */
    ino_t inode;
    char folder[LEDGER_PATH];
    char uuid[LEDGER_UUID];
    int slot;               /* -1: none */
    struct ledger_job *job; /* NULL: none */
    uint32_t state;         /* LEDGER_MEMBER or LEDGER_VISITOR */
    pthread_mutex_t queue;  /* held by the thread that waits for memory: a slot has one place in the queue */
    pthread_mutex_t mutex;  /* among the threads of this process, after `queue`; guards the three below */
    uint64_t lease;         /* as in the slot, which others can write */
    uint32_t word;          /* the lock word while it is ours */
    bool dirty;             /* the lock word was taken over: sums must be recomputed */
    uint32_t hearing;       /* the question that the listening thread works on */
    void (*notice)(void *argument, uint64_t bytes); /* of a long wait; NULL: none */
    void *notice_argument;
    /* Of each slot: 0, or 1 << 32 and its `answered` when this process last waited for an answer in vain. */
    _Atomic uint64_t in_vain[LEDGER_SLOTS];
    atomic_bool stopped; /* ledger_wake */
};

/* Takes the mutex and the lock word: 0, or -ETIMEDOUT with neither. The ledger has a slot. */
int ledger_lock(struct ledger *ledger);
void ledger_unlock(struct ledger *ledger);

/* With the lock: frees the slots of the dead and recomputes the sums. */
void ledger_recount(struct ledger *ledger);
/* With the lock: raises the lease to `least`, and by up to a part of the room beyond, if `spare` bytes of the
 * job's max stay with nobody. 0 or -ENOMEM. */
int ledger_raise(struct ledger *ledger, uint64_t least, uint64_t spare);

/* True if fd is still the ledger's. */
bool ledger_is_open(const struct ledger *ledger);
/* With the mutex: opens the file again if the program has closed it. Without success all slots count as alive
 * that hold anything. */
void ledger_mend(struct ledger *ledger);

/* This process's slot, or NULL. */
struct ledger_slot *ledger_own_slot(const struct ledger *ledger);
/* True if a process has the slot, or if the kernel cannot say. */
bool ledger_alive(const struct ledger *ledger, int slot);
/* Takes a free slot, or empties the one that this ledger has. 0, -ENOSPC, -ETIMEDOUT, or -EBADF if the
 * program has closed the file. */
int ledger_claim(struct ledger *ledger, uint32_t state);
/* A job's name has 1 to LEDGER_NAME - 1 characters. */
bool ledger_is_job_name(const char *name);
/* With the lock: finds the job, or makes it. NULL if there is no room for it. */
struct ledger_job *ledger_find_job(struct ledger *ledger, const char *name, uint64_t max, bool make);
/* The job of a slot, or NULL. */
struct ledger_job *ledger_job_of(const struct ledger *ledger, const struct ledger_slot *slot);

/* The word changed, or timeout_ms have passed, or nothing has happened at all. */
void ledger_sleep(const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ms);
/* Those who wait for memory sleep on the file's `freed`; to tell them costs a call of the kernel only if
 * there are any. `value` is what was read there under the lock: sleeps only if no lease was lowered since. */
void ledger_tell_freed(struct ledger *ledger);
void ledger_await_freed(struct ledger *ledger, uint32_t value, uint64_t timeout_ms);

/* Adds one to the word and wakes all that sleep on it. Returns its new value. */
uint32_t ledger_rouse(_Atomic uint32_t *word);

#endif

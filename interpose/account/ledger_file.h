/* ledger_file: the layout of a ledger's file, and what the sources of ledger.h share. Not for other modules.
 *
 * A change of the layout needs a new LEDGER_VERSION (tests/unit/interpose/interpose_ledger.c freezes it).
 */
#ifndef GPUCAP_LEDGER_FILE_H
#define GPUCAP_LEDGER_FILE_H

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "interpose/account/ledger.h"

#define LEDGER_MAGIC   UINT64_C(0x72656764656c6367) /* "gcledger", little-endian */
#define LEDGER_VERSION 7

/* Bytes of the file that carry the kernel's locks; beyond its end, so never read or written. */
#define LEDGER_SETUP_BYTE (INT64_C(1) << 40)
#define LEDGER_SLOT_BYTE  (LEDGER_SETUP_BYTE + 1)           /* the slot's process lives */
#define LEDGER_CLAIM_BYTE (LEDGER_SLOT_BYTE + LEDGER_SLOTS) /* the slot is changing hands */

/* The count in the lock word makes each hold of the lock unique. Without it a process that has seen a dead
 * owner could take the lock from a living process that got the dead one's slot since. */
#define LEDGER_OWNER_BITS 10
#define LEDGER_OWNER_MASK ((UINT32_C(1) << LEDGER_OWNER_BITS) - 1)
_Static_assert(LEDGER_SLOTS < LEDGER_OWNER_MASK, "a slot's number fits into the lock word");

/* Bytes and their asker are one word, so that they always belong together. */
#define LEDGER_ASKER_SHIFT (64 - LEDGER_OWNER_BITS)
#define LEDGER_WANTED_ALL  ((UINT64_C(1) << LEDGER_ASKER_SHIFT) - 1) /* stands for all larger numbers too */

enum { LEDGER_FREE, LEDGER_MEMBER, LEDGER_VISITOR /* a tool, with a slot only to take the lock */ };

struct ledger_slot {
    _Atomic uint32_t state;
    _Atomic uint32_t job; /* number + 1; 0: none */
    _Atomic int32_t pid;
    uint32_t uid;
    _Atomic uint64_t lease; /* changed under the lock word, by the owner */
    _Atomic uint64_t used, cached, limit, peak;
    _Atomic uint64_t refused, lent, borrowed, waited_ms;
    uint64_t started;
    /* questions of other processes */
    _Atomic uint32_t wanted;       /* counts questions; the owner sleeps on it */
    _Atomic uint32_t answered;     /* number of the last question answered */
    _Atomic uint64_t wanted_bytes; /* LEDGER_ASKER_SHIFT: the most bytes; above: slot + 1 of who wants them */
    /* in the queue */
    _Atomic uint64_t ticket; /* 0: not waiting */
    _Atomic uint64_t waits_for;
    _Atomic uint64_t card_ticket; /* the same in the queue of the card; 0: not waiting */
    _Atomic uint64_t card_waits_for;
    _Atomic uint64_t asked; /* bytes of the waiting request, for gpucap ps */
    /* of a process without a job; 0: none */
    _Atomic uint64_t min, high;
    _Atomic uint64_t claim; /* bytes admitted beside guarantees, and not yet in the driver's figures */
    char command[LEDGER_COMMAND];
    struct ledger_refusal refusals[LEDGER_REFUSALS];
    _Atomic uint64_t apart[RECORDING_APART_COUNT]; /* at the last refusal */
    _Atomic uint64_t lendable;                     /* the part of `cached` that can go back */
    _Atomic uint64_t unsure;                       /* the part of `lendable` that may not */
    _Atomic uint64_t brief; /* 1: it stands in the queue of its job for LEDGER_BRIEF_MS at most */
};

struct ledger_job {
    char name[LEDGER_NAME]; /* empty: unused */
    _Atomic uint64_t max;
    _Atomic uint64_t sum;     /* of the leases of its processes */
    _Atomic uint64_t given;   /* total by which leases were ever lowered */
    uint64_t tickets;         /* last ticket handed out */
    _Atomic uint64_t waiting; /* processes in the queue; changed under the lock word */
    uint64_t preset;          /* 1: max was set while the job had no process, and none has joined since */
    /* for people: since the job was made, also of processes that have ended */
    _Atomic uint64_t peak; /* of what its processes used together */
    _Atomic uint64_t refused, lent, borrowed, waited_ms;
    _Atomic uint64_t min, high; /* 0: none */
};

struct ledger_head {
    uint64_t magic;
    uint32_t version, bytes;
    char uuid[LEDGER_UUID];
};

struct ledger_file {
    struct ledger_head head;
    _Atomic uint32_t lock;          /* LEDGER_OWNER_BITS: the owner's slot + 1, or 0; above: counts owners */
    _Atomic uint32_t waiters;       /* 1: a process may be sleeping on the lock */
    _Atomic uint32_t freed;         /* bit 0: a process may be sleeping on it; above: counts lowered leases */
    _Atomic uint32_t answers;       /* counts answers; processes that ask sleep on it */
    _Atomic uint32_t sizing;        /* slot + 1 of the process that measures what a context takes; 0: none */
    _Atomic uint32_t taken;         /* slots from this number on were never taken */
    _Atomic uint64_t context_bytes; /* what a context takes on this card; 0: not known yet */
    _Atomic uint32_t guards;       /* jobs, and processes without one, that have a min; may count dead ones */
    _Atomic uint32_t admitted;     /* counts claims that have ended */
    _Atomic uint64_t card_tickets; /* last ticket of the card's queue; changed under the lock word */
    _Atomic uint64_t card_waiting; /* processes in that queue; likewise; may count dead ones */
    struct ledger_job jobs[LEDGER_JOBS];
    struct ledger_slot slots[LEDGER_SLOTS];
};

struct ledger {
    struct ledger_file *file;
    atomic_int fd; /* for queries about locks; the lock on our slot lasts as long as the mapping */
    dev_t device;  /* of our file: the program may close fd, and the number may become another file's */
    ino_t inode;
    char folder[LEDGER_PATH];
    char uuid[LEDGER_UUID];
    char dropped[LEDGER_NAME]; /* see ledger_dropped */
    int slot;                  /* -1: none */
    struct ledger_job *job;    /* NULL: none */
    uint32_t state;            /* LEDGER_MEMBER or LEDGER_VISITOR */
    /* in the file, of our job, or of the card and our slot; for ledger_is_needed */
    const _Atomic uint64_t *waiting, *high;
    pthread_mutex_t queue; /* held by the thread that waits for memory: one per slot is in the queue */
    pthread_mutex_t mutex; /* between threads of this process; taken after `queue` */
    /* guarded by mutex: lease, word, stuck and dirty */
    uint64_t lease;       /* copy of the slot's, which other processes could overwrite */
    uint32_t word;        /* the lock word as we wrote it */
    uint64_t patience_ms; /* LEDGER_PATIENCE_MS, less in tests */
    uint64_t slow_ms;     /* LEDGER_SLOW_MS, less in tests */
    uint32_t stuck;       /* lock word that was waited for in vain; 0: none */
    bool dirty;           /* the lock was taken over from a dead owner: sums must be recomputed */
    uint32_t hearing;     /* number of the question that the listening thread works on */
    int asker;            /* slot of the process that asked it; -1: not known */
    void (*notice)(void *argument, uint64_t bytes); /* called in a long wait; NULL: none */
    void *notice_argument;
    /* Per slot: 0, or 1 << 32 plus its `answered` when this process last waited for its answer in vain. */
    _Atomic uint64_t in_vain[LEDGER_SLOTS];
    _Atomic uint64_t silent_since[LEDGER_SLOTS]; /* clock_ms, when that was first noted */
    atomic_bool stopped;                         /* set by ledger_wake */
};

/* Takes `queue` for the thread that waits, until `until` (clock_ms) at most. Returns true if it has it. */
bool ledger_take_queue(struct ledger *ledger, uint64_t until);

/* What a process remembers while it waits in a queue. */
struct ledger_turn {
    uint64_t ticket;
    uint64_t passed; /* processes with this ticket or a lower one are passed over */
    uint64_t head;   /* ticket of the first process while it could take what it waits for; 0: it could not */
    uint64_t since;  /* clock_ms when that began */
    uint64_t recounted; /* clock_ms; 0: not yet */
};
/* Notes who is first, and whether what it waits for is there. If it has been for slow_ms and the process has
 * not taken it, the process is passed over from now on. */
void ledger_watch_head(const struct ledger *ledger, struct ledger_turn *turn, uint64_t head, bool fits);

/* What a process in a queue sees of it. One that has died since the last recount counts as living, so that it
 * is no deadlock: the next recount frees its memory. */
struct ledger_queue {
    bool first;    /* no other process has waited longer, apart from those that are passed over */
    bool last;     /* every other one has waited longer */
    bool all_wait; /* every other process that holds memory waits as well, and not only briefly */
    uint64_t head; /* ticket of the longest-waiting process, apart from those passed over */
    uint64_t next; /* bytes for which it waits */
    int head_slot;
};
/* Looks at the queue of our job, or with `card` at that of the card. */
struct ledger_queue ledger_look_at_queue(const struct ledger *ledger, const struct ledger_turn *turn,
                                         bool card);
/* Recounts if a death could end or prolong the wait of this process, and looks at the queue again. Only the
 * first one does so each time, as the kernel is asked about every process. The caller holds the lock. */
void ledger_recount_in_queue(struct ledger *ledger, struct ledger_turn *turn, bool card,
                             struct ledger_queue *queue);

/* Returns the number of slots to look at. */
int ledger_slots(const struct ledger *ledger);

/* Returns true if a process is in the job; it may have died since the last recount. */
bool ledger_job_is_used(const struct ledger *ledger, const struct ledger_job *job);

/* Takes the mutex and the lock word; needs a slot. Returns 0, or -ETIMEDOUT with neither held. */
int ledger_lock(struct ledger *ledger);
void ledger_unlock(struct ledger *ledger);

/* Frees the slots of dead processes, and recomputes the sums and who has a min. The caller holds the lock. */
void ledger_recount(struct ledger *ledger);
/* Raises the lease to `least`, and by up to a part of the remaining room, if that leaves `spare` bytes of the
 * job's max unleased. The caller holds the lock. Returns 0 or -ENOMEM. */
int ledger_raise(struct ledger *ledger, uint64_t least, uint64_t spare);

/* Return true if fd, or the ledger's own, refers to the ledger's file. */
bool ledger_is_file(const struct ledger *ledger, int fd);
bool ledger_is_open(const struct ledger *ledger);
/* Opens the file again if the program has closed it. If that fails, every slot in use counts as alive. The
 * caller holds the mutex. */
void ledger_reopen(struct ledger *ledger);

/* Returns this process's slot, or NULL. */
struct ledger_slot *ledger_own_slot(const struct ledger *ledger);
/* Returns the kernel's lock on slots. */
struct flock ledger_slot_lock(int first, int count);
/* Returns true if a living process has the slot, or if the kernel cannot say. */
bool ledger_alive(const struct ledger *ledger, int slot);
/* Takes a free slot, or empties the one that this ledger has. Returns 0, -ENOSPC, -ETIMEDOUT, or -EBADF if
 * the program has closed the file. */
int ledger_claim(struct ledger *ledger, uint32_t state);
/* Copies text that another process may be writing; `size` bytes, terminated. */
void ledger_copy_text(char *to, const char *from, size_t size);
/* Returns true if the name has 1 to LEDGER_NAME - 1 characters. */
bool ledger_is_job_name(const char *name);
/* Finds the job; adds it if needed, unless the purpose is only to look. A process that joins may take the
 * record of a job that has limits and no process yet. Returns NULL if the job is not there and no record is
 * free. The caller holds the lock. */
enum ledger_purpose { LEDGER_LOOK, LEDGER_SET, LEDGER_JOIN };
struct ledger_job *ledger_find_job(struct ledger *ledger, const char *name,
                                   const struct ledger_limits *limits, enum ledger_purpose purpose);
/* Returns the job of a slot, or NULL. */
struct ledger_job *ledger_job_of(const struct ledger *ledger, const struct ledger_slot *slot);

/* Puts a question of this process to a slot and returns its number. */
uint32_t ledger_put(const struct ledger *ledger, struct ledger_slot *slot, uint64_t bytes);
/* Puts it to each slot that `whom` chooses. Their answers are not awaited. */
void ledger_put_to(const struct ledger *ledger, bool (*whom)(const struct ledger *ledger, int slot),
                   uint64_t bytes);
/* Return true if the slot names a process, or another process. It may have died since the last recount. */
bool ledger_is_member(const struct ledger *ledger, int slot);
bool ledger_is_other(const struct ledger *ledger, int slot);
/* The same for a process of our job, and for another one of it. */
bool ledger_is_ours(const struct ledger *ledger, int slot);
bool ledger_is_listed(const struct ledger *ledger, int slot);
/* Returns by how much a slot's job, or its process without one, exceeds its min; LEDGER_UNLIMITED: no min. */
uint64_t ledger_above_min(const struct ledger *ledger, int slot);
/* Has the job's processes give back what exceeds `high`, if leases have risen past it from `before`. */
void ledger_ask_above_high(struct ledger *ledger, uint64_t before);

/* Sleeps while the word has this value, timeout_ms at most. May return early for no reason. */
void ledger_sleep(const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ms);
/* Processes that wait for memory sleep on the file's `freed`. ledger_tell_freed wakes them, with a system
 * call only if there are any. ledger_await_freed sleeps only if no lease was lowered since `value` was read
 * under the lock. */
void ledger_tell_freed(struct ledger *ledger);
void ledger_await_freed(struct ledger *ledger, uint32_t value, uint64_t timeout_ms);

/* Wakes all that sleep on the word. */
void ledger_wake_all(_Atomic uint32_t *word);
/* Adds one to the word, wakes all that sleep on it, and returns the new value. */
uint32_t ledger_rouse(_Atomic uint32_t *word);

#endif

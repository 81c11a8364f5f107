/* ledger: who holds how much of one card, for all processes that share a ledger folder.
 *
 * One file per card in shared memory has a slot per process and a record per job. A process holds a lease:
 * the part of its job's budget that it may use. The leases of a job's living processes never sum up to more
 * than the job's max, unless the driver reports that a process uses more than its lease: the driver's figure
 * counts.
 *
 * A slot belongs to the process that has the kernel's lock on the slot's byte of the file (an OFD lock). The
 * kernel drops that lock when the process ends, however it ends, so liveness needs no process id and works
 * across PID namespaces. The mapping of the file holds the lock too, so a program that closes our descriptor
 * keeps its slot. Sums are changed under a lock word in the file that names its owner's slot. If the owner
 * has died, the next process takes the lock over and recomputes every sum from the slots of living processes.
 *
 * Everything in the file may have been written by a faulty or hostile process: each field is checked before
 * use. Owns two mutexes per ledger. `queue` is held by the thread that waits for memory. The other is
 * normally held for a few instructions. It is also held while waiting for the lock word: at most
 * LEDGER_PATIENCE_MS for one owner, a moment for one that was waited for in vain, 30 s if owners keep
 * changing. Never calls the driver.
 */
#ifndef GPUCAP_LEDGER_H
#define GPUCAP_LEDGER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "interpose/see/recording.h"

#define LEDGER_SLOTS       512
#define LEDGER_JOBS        128
#define LEDGER_NAME        64 /* of a job, terminated */
#define LEDGER_UUID        48
#define LEDGER_COMMAND     64
#define LEDGER_PATH        256
#define LEDGER_REFUSALS    8 /* the last ones that a slot keeps */
#define LEDGER_WHY         256
#define LEDGER_PATIENCE_MS 3000
#define LEDGER_BRIEF_MS    100  /* a process that waits no longer than that is part of no deadlock */
#define LEDGER_SLOW_MS     2000 /* a process that does nothing for longer may have been stopped */
#define LEDGER_UNLIMITED   UINT64_MAX

struct ledger;

/* ---- places ---- */

/* Writes the folder of the ledgers: `asked` (GPUCAP_LEDGER) if given, else $XDG_RUNTIME_DIR/gpucap if that
 * folder is the user's own, else /dev/shm/gpucap-UID. Returns 0 or -ENAMETOOLONG. */
int ledger_folder(const char *asked, char *path, size_t size);

/* Opens the card's ledger, and makes folder and file if they do not exist. Refuses a folder or file of
 * another user (except root's, or one that an administrator made for a group) and a link. A damaged file, or
 * one of another version, is refused while a process uses it, else replaced. Returns 0, or -errno with a
 * sentence in `why`. */
int ledger_open(struct ledger **ledger, const char *folder, const char *uuid, char why[LEDGER_WHY]);
/* The same for an existing ledger: makes and replaces nothing. -ENODATA: it is damaged or of another version,
 * and no process uses it; the next one that opens it will replace it. Root may open those of all users. */
int ledger_open_existing(struct ledger **ledger, const char *folder, const char *uuid, char why[LEDGER_WHY]);
/* Returns true if the file was removed: programs that start later make another one. */
bool ledger_is_removed(const struct ledger *ledger);
/* Gives up the slot and unmaps the file. */
void ledger_close(struct ledger *ledger);

/* ---- this process ---- */

/* What holds for the processes of a job together, or for one that has no job. */
struct ledger_limits {
    uint64_t max;  /* LEDGER_UNLIMITED: none */
    uint64_t min;  /* what other jobs leave to it; 0: none; counts up to max */
    uint64_t high; /* above it, idle memory goes back early; 0: none */
};

/* Takes a slot, and joins the job (NULL: none). A job that is new to the ledger starts with these limits.
 * Returns 0, -ENOSPC if all slots or job records are in use, -EINVAL for a bad name, or another -errno. */
int ledger_join_within(struct ledger *ledger, const char *job, const struct ledger_limits *limits);

/* Returns the name of the job that had limits but no process and lost its record to this process when it
 * joined, or "". */
const char *ledger_dropped(const struct ledger *ledger);

/* Gives up file and mapping in a child after fork: they would keep the parent's slot alive after its death.
 * Leaves a ledger without slot and job. */
void ledger_after_fork(struct ledger *ledger);

/* Raises the lease to at least `least` bytes, and further if the job has much room, so that the next request
 * need not ask. Leaves `spare` bytes of the job's max unleased. Returns 0, -ENOMEM if the job's max does not
 * leave that much, -ETIMEDOUT if another process keeps the lock word. Always 0 without a job. */
int ledger_extend_beside(struct ledger *ledger, uint64_t least, uint64_t spare);

/* Sets the lease to `used`, even above the job's max: the caller raises it only to what the driver measured.
 * Wakes processes that wait for memory if the lease goes down. */
void ledger_settle(struct ledger *ledger, uint64_t used);

/* Returns true if this process belongs to a job. */
bool ledger_shares(const struct ledger *ledger);

/* Return the lease, what the job's processes have not leased, and the job's max; LEDGER_UNLIMITED without a
 * job. They read without the lock: another process may change the figures at any time. */
uint64_t ledger_lease(const struct ledger *ledger);
uint64_t ledger_room(const struct ledger *ledger);
uint64_t ledger_max(const struct ledger *ledger);
/* Returns what the job's other living processes use, minus what they can give back, as they last said;
 * `surely`: minus only what they certainly can. A process that owes an answer counts as 0, because all that
 * it uses may be idle; after LEDGER_SLOW_MS it counts with its whole lease. */
uint64_t ledger_live_of_others(const struct ledger *ledger, bool surely);
/* Returns true if one of them owes an answer, and has for less than LEDGER_SLOW_MS. */
bool ledger_is_owed(const struct ledger *ledger);
/* Returns what the job's other living processes use, idle memory included, as they last said: leases that
 * they do not use are not in it. */
uint64_t ledger_used_by_others(const struct ledger *ledger);
/* Returns the sum of the job's leases. */
uint64_t ledger_used(const struct ledger *ledger);
/* Returns true if that sum exceeds the job's max. */
bool ledger_is_over(const struct ledger *ledger);

/* The figures of this process that others can read. */
struct ledger_figures {
    uint64_t used, cached;
    uint64_t limit;    /* of this process alone; the job's may be less */
    uint64_t lendable; /* the part of `cached` that this process can give back, if need be after its work */
    uint64_t unsure;   /* the part of that in the driver's pools: only a try shows what they give back */
};
void ledger_publish(struct ledger *ledger, const struct ledger_figures *figures);
/* Publishes `limit` alone. */
void ledger_publish_limit(struct ledger *ledger, uint64_t limit);
/* Publishes `used` alone; a few instructions. */
void ledger_publish_used(struct ledger *ledger, uint64_t used);

struct ledger_refusal {
    uint64_t at; /* CLOCK_BOOTTIME, ns */
    uint64_t asked, used, job_used, limit;
    uint64_t fits;  /* the largest request that the limit would have allowed */
    uint64_t bound; /* whose limit it was (enum recording_limit) */
};
/* Enters a refusal. `apart` says what idled, and why it did not serve (enum recording_apart). */
void ledger_note_refusal(struct ledger *ledger, const struct ledger_refusal *refusal,
                         const uint64_t apart[RECORDING_APART_COUNT]);

/* Returns what a CUDA context takes on this card, as measured by a process of the ledger. Waits while another
 * process measures it. 0: measure it and call ledger_set_context_bytes (with 0 if that fails). */
uint64_t ledger_context_bytes(struct ledger *ledger);
void ledger_set_context_bytes(struct ledger *ledger, uint64_t bytes);

/* ---- asking other processes ---- */

/* Asks the job's other processes to give idle memory back, and waits for their answers, timeout_ms at most.
 * Does not wait for a process that still owes an earlier answer. Returns true if the job has gained room. */
bool ledger_ask(struct ledger *ledger, uint64_t bytes, unsigned timeout_ms);

/* The same for all other processes of the ledger, whatever their job: the card itself is full. They are asked
 * for `bytes` together, and not if they have less than `least` idle. Returns true if they gave any back. */
bool ledger_ask_card(struct ledger *ledger, uint64_t bytes, uint64_t least, unsigned timeout_ms);

/* Sleeps until another process asks for memory or a limit has changed. Writes how many bytes are asked for
 * (0: only check the limit and publish figures); ledger_answer must follow. Returns false after ledger_wake.
 * One thread of the process listens. */
bool ledger_listen(struct ledger *ledger, uint64_t *bytes);
void ledger_answer(struct ledger *ledger);
/* For the listening thread, after ledger_answer: sleeps timeout_ms at most. Returns true as soon as
 * ledger_listen would not sleep. */
bool ledger_nap(struct ledger *ledger, unsigned timeout_ms);
/* Notes that idle memory was given back for another process. */
void ledger_note_lent(struct ledger *ledger, uint64_t bytes);
/* Between ledger_listen and ledger_answer: returns the process that asked for most, or the one that waits
 * longest if this process put the question to itself. 0: a command, or none. */
pid_t ledger_asker(const struct ledger *ledger);
/* Makes ledger_listen return false for good. */
void ledger_wake(struct ledger *ledger);

/* Puts a question to this process, as another process would. */
void ledger_ask_self(struct ledger *ledger, uint64_t bytes);

/* ---- guarantees: a job's min on the card ----
 *
 * While a job's processes use less than its min, the others leave the rest of it free on the card: their
 * requests are admitted only beside it. They may hold idle memory there, and give it back when asked. */

/* Returns true if a job other than ours has a min; a few instructions. */
bool ledger_is_guarded(const struct ledger *ledger);
/* Returns true if our job, or this process without a job, has a min. */
bool ledger_has_min(const struct ledger *ledger);
/* Returns what the guarantees of other jobs still keep free. */
uint64_t ledger_kept(const struct ledger *ledger);
/* Admits a request for `need` bytes of a card that has `free_bytes`, read after `seen` = ledger_admitted().
 * Returns 0: ledger_end_claim must follow when the driver has answered. -EAGAIN: read both again. -ENOMEM: a
 * guarantee would be touched. -ETIMEDOUT. */
uint32_t ledger_admitted(const struct ledger *ledger);
int ledger_admit(struct ledger *ledger, uint64_t need, uint64_t free_bytes, uint32_t seen);
/* The same with a function that writes the card's free memory. Returns 0, -ENODATA if it fails (nothing can
 * be kept for others then), or -ENOMEM. */
int ledger_admit_beside(struct ledger *ledger, uint64_t need,
                        int (*free_on_card)(void *context, uint64_t *bytes), void *context);
/* Ends a claim; without one it does nothing. */
void ledger_end_claim(struct ledger *ledger, uint64_t need);

/* Returns by how much our job, or this process without a job, is above its `high`; a few instructions. */
uint64_t ledger_above_high(const struct ledger *ledger);
/* Returns true if ledger_is_waited_for is true or there is a `high`; for after each free. */
bool ledger_is_needed(const struct ledger *ledger);

/* ---- waiting ---- */

/* Returns true if a process waits for memory of our job or of the card; a few instructions. */
bool ledger_is_waited_for(const struct ledger *ledger);

/* Sets a function to call once in each wait of over two seconds. Call before the first wait. */
void ledger_on_long_wait(struct ledger *ledger, void (*notice)(void *argument, uint64_t bytes),
                         void *argument);

/* Waits in the queue of the job until this process is first and its lease can be raised to `least`,
 * timeout_ms at most. A process that is first and does not take what it waits for, for LEDGER_SLOW_MS, is
 * passed over: it may have been stopped. Returns 0 with the lease raised, -ETIMEDOUT, -EDEADLK if all
 * processes of the job that hold memory would be waiting, and none of them only briefly, or -ENOMEM if the
 * job's max is less. gpucap ps shows `asked`; 0: what the lease lacks. */
int ledger_wait_for(struct ledger *ledger, uint64_t asked, uint64_t least, uint64_t timeout_ms);

/* Returns true if a process waits for memory of the card; a few instructions. */
bool ledger_is_card_waited_for(const struct ledger *ledger);
/* Returns what all processes of the ledger use, as they last said. */
uint64_t ledger_managed(const struct ledger *ledger);

/* Waits in the queue of the card, until `until` (clock_ms) at most, until this process is first and look()
 * returns 0 for its bytes: the request fits now. One that is first and does not take what fits is passed
 * over, as in ledger_wait_for. look() returns -EAGAIN if programs outside the ledger may free enough,
 * -EBUSY if only processes of the ledger can, -ENOMEM if none can. It is called without the lock word, every
 * 100 ms and when a process has given memory back. *ticket is 0 at first; a second wait for the same request
 * keeps its place. Returns 0, -ETIMEDOUT, -ENOMEM, or -EDEADLK if all processes that hold memory would be
 * waiting. */
int ledger_wait_card(struct ledger *ledger, uint64_t bytes, uint64_t *ticket, uint64_t until,
                     int (*look)(void *argument, uint64_t bytes), void *argument);

/* ---- for people ---- */

struct ledger_entry {
    pid_t pid;
    uid_t uid;
    bool waiting; /* in either queue, for `asked` bytes */
    char job[LEDGER_NAME];
    char command[LEDGER_COMMAND];
    uint64_t used, cached, peak, limit, job_max, job_used, asked, waited_ms, refused;
    uint64_t min, high;      /* of the job, or of a process without one; 0: none */
    uint64_t lent, borrowed; /* bytes, ever */
    uint64_t started;        /* CLOCK_BOOTTIME, ns */
};
/* Reads a slot. Returns false if no living process has it. */
bool ledger_read(const struct ledger *ledger, int slot, struct ledger_entry *entry);
/* Returns true if the slot belongs to another living process of our job. */
bool ledger_is_neighbour(const struct ledger *ledger, int slot);
/* Reads the last refusals of a slot, newest first. Returns how many. */
int ledger_read_refusals(const struct ledger *ledger, int slot,
                         struct ledger_refusal refusals[LEDGER_REFUSALS]);
/* Reads what idled at the last of them. */
void ledger_read_apart(const struct ledger *ledger, int slot, uint64_t apart[RECORDING_APART_COUNT]);

/* What a job has done since it was made, including its processes that have ended. */
struct ledger_totals {
    uint64_t max;
    uint64_t peak; /* of what its processes used together */
    uint64_t refused, lent, borrowed, waited_ms;
};
/* Reads the totals of a job. Returns false if the ledger does not know it. */
bool ledger_read_job(const struct ledger *ledger, const char *job, struct ledger_totals *totals);
/* For a process that has not joined the card's ledger: writes the job's max and what its processes use, idle
 * memory included. Returns false if there is no such ledger or job, or its first process will set the max. */
bool ledger_look_at_job(const char *folder, const char *uuid, const char *job, uint64_t *max, uint64_t *used);

/* Asks a slot's process to give idle memory back and publish its figures. Returns false if there is none. */
bool ledger_ask_slot(struct ledger *ledger, int slot, uint64_t bytes, uint32_t *question);
/* Waits for the answer, timeout_ms at most. Returns true if the process has answered or died. */
bool ledger_await_slot(struct ledger *ledger, int slot, uint32_t question, unsigned timeout_ms);
/* Both. */
bool ledger_poke(struct ledger *ledger, int slot, uint64_t bytes, unsigned timeout_ms);

/* Changes a limit of a job for all its processes, and makes the job if it does not exist. Returns 0, -ENOSPC,
 * -ETIMEDOUT, or -EINVAL for an empty or too long name. */
enum ledger_limit { LEDGER_MAX, LEDGER_MIN, LEDGER_HIGH };
int ledger_set_limit(struct ledger *ledger, const char *job, enum ledger_limit limit, uint64_t bytes);

/* Forgets max and totals of a job without processes, unless its max was set in advance for the next one. */
void ledger_forget_job(struct ledger *ledger, const char *job);

/* Calls visit(uuid) for each ledger in the folder; a uuid has only letters, digits and dashes. Returns 0, or
 * -errno if the folder cannot be read. */
int ledger_each_card(const char *folder, void (*visit)(const char *uuid, void *argument), void *argument);

#endif

/* lend: lends idle memory of this process to the other processes of its job, and borrows theirs.
 *
 * One thread per card sleeps until another process asks (ledger_listen). It gives idle memory back to the
 * driver, lowers this process's lease to what it uses, and follows a changed limit. The thread blocks every
 * signal, has left the driver before the driver's own exit handlers run, and does not exist in a forked
 * child. Owns no lock.
 */
#ifndef GPUCAP_LEND_H
#define GPUCAP_LEND_H

#include "interpose/account/device.h"

/* Starts the thread of a card on the first call. It answers that there is nothing to lend, and follows a
 * changed limit, without calling the driver. So others need not wait for a process that is starting, or that
 * holds handles and has no context. */
void lend_listen(struct device *device);

/* From now on the thread lends. Call when the card has a context: what the driver does at exit must come
 * after our own exit handler, which is registered here. */
void lend_start(struct device *device);

/* Call after memory became free: has the card's thread lend it if a process of the job waits for memory.
 * Costs a few instructions if none does. Before the card's first context it lowers the lease itself. */
void lend_freed(struct device *device);
/* The same where the card is not known: for stream-ordered memory and graphs. Makes no driver call. After
 * many frees in a short time the thread may lend the last of them 64 ms later. */
void lend_freed_somewhere(void);

/* A request that waits for a full card. All zero at first. */
struct lend_wait {
    uint64_t until; /* clock_ms; 0: not yet */
    uint64_t ticket;
    int vain; /* tries that followed no wait, because the card seemed to have room */
};

/* A request that asks the job's other processes for memory. */
struct loan {
    struct device *device; /* NULL: nothing can be borrowed */
    uint64_t need;         /* bytes, as the account counts them */
    uint64_t (*missing)(struct account *account, uint64_t need);
    int tries;             /* 0 at first */
    int vain;              /* tries in a row that brought nothing although all others have answered */
    uint64_t until;        /* clock_ms() until which it tries again although others were faster */
    bool had_room;         /* at the last try */
    unsigned long denials; /* of the account, at the last try */
    bool waited; /* the last lend_more waited and got a lease, kept for this request until the next call: the
                    thread cannot be cancelled meanwhile */
    struct lend_wait wait; /* for the card */
};

/* Asks the other processes of the job for what is missing; if they give none, waits as the option `wait` says
 * until the job's budget has room for `need`. Without `wait`, retries for at most two seconds, and only if
 * the budget could hold the request: other requests may take the freed memory first, a neighbour may not have
 * answered yet, or what it has freed may wait for work. For memory in the driver's pools, which may keep it,
 * retries only for a moment. Returns true if it is worth trying the request again. Never waits during a
 * capture, or if the limit cannot hold the request beside the memory that this process itself keeps. Call
 * lend_end after the last try. */
bool lend_more(struct loan *loan);
void lend_end(const struct loan *loan);

/* The driver has refused `bytes` (0: size not known) because the card is full: asks all processes of its
 * ledger for idle memory, also those of other jobs. Returns true if it is worth trying again. */
bool lend_on_card(CUdevice ordinal, uint64_t bytes);

/* Waits as the option `wait` says until the card has room for `bytes` (0: size not known). Returns true if it
 * is worth trying again; all waits of one request for the card together take no longer than the option says.
 * Never waits during a capture, without a context, or for memory that no other program can free. */
bool lend_wait_on_card(struct lend_wait *wait, CUdevice ordinal, uint64_t bytes);

#endif

/* account: what this process holds on one card, and who may take more. Grant -> driver call -> settle:
 * between grant and settle the bytes are counted as in flight, so that racing threads cannot pass the limit
 * together.
 *
 * Owns one lock per card, never held across a call into the driver or NVML.
 */
#ifndef GPUCAP_ACCOUNT_H
#define GPUCAP_ACCOUNT_H

#include <pthread.h>
#include <stdatomic.h>

#include "interpose/account/ledger.h"
#include "interpose/account/limit.h"

struct account {
    pthread_mutex_t lock;
    pthread_cond_t settled; /* in_flight went down */
    /* guarded by lock */
    struct limit_state state;
    uint64_t charged; /* by our own books: live blocks, rounded as the driver rounds */
    uint64_t hidden;  /* part of charged that the driver does not show for this process (managed memory) */
    uint64_t granted; /* ever, so that a measurement can tell what it may have missed */
    uint64_t pooled;  /* ever: growth of the driver's own pools, likewise */
    uint64_t
        grown; /* lasting growth of the driver, as it was asked for: counts where nothing can be measured */
    uint64_t touches;      /* how often account_touch was called, so that a measurement under way notices */
    uint64_t measurements; /* begun; each one's number */
    uint64_t newest;       /* the number of the one that measured and unmeasured come from */
    /* set once: what this process uses by the driver's own figure; 0 or -errno */
    int (*measure)(void *context, uint64_t *bytes);
    void *context;
    /* set after account_init, or NULL: a figure that is quick to get and never too low; 0 or -errno */
    int (*estimate)(void *context, uint64_t *bytes);
    /* likewise: what the driver itself says it holds in stream-ordered pools and for graphs */
    uint64_t (*held)(void *context);
    /* likewise: looks at those pools again, so that what they give back unseen and take again counts as
     * growth */
    void (*look_again)(void *context);
    /* likewise: the budget that this process shares with others, and where readers find its figures */
    struct ledger *ledger;
    uint64_t awaited;   /* guarded by lock: bytes that threads have waited for and not taken yet */
    unsigned measuring; /* guarded by lock: threads between a question to the driver and its answer */
    bool exact;         /* guarded by lock: the last figure was not an estimate */
    /* without the lock */
    _Atomic uint64_t promised; /* in flight by account_promise */
    _Atomic uint64_t quick;    /* so much may be promised; 0 while a thread has the lock */
    atomic_uint waiters;       /* threads that wait for `settled` */
};

/* What a process's context is taken for where it cannot be measured: 518 MiB were seen on an H200, and
 * growth. */
#define ACCOUNT_CONTEXT_GUESS (UINT64_C(640) << 20)

void account_init(struct account *account, uint64_t limit, uint64_t reserve,
                  int (*measure)(void *context, uint64_t *bytes), void *context);

/* Takes `need` bytes (rounded): true, and account_settle must follow. Measures and waits as limit_decide
 * says. */
bool account_take(struct account *account, uint64_t need);
/* The same for a caller with a lock that those in flight may need: it does not wait for them. False and
 * *busy: account_await, without the lock, and try again. */
bool account_try(struct account *account, uint64_t need, bool *busy);
/* Waits until somebody in flight, if there is anybody, has been answered; not for long. */
void account_await(struct account *account);

/* The driver's answer to what was taken. `hidden`: the driver will not show these bytes. */
void account_settle(struct account *account, uint64_t need, bool success, bool hidden);
/* The same for a request that one of the driver's own pools has served: by how much that pool has grown. */
void account_settle_pooled(struct account *account, uint64_t need, uint64_t growth);

/* account_take without the lock, for a request that one of the driver's own pools serves, where the limit is
 * far. False: ask account_take. True: account_settle_promise follows, with the pool's growth; or
 * account_forget_promise. */
bool account_promise(struct account *account, uint64_t need);
void account_settle_promise(struct account *account, uint64_t need, uint64_t growth);
void account_forget_promise(struct account *account, uint64_t need);

/* A block is gone. */
void account_give(struct account *account, uint64_t bytes, bool hidden);

/* The driver may have grown, or shrunk, by itself. */
void account_touch(struct account *account);

/* Takes `bytes` for growth of the driver's own; it may use the reserve. True: they are in flight until
 * account_grown. Measures and waits as limit_decide says. */
bool account_grow(struct account *account, uint64_t bytes);
/* `lasting`: the growth stays with the context, and no figure of the driver's shows it. */
void account_grown(struct account *account, uint64_t bytes, bool lasting);
/* A context is gone, and lasting growth of so many bytes with it. */
void account_forget_growth(struct account *account, uint64_t bytes);

/* About how much could be granted, by the figures at hand. */
uint64_t account_room(struct account *account);

/* From now on memory may be taken past the hooks, in every account: each grant asks the driver first. */
void account_expect_unseen(void);

/* What must be given back before account_take, or account_grow, grants `need`, by the last measurement. */
uint64_t account_short_to_take(struct account *account, uint64_t need);
uint64_t account_short_to_grow(struct account *account, uint64_t need);

/* What could be allocated now, and what is used, by a fresh measurement. */
struct account_view {
    uint64_t limit, used, room;
};
struct account_view account_view(struct account *account);
/* The same by the figures at hand. */
struct account_view account_glance(struct account *account);

/* Measures, and gives the part of the job's budget that the process does not use back to the job. Returns
 * what it uses. */
uint64_t account_settle_lease(struct account *account);

/* Waits, at most timeout_ms, until the job's budget leaves room for `need` beside the reserve; the room is
 * this process's then, until account_end_wait. 0, or ledger_wait's -errno. */
int account_wait_for_budget(struct account *account, uint64_t need, uint64_t timeout_ms);
void account_end_wait(struct account *account, uint64_t need);

/* Another limit from now on. What is in use stays, even above it. */
void account_set_limit(struct account *account, uint64_t limit);

#endif

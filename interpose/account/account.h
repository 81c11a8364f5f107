/* account: counts what this process holds on one card, and grants or refuses more. A request goes grant ->
 * driver call -> settle. In between its bytes are in flight and count against the limit, so that racing
 * threads cannot pass it together.
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
    pthread_cond_t settled; /* signalled when in_flight goes down */
    /* guarded by lock */
    struct limit_state state;
    uint64_t charged; /* live blocks as we count them, rounded as the driver rounds */
    uint64_t hidden;  /* the part of charged that the driver does not report: managed memory */
    uint64_t freed;   /* bytes freed since the last measurement, which counted them; for the ledger only */
    uint64_t granted; /* bytes ever granted; shows what was granted during a measurement, which may lack it */
    uint64_t pooled;  /* bytes by which the driver's own pools ever grew, for the same purpose */
    uint64_t grown;   /* lasting growth of the driver, as requested; counts where nothing can be measured */
    uint64_t touches; /* times that the state became stale; shows whether it did during a measurement */
    uint64_t measurements; /* measurements begun; each takes its number from here */
    uint64_t newest;       /* number of the measurement that measured and unmeasured come from */
    /* set once: returns what this process uses by the driver's count; 0 or -errno, -ENOENT: no context */
    int (*measure)(void *context, uint64_t *bytes);
    void *context;
    /* set after account_init, or NULL: returns a quick figure that is never too low; 0 or -errno */
    int (*estimate)(void *context, uint64_t *bytes);
    /* likewise: returns what the driver holds in stream-ordered pools and for graphs */
    uint64_t (*held)(void *context);
    /* likewise: notes what those pools have given back unseen, so that taking it again counts as growth */
    void (*look_again)(void *context);
    /* likewise: returns the card's free bytes; 0 or -errno */
    int (*free_on_card)(void *context, uint64_t *bytes);
    /* likewise: whether this process has made a context on the card; NULL counts as true */
    const atomic_bool *present;
    /* likewise: the ledger with the job's shared budget, where other processes read our figures */
    struct ledger *ledger;
    uint64_t awaited;   /* guarded by lock: bytes that threads have waited for and not yet taken */
    unsigned measuring; /* guarded by lock: measurements under way */
    bool exact;         /* guarded by lock: the last figure was measured, not estimated */
    /* without the lock */
    _Atomic uint64_t promised; /* in flight by account_promise */
    _Atomic uint64_t quick;    /* bytes that may be promised; 0 while a thread has the lock */
    atomic_uint waiters;       /* threads that wait for `settled` */
    atomic_ulong denials;      /* requests denied, ever */
};

/* Assumed size of a context where it cannot be measured: 518 MiB seen on an H200, plus growth. */
#define ACCOUNT_CONTEXT_GUESS (UINT64_C(640) << 20)

void account_init(struct account *account, uint64_t limit, uint64_t reserve,
                  int (*measure)(void *context, uint64_t *bytes), void *context);

/* Asks for `need` bytes (rounded). Returns true if they are granted: account_settle must follow. Measures and
 * waits as limit_decide says. */
bool account_take(struct account *account, uint64_t need);
/* The same for a caller that holds a lock which threads in flight may need: never waits for them. Returns
 * false with *busy set if they are in the way: release the lock, call account_await and try again. */
bool account_try(struct account *account, uint64_t need, bool *busy);
/* Returns how many requests were ever denied by the limit or by the job's budget; a few instructions. */
unsigned long account_denials(const struct account *account);
/* Waits until a request in flight is settled, if there is one; 100 ms at most. */
void account_await(struct account *account);

/* Settles a granted request with the driver's answer. `hidden`: the driver will not report these bytes. */
void account_settle(struct account *account, uint64_t need, bool success, bool hidden);
/* The same for a request that one of the driver's own pools served, which has grown by `growth` bytes. */
void account_settle_pooled(struct account *account, uint64_t need, uint64_t growth);

/* account_take without the lock, far from the limit, for a request that one of the driver's own pools serves.
 * True: account_settle_promise or account_forget_promise must follow. False: call account_take. */
bool account_promise(struct account *account, uint64_t need);
void account_settle_promise(struct account *account, uint64_t need, uint64_t growth);
void account_forget_promise(struct account *account, uint64_t need);

/* Takes the bytes of a freed block out of the account. */
void account_give(struct account *account, uint64_t bytes, bool hidden);

/* Notes that the driver may have grown or shrunk: the next grant measures. */
void account_touch(struct account *account);

/* Asks for `bytes` of the driver's own growth, which may use the reserve. Returns true if they are granted:
 * account_grow_end must follow. Measures and waits as limit_decide says. */
bool account_grow_begin(struct account *account, uint64_t bytes);
/* Settles that growth. `lasting`: it stays with the context, and the driver reports it in no figure. */
void account_grow_end(struct account *account, uint64_t bytes, bool lasting);
/* Enters lasting growth that was not asked for. */
void account_add_growth(struct account *account, uint64_t bytes);
/* Takes lasting growth out of the account when its context has ended. */
void account_forget_growth(struct account *account, uint64_t bytes);

/* Returns about how much could be granted, without a measurement. */
uint64_t account_room(struct account *account);

/* The same for an account of a job if its other processes gave up the leases that they do not use. */
uint64_t account_room_beside_others(struct account *account);

/* Makes each grant of every account measure first, from now on: memory may be taken past the hooks. */
void account_expect_unseen(void);

/* Return what must be given back before account_take, or account_grow_begin, grants `need`. Measure if the
 * last figure was an estimate. */
uint64_t account_short_to_take(struct account *account, uint64_t need);
uint64_t account_short_to_grow(struct account *account, uint64_t need);

/* Measures, and returns the limit, what is used and what could be allocated: leases that the job's other
 * processes do not use count as free. */
struct account_view {
    uint64_t limit, used, room;
    uint64_t charged; /* the part of used that is blocks */
    bool measured;    /* used is the driver's figure, not a guess or estimate */
};
struct account_view account_view(struct account *account);
/* The same without a measurement; all leases of the job's other processes count as used. */
struct account_view account_glance(struct account *account);
/* Returns what the process uses without measuring: the last figure, and what was granted and freed since. */
uint64_t account_known(struct account *account);

/* Lowers the lease to what the process uses and its threads have waited for. Returns what it uses. */
uint64_t account_lower_lease(struct account *account);
/* The same, but measures first. */
uint64_t account_settle_lease(struct account *account);

/* Waits at most timeout_ms until the job's budget has room for `need` beside the reserve, and leases it for
 * this process until account_end_wait. Returns 0, or -errno as ledger_wait_for does. */
int account_wait_for_budget(struct account *account, uint64_t need, uint64_t timeout_ms);
void account_end_wait(struct account *account, uint64_t need);

/* Changes the limit. Memory in use stays, even above it. */
void account_set_limit(struct account *account, uint64_t limit);

#endif

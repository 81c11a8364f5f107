/* account: see account.h. */
#include "interpose/account/account.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "interpose/base/clock.h"
#include "interpose/base/lock.h"
#include "interpose/base/sums.h"

#define WAIT_FOR_OTHERS_MS 100 /* only a safety net: settling a request signals */

static atomic_bool unseen; /* memory may be taken past the hooks; never reset */

void account_expect_unseen(void)
{
    atomic_store(&unseen, true);
}

void account_init(struct account *account, uint64_t limit, uint64_t reserve,
                  int (*measure)(void *context, uint64_t *bytes), void *context)
{
    memset(account, 0, sizeof(*account));
    pthread_mutex_init(&account->lock, NULL);
    pthread_cond_init(&account->settled, NULL);
    account->state = (struct limit_state){.limit = limit, .reserve = reserve, .stale = true};
    account->measure = measure;
    account->context = context;
}

/* Call when the driver has answered: the bytes are in its figures, or were not taken. */
static void end_claim(struct account *account, uint64_t need)
{
    if (account->ledger)
        ledger_end_claim(account->ledger, need);
}

/* Returns true if other jobs have guarantees on the card. */
static bool is_guarded(const struct account *account)
{
    return account->ledger && account->free_on_card && ledger_is_guarded(account->ledger);
}

/* ---- without the lock ----
 *
 * Far from the limit a promise needs no lock: it is added to `promised`, and is valid if all promises
 * together stay within `quick`. A thread that takes the lock first sets quick = 0 and then reads the
 * promises, so that one of the two sees the other. */

bool account_promise(struct account *account, uint64_t need)
{
    if (is_guarded(account)) /* beside guarantees each request is looked at */
        return false;
    const uint64_t before = atomic_fetch_add(&account->promised, need);
    const uint64_t quick = atomic_load(&account->quick);

    if (before <= quick && need <= quick - before)
        return true;
    account_forget_promise(account, need);
    return false;
}

void account_forget_promise(struct account *account, uint64_t need)
{
    atomic_fetch_sub(&account->promised, need);
    if (atomic_load(&account->waiters))
        pthread_cond_broadcast(&account->settled);
}

static void enter(struct account *account)
{
    pthread_mutex_lock(&account->lock);
    atomic_store(&account->quick, 0);
}

/* Returns true if other processes share the budget. */
static bool shares(const struct account *account)
{
    return account->ledger && ledger_shares(account->ledger);
}

/* Returns the state with the limit that applies: the process's own, or what its job leaves it. */
static struct limit_state limited_state(const struct account *account)
{
    struct limit_state state = account->state;

    if (shares(account))
        state.limit =
            sums_smaller(state.limit, sums_add(ledger_lease(account->ledger), ledger_room(account->ledger)));
    return state;
}

/* The same with promises counted as in flight. */
static struct limit_state state_of(struct account *account)
{
    struct limit_state state = limited_state(account);

    state.in_flight += atomic_load(&account->promised);
    return state;
}

/* Returns what may be promised without the lock: it must be leased already. */
static uint64_t quick_room(const struct account *account)
{
    const struct limit_state state = limited_state(account);
    const uint64_t trusted = limit_trusted(&state);

    if (atomic_load_explicit(&unseen, memory_order_relaxed) || account->measuring)
        return 0;
    if (!shares(account))
        return trusted;
    const uint64_t lease = ledger_lease(account->ledger), used = limit_taken(&state);
    return sums_smaller(trusted, sums_minus(lease, used));
}

/* Returns what the driver has given to this process, as far as is known. */
static uint64_t held(const struct account *account)
{
    const uint64_t used = sums_add(account->state.measured, account->state.unmeasured);

    return sums_minus(used, account->freed);
}

static void leave(struct account *account)
{
    atomic_store(&account->quick, quick_room(account));
    if (account->ledger)
        ledger_publish_used(account->ledger, held(account));
    pthread_mutex_unlock(&account->lock);
}

struct measurement {
    uint64_t number;
    uint64_t granted, pooled, touches; /* when it began */
    int rc;
    uint64_t bytes;    /* the driver's figure */
    uint64_t held;     /* without a figure: what the driver's own pools hold */
    uint64_t estimate; /* without one: what is used on the card; UINT64_MAX: not known */
    uint64_t promised; /* when it began */
    uint64_t freed;    /* likewise */
};

/* Returns what a context is counted as where nothing can be measured; nothing if there certainly is none. One
 * that is being made is in flight. */
static uint64_t context_guess(const struct account *account, int rc)
{
    const bool may_be_there = !account->present || atomic_load(account->present) || atomic_load(&unseen);

    return may_be_there && rc != -ENOENT ? ACCOUNT_CONTEXT_GUESS : 0;
}

/* Enters a measurement into the state, with the lock held. What was granted since it began may or may not be
 * in the figure: it is counted in addition, so the sum is never too low. */
static void use_measurement(struct account *account, const struct measurement *m)
{
    struct limit_state *state = &account->state;
    const uint64_t guess = account->charged + context_guess(account, m->rc) + account->grown + m->held;

    if (m->rc && guess <= m->estimate) {
        state->measured = guess;
        state->unmeasured = account->pooled - m->pooled;
    } else {
        state->measured = (m->rc ? m->estimate : m->bytes) + account->hidden;
        state->unmeasured = account->granted - m->granted;
    }
}

/* What a figure is for. An estimate suffices to grant, not to refuse. A figure shown to the program must not
 * depend on other processes, as an estimate does. */
enum purpose { TO_GRANT, TO_REFUSE, TO_TELL };

/* Asks the driver. Returns false if the figure does not suffice to refuse. */
static bool ask(struct account *account, enum purpose purpose, struct measurement *m)
{
    m->rc = -ENODATA;
    m->estimate = UINT64_MAX;
    /* The estimate covers the whole card: leasing by it would take what other processes use. */
    if (purpose == TO_GRANT && account->estimate && !shares(account))
        m->rc = account->estimate(account->context, &m->bytes);
    if (m->rc == 0)
        return false;
    m->rc = account->measure(account->context, &m->bytes);
    if (m->rc && account->held)
        m->held = account->held(account->context);
    if (m->rc && purpose != TO_TELL && account->estimate && account->estimate(account->context, &m->estimate))
        m->estimate = UINT64_MAX;
    return !m->rc || purpose != TO_TELL;
}

/* Leases what the driver has grown by on its own, whatever the job's budget says. What was granted since the
 * measurement is leased already, and may be in it as well. */
static void lease_what_was_measured(struct account *account)
{
    const uint64_t measured = account->state.measured;

    if (shares(account) && account->exact && measured > ledger_lease(account->ledger))
        ledger_settle(account->ledger, measured);
}

/* Measures while the driver's pools are in use. A pool may give memory back just before the driver's answer
 * and take it again just after: then it does not seem to have grown, and the answer lacks the bytes. So pools
 * are looked at before and after, no promise is made meanwhile, and earlier ones are counted once more. */
static bool ask_beside_pools(struct account *account, enum purpose purpose, struct measurement *m)
{
    if (account->look_again)
        account->look_again(account->context);
    const bool exact = ask(account, purpose, m);
    if (account->look_again)
        account->look_again(account->context);
    return exact;
}

/* Measures and enters the result. The caller does not hold the lock. */
static void measure(struct account *account, enum purpose purpose)
{
    struct measurement m = {0};

    lock_disable_cancel(); /* or `measuring` would stay raised */
    enter(account);
    m.number = ++account->measurements;
    m.granted = account->granted;
    m.pooled = account->pooled;
    m.touches = account->touches;
    m.promised = atomic_load(&account->promised);
    m.freed = account->freed;
    account->measuring++;
    leave(account);
    const bool exact = ask_beside_pools(account, purpose, &m);
    enter(account);
    account->measuring--;
    /* A later measurement may have ended first; an older figure must not hide what was freed in between. */
    if (m.number > account->newest) {
        account->newest = m.number;
        account->freed -= sums_smaller(m.freed, account->freed);
        account->exact = exact;
        use_measurement(account, &m);
        account->state.unmeasured += m.promised;
        account->state.stale = account->touches != m.touches;
        lease_what_was_measured(account);
    }
    leave(account);
    lock_restore_cancel();
}

/* The same for a caller that holds the lock: drops it meanwhile. */
static void measure_unlocked(struct account *account, enum purpose purpose)
{
    leave(account);
    measure(account, purpose);
    enter(account);
}

/* Waits, with the lock, until a request in flight is settled. Not cancelled: the lock would stay taken. */
static void wait_for_others(struct account *account)
{
    const struct timespec until = clock_after(WAIT_FOR_OTHERS_MS * 1000000U);

    lock_disable_cancel();
    atomic_fetch_add(&account->waiters, 1);
    pthread_cond_timedwait(&account->settled, &account->lock, &until);
    atomic_fetch_sub(&account->waiters, 1);
    atomic_store(&account->quick, 0); /* others have raised it meanwhile */
    lock_restore_cancel();
}

/* Leases what a grant of `need` takes. Returns false if the job does not have it. */
static bool lease(struct account *account, const struct limit_state *state, uint64_t need)
{
    return !shares(account) ||
           ledger_extend_beside(account->ledger, sums_add(limit_taken(state), need), state->reserve) == 0;
}

/* Tries once more to lease before a refusal: a process of the job may have died, which frees its lease. */
static bool lease_after_deaths(struct account *account, const struct limit_state *state, uint64_t need)
{
    return shares(account) &&
           sums_add(sums_add(limit_taken(state), need), state->reserve) <= account->state.limit &&
           lease(account, state, need);
}

/* Puts `need` bytes in flight if they fit beside `reserve`. busy: NULL to wait for others in flight, or where
 * to report them instead of waiting. */
static bool decide(struct account *account, uint64_t need, uint64_t reserve, bool *busy)
{
    bool fresh = false, recounted = false, granted = false, decided = false;

    enter(account);
    while (!decided) {
        struct limit_state state = state_of(account);

        state.reserve = reserve;
        state.stale = state.stale || (!fresh && atomic_load_explicit(&unseen, memory_order_relaxed));
        switch (limit_decide(&state, need, fresh)) {
        case LIMIT_GRANT:
            granted = lease(account, &state, need);
            decided = granted || recounted; /* else another process was faster */
            fresh = false;
            recounted = true;
            break;
        case LIMIT_REFUSE:
            if (recounted || !lease_after_deaths(account, &state, need)) {
                decided = account->exact || !fresh;
                if (!decided)
                    measure_unlocked(account, TO_REFUSE);
            }
            recounted = true;
            break;
        case LIMIT_WAIT:
            decided = busy != NULL;
            if (busy)
                *busy = true;
            else
                wait_for_others(account);
            fresh = false; /* what they took is only in `unmeasured` now */
            break;
        case LIMIT_MEASURE:
            measure_unlocked(account, TO_GRANT);
            fresh = true;
            break;
        }
    }
    account->state.in_flight += granted ? need : 0;
    leave(account);
    return granted;
}

/* Claims `need` bytes of the card beside what is guaranteed to other jobs. */
static bool admit(struct account *account, uint64_t need)
{
    return ledger_admit_beside(account->ledger, need, account->free_on_card, account->context) != -ENOMEM;
}

static bool take(struct account *account, uint64_t need, uint64_t reserve, bool *busy)
{
    const bool admitted = !is_guarded(account) || admit(account, need);
    const bool taken = admitted && decide(account, need, reserve, busy);

    if (admitted && !taken)
        end_claim(account, need);
    if (!taken)
        atomic_fetch_add_explicit(&account->denials, 1, memory_order_relaxed);
    return taken;
}

unsigned long account_denials(const struct account *account)
{
    return atomic_load_explicit(&account->denials, memory_order_relaxed);
}

bool account_take(struct account *account, uint64_t need)
{
    return take(account, need, account->state.reserve, NULL); /* constant since account_init */
}

bool account_try(struct account *account, uint64_t need, bool *busy)
{
    *busy = false;
    return take(account, need, account->state.reserve, busy);
}

void account_await(struct account *account)
{
    enter(account);
    if (state_of(account).in_flight)
        wait_for_others(account);
    leave(account);
}

void account_settle(struct account *account, uint64_t need, bool success, bool hidden)
{
    end_claim(account, need);
    enter(account);
    account->state.in_flight -= need;
    if (success) {
        account->charged += need;
        account->granted += need;
        account->state.unmeasured += need;
        account->hidden += hidden ? need : 0;
    }
    pthread_cond_broadcast(&account->settled);
    leave(account);
}

static void count_growth(struct account *account, uint64_t growth)
{
    account->granted += growth;
    account->pooled += growth;
    account->state.unmeasured += growth;
}

void account_settle_pooled(struct account *account, uint64_t need, uint64_t growth)
{
    end_claim(account, need);
    enter(account);
    account->state.in_flight -= need;
    count_growth(account, growth);
    pthread_cond_broadcast(&account->settled);
    leave(account);
}

void account_settle_promise(struct account *account, uint64_t need, uint64_t growth)
{
    if (__builtin_expect(growth != 0, 0)) {
        enter(account);
        count_growth(account, growth);
        leave(account);
    }
    account_forget_promise(account, need);
}

void account_give(struct account *account, uint64_t bytes, bool hidden)
{
    enter(account);
    account->charged -= bytes;
    account->freed += bytes;
    account->hidden -= hidden ? bytes : 0;
    leave(account);
}

/* Call with the lock held when the driver has grown or shrunk. */
static void set_stale(struct account *account)
{
    account->state.stale = true;
    account->touches++;
}

void account_touch(struct account *account)
{
    enter(account);
    set_stale(account);
    leave(account);
}

bool account_grow_begin(struct account *account, uint64_t bytes)
{
    return take(account, bytes, 0, NULL);
}

void account_grow_end(struct account *account, uint64_t bytes, bool lasting)
{
    end_claim(account, bytes);
    enter(account);
    account->state.in_flight -= bytes;
    account->grown += lasting ? bytes : 0;
    set_stale(account);
    pthread_cond_broadcast(&account->settled);
    leave(account);
}

void account_add_growth(struct account *account, uint64_t bytes)
{
    enter(account);
    account->grown += bytes;
    set_stale(account);
    leave(account);
}

void account_forget_growth(struct account *account, uint64_t bytes)
{
    enter(account);
    account->grown = sums_minus(account->grown, bytes);
    set_stale(account);
    leave(account);
}

uint64_t account_room(struct account *account)
{
    enter(account);
    const struct limit_state state = state_of(account);
    const uint64_t room = limit_room(&state);
    leave(account);
    return room;
}

/* Measures if the last figure was an estimate, which suffices to grant but not to give up memory, or if it
 * includes memory that was freed since. */
static uint64_t short_of(struct account *account, uint64_t need, uint64_t reserve)
{
    enter(account);
    if (!account->exact || account->freed)
        measure_unlocked(account, TO_REFUSE);
    struct limit_state state = state_of(account);
    leave(account);
    state.reserve = reserve;
    return limit_short(&state, need);
}

uint64_t account_short_to_take(struct account *account, uint64_t need)
{
    return short_of(account, need, account->state.reserve); /* constant since account_init */
}

uint64_t account_short_to_grow(struct account *account, uint64_t need)
{
    return short_of(account, need, 0);
}

uint64_t account_room_beside_others(struct account *account)
{
    const uint64_t max = ledger_max(account->ledger), others = ledger_used_by_others(account->ledger);

    enter(account);
    struct limit_state state = state_of(account);
    state.limit = sums_smaller(account->state.limit, sums_minus(max, others));
    leave(account);
    return limit_room(&state);
}

struct account_view account_view(struct account *account)
{
    measure(account, TO_TELL);
    struct account_view view = account_glance(account);
    if (shares(account))
        view.room = account_room_beside_others(account);
    return view;
}

struct account_view account_glance(struct account *account)
{
    struct account_view view;

    enter(account);
    const struct limit_state state = state_of(account);
    view.limit = state.limit;
    view.room = limit_room(&state);
    view.used = account->state.measured;
    view.charged = account->charged;
    view.measured = account->exact;
    leave(account);
    return view;
}

uint64_t account_known(struct account *account)
{
    enter(account);
    const uint64_t used = held(account);
    leave(account);
    return used;
}

uint64_t account_lower_lease(struct account *account)
{
    enter(account);
    const struct limit_state state = state_of(account);
    const uint64_t used = held(account); /* without what is in flight, which the driver may refuse */
    if (shares(account)) {
        const uint64_t leased = ledger_lease(account->ledger);
        const uint64_t needed = sums_smaller(sums_add(limit_taken(&state), account->awaited), leased);

        ledger_settle(account->ledger, state.measured > needed ? state.measured : needed);
    }
    leave(account);
    return used;
}

uint64_t account_settle_lease(struct account *account)
{
    measure(account, TO_TELL);
    return account_lower_lease(account);
}

int account_wait_for_budget(struct account *account, uint64_t need, uint64_t timeout_ms)
{
    if (!shares(account))
        return -ENOMEM;
    enter(account);
    const struct limit_state state = state_of(account);
    const uint64_t more = sums_add(need, state.reserve), least = sums_add(limit_taken(&state), more);
    const bool fits = least <= account->state.limit;
    account->awaited += fits ? more : 0;
    leave(account);
    const int rc = fits ? ledger_wait_for(account->ledger, need, least, timeout_ms) : -ENOMEM;
    if (rc && fits)
        account_end_wait(account, need);
    return rc;
}

void account_end_wait(struct account *account, uint64_t need)
{
    enter(account);
    account->awaited -= sums_add(need, account->state.reserve);
    leave(account);
}

void account_set_limit(struct account *account, uint64_t limit)
{
    enter(account);
    account->state.limit = limit;
    set_stale(account);
    leave(account);
}

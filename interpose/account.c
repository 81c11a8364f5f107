/* account: see account.h. */
#include "account.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define WAIT_FOR_OTHERS_MS 100 /* only a safety net: whoever is in flight signals */

void account_init(struct account *account, uint64_t limit, uint64_t reserve,
                  int (*measure)(void *context, uint64_t *bytes), void *context)
{
    memset(account, 0, sizeof *account);
    pthread_mutex_init(&account->lock, NULL);
    pthread_cond_init(&account->settled, NULL);
    account->state = (struct limit_state){.limit = limit, .reserve = reserve, .stale = true};
    account->measure = measure;
    account->context = context;
}

/* Takes an answer in, with the lock. `granted_before`: what had been granted when the question was asked. */
static void take_in(struct account *account, int rc, uint64_t bytes, uint64_t granted_before)
{
    if (rc) {
        account->state.measured = account->charged + ACCOUNT_CONTEXT_GUESS;
        account->state.unmeasured = 0;
        return;
    }
    account->state.measured = bytes + account->hidden;
    /* What was granted after the question may or may not be in the answer: count it again, never too little.
     */
    account->state.unmeasured = account->granted - granted_before;
}

/* Asks the driver and takes the answer in. Called without the lock. An estimate is good enough to grant by,
 * not to refuse by. */
static void measure(struct account *account, bool exact)
{
    uint64_t bytes = 0;

    pthread_mutex_lock(&account->lock);
    const uint64_t number = ++account->measurements;
    const uint64_t granted_before = account->granted, touches_before = account->touches;
    pthread_mutex_unlock(&account->lock);

    int rc = -ENODATA;
    if (!exact && account->estimate)
        rc = account->estimate(account->context, &bytes);
    exact = rc != 0;
    if (exact)
        rc = account->measure(account->context, &bytes);

    pthread_mutex_lock(&account->lock);
    /* A later question may have been answered first; an older figure must not hide what was freed in between.
     */
    if (number > account->newest) {
        account->newest = number;
        account->exact = exact;
        take_in(account, rc, bytes, granted_before);
        account->state.stale = account->touches != touches_before;
    }
    pthread_mutex_unlock(&account->lock);
}

/* Waits, holding the lock, until somebody's driver call is answered. Not a place to be cancelled at: the lock
 * would stay taken. */
static void wait_for_others(struct account *account)
{
    struct timespec until;
    int cancel;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WAIT_FOR_OTHERS_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    pthread_cond_timedwait(&account->settled, &account->lock, &until);
    pthread_setcancelstate(cancel, NULL);
}

/* Puts `need` bytes in flight if they fit beside `reserve`. `busy`: NULL, or where to say that others are in
 * the way instead of waiting for them. */
static bool take(struct account *account, uint64_t need, uint64_t reserve, bool *busy)
{
    bool fresh = false;

    pthread_mutex_lock(&account->lock);
    for (;;) {
        struct limit_state state = account->state;

        state.reserve = reserve;
        switch (limit_decide(&state, need, fresh)) {
        case LIMIT_GRANT:
            account->state.in_flight += need;
            pthread_mutex_unlock(&account->lock);
            return true;
        case LIMIT_REFUSE:
            if (!account->exact && fresh) {
                pthread_mutex_unlock(&account->lock);
                measure(account, true);
                pthread_mutex_lock(&account->lock);
                break;
            }
            pthread_mutex_unlock(&account->lock);
            return false;
        case LIMIT_WAIT:
            if (busy) {
                *busy = true;
                pthread_mutex_unlock(&account->lock);
                return false;
            }
            wait_for_others(account);
            fresh = false; /* what they took is now in no figure of ours but `unmeasured` */
            break;
        case LIMIT_MEASURE:
            pthread_mutex_unlock(&account->lock);
            measure(account, false);
            fresh = true;
            pthread_mutex_lock(&account->lock);
            break;
        }
    }
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
    pthread_mutex_lock(&account->lock);
    if (account->state.in_flight)
        wait_for_others(account);
    pthread_mutex_unlock(&account->lock);
}

void account_settle(struct account *account, uint64_t need, bool success, bool hidden)
{
    pthread_mutex_lock(&account->lock);
    account->state.in_flight -= need;
    if (success) {
        account->charged += need;
        account->granted += need;
        account->state.unmeasured += need;
        account->hidden += hidden ? need : 0;
    }
    pthread_cond_broadcast(&account->settled);
    pthread_mutex_unlock(&account->lock);
}

void account_give(struct account *account, uint64_t bytes, bool hidden)
{
    pthread_mutex_lock(&account->lock);
    account->charged -= bytes;
    account->hidden -= hidden ? bytes : 0;
    pthread_mutex_unlock(&account->lock);
}

void account_touch(struct account *account)
{
    pthread_mutex_lock(&account->lock);
    account->state.stale = true;
    account->touches++;
    pthread_mutex_unlock(&account->lock);
}

bool account_grow(struct account *account, uint64_t bytes)
{
    return take(account, bytes, 0, NULL);
}

void account_grown(struct account *account, uint64_t bytes)
{
    pthread_mutex_lock(&account->lock);
    account->state.in_flight -= bytes;
    account->state.stale = true;
    account->touches++;
    pthread_cond_broadcast(&account->settled);
    pthread_mutex_unlock(&account->lock);
}

/* An estimate is good enough to grant by, not to give up memory by. */
static uint64_t short_of(struct account *account, uint64_t need, uint64_t reserve)
{
    pthread_mutex_lock(&account->lock);
    if (!account->exact) {
        pthread_mutex_unlock(&account->lock);
        measure(account, true);
        pthread_mutex_lock(&account->lock);
    }
    struct limit_state state = account->state;
    pthread_mutex_unlock(&account->lock);
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

struct account_view account_view(struct account *account)
{
    struct account_view view;

    measure(account, true);
    pthread_mutex_lock(&account->lock);
    view.limit = account->state.limit;
    view.room = limit_room(&account->state);
    view.used = account->state.measured;
    pthread_mutex_unlock(&account->lock);
    return view;
}

void account_set_limit(struct account *account, uint64_t limit)
{
    pthread_mutex_lock(&account->lock);
    account->state.limit = limit;
    account->state.stale = true;
    account->touches++;
    pthread_mutex_unlock(&account->lock);
}

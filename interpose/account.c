/* account: see account.h. */
#include "account.h"

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

/* Asks the driver and takes the answer in. Called without the lock. */
static void measure(struct account *account)
{
    uint64_t bytes = 0;

    pthread_mutex_lock(&account->lock);
    const uint64_t granted_before = account->granted, touches_before = account->touches;
    pthread_mutex_unlock(&account->lock);

    int rc = account->measure(account->context, &bytes);

    pthread_mutex_lock(&account->lock);
    if (rc == 0)
        account->state.measured = bytes + account->hidden;
    else
        account->state.measured = account->charged + ACCOUNT_CONTEXT_GUESS;
    /* What was granted after the question may or may not be in the answer: count it again, never too little. */
    account->state.unmeasured = rc == 0 ? account->granted - granted_before : 0;
    account->state.stale = account->touches != touches_before;
    account->measurements++;
    pthread_mutex_unlock(&account->lock);
}

/* Waits, holding the lock, until somebody's driver call is answered. */
static void wait_for_others(struct account *account)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WAIT_FOR_OTHERS_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&account->settled, &account->lock, &until);
}

bool account_take(struct account *account, uint64_t need)
{
    bool fresh = false;

    pthread_mutex_lock(&account->lock);
    for (;;) {
        switch (limit_decide(&account->state, need, fresh)) {
        case LIMIT_GRANT:
            account->state.in_flight += need;
            pthread_mutex_unlock(&account->lock);
            return true;
        case LIMIT_REFUSE:
            account->refused++;
            pthread_mutex_unlock(&account->lock);
            return false;
        case LIMIT_WAIT:
            wait_for_others(account);
            fresh = false; /* what they took is now in no figure of ours but `unmeasured` */
            break;
        case LIMIT_MEASURE:
            pthread_mutex_unlock(&account->lock);
            measure(account);
            fresh = true;
            pthread_mutex_lock(&account->lock);
            break;
        }
    }
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

bool account_allows_growth(struct account *account, uint64_t bytes)
{
    measure(account);
    pthread_mutex_lock(&account->lock);
    bool allowed = limit_allows_growth(&account->state, bytes);
    pthread_mutex_unlock(&account->lock);
    return allowed;
}

struct account_view account_view(struct account *account)
{
    struct account_view view;

    measure(account);
    pthread_mutex_lock(&account->lock);
    view.limit = account->state.limit;
    view.room = limit_room(&account->state);
    view.used = account->state.measured;
    pthread_mutex_unlock(&account->lock);
    return view;
}

void account_lock_for_fork(struct account *account)
{
    pthread_mutex_lock(&account->lock);
}

void account_unlock_after_fork(struct account *account)
{
    pthread_mutex_unlock(&account->lock);
}

/* account: see account.h. */
#include "account.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define WAIT_FOR_OTHERS_MS 100 /* only a safety net: a thread in flight signals */

static atomic_bool unseen; /* memory may be taken past the hooks; for good */

void account_expect_unseen(void)
{
    atomic_store(&unseen, true);
}

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

/* One question to the driver. */
struct question {
    uint64_t number;
    uint64_t granted, pooled, touches; /* as they were when it was asked */
    int rc;
    uint64_t bytes; /* the answer */
    uint64_t held;  /* without an answer: what the driver's own pools hold */
    uint64_t bound; /* and all that is used on the card, if that is known */
};

/* Takes an answer in, with the lock. What was granted after the question may or may not be in the answer: it
 * is counted again, never too little. */
static void take_in(struct account *account, const struct question *question)
{
    struct limit_state *state = &account->state;
    const uint64_t guess = account->charged + ACCOUNT_CONTEXT_GUESS + account->grown + question->held;

    if (question->rc && guess <= question->bound) {
        state->measured = guess;
        state->unmeasured = account->pooled - question->pooled;
    } else {
        state->measured = (question->rc ? question->bound : question->bytes) + account->hidden;
        state->unmeasured = account->granted - question->granted;
    }
}

/* What a figure is for. An estimate is good enough to grant by, not to refuse by; and what a program is told must
 * not depend on what other processes use, as the bound does. */
enum purpose { TO_GRANT, TO_REFUSE, TO_TELL };

/* Asks the driver. Returns false if the answer is not one to refuse by. */
static bool ask(struct account *account, enum purpose purpose, struct question *question)
{
    question->rc = -ENODATA;
    question->bound = UINT64_MAX;
    if (purpose == TO_GRANT && account->estimate)
        question->rc = account->estimate(account->context, &question->bytes);
    if (question->rc == 0)
        return false;
    question->rc = account->measure(account->context, &question->bytes);
    if (question->rc && account->held)
        question->held = account->held(account->context);
    if (question->rc && purpose != TO_TELL && account->estimate &&
        account->estimate(account->context, &question->bound))
        question->bound = UINT64_MAX;
    return !question->rc || purpose != TO_TELL;
}

/* Asks the driver and takes the answer in. Called without the lock. */
static void measure(struct account *account, enum purpose purpose)
{
    struct question question = {0};

    pthread_mutex_lock(&account->lock);
    question.number = ++account->measurements;
    question.granted = account->granted;
    question.pooled = account->pooled;
    question.touches = account->touches;
    pthread_mutex_unlock(&account->lock);
    const bool exact = ask(account, purpose, &question);
    pthread_mutex_lock(&account->lock);
    /* A later question may have been answered first; an older figure must not hide what was freed in between.
     */
    if (question.number > account->newest) {
        account->newest = question.number;
        account->exact = exact;
        take_in(account, &question);
        account->state.stale = account->touches != question.touches;
    }
    pthread_mutex_unlock(&account->lock);
}

/* Waits, holding the lock, until another thread's driver call is answered. The thread is not cancelled here:
 * the lock would stay taken. */
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
        state.stale = state.stale || (!fresh && atomic_load_explicit(&unseen, memory_order_relaxed));
        switch (limit_decide(&state, need, fresh)) {
        case LIMIT_GRANT:
            account->state.in_flight += need;
            pthread_mutex_unlock(&account->lock);
            return true;
        case LIMIT_REFUSE:
            if (!account->exact && fresh) {
                pthread_mutex_unlock(&account->lock);
                measure(account, TO_REFUSE);
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
            measure(account, TO_GRANT);
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

void account_settle_pooled(struct account *account, uint64_t need, uint64_t growth)
{
    pthread_mutex_lock(&account->lock);
    account->state.in_flight -= need;
    account->granted += growth;
    account->pooled += growth;
    account->state.unmeasured += growth;
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

void account_grown(struct account *account, uint64_t bytes, bool lasting)
{
    pthread_mutex_lock(&account->lock);
    account->state.in_flight -= bytes;
    account->grown += lasting ? bytes : 0;
    account->state.stale = true;
    account->touches++;
    pthread_cond_broadcast(&account->settled);
    pthread_mutex_unlock(&account->lock);
}

void account_forget_growth(struct account *account, uint64_t bytes)
{
    pthread_mutex_lock(&account->lock);
    account->grown -= bytes < account->grown ? bytes : account->grown;
    account->state.stale = true;
    account->touches++;
    pthread_mutex_unlock(&account->lock);
}

uint64_t account_room(struct account *account)
{
    pthread_mutex_lock(&account->lock);
    const uint64_t room = limit_room(&account->state);
    pthread_mutex_unlock(&account->lock);
    return room;
}

/* An estimate is good enough to grant by, not to give up memory by. */
static uint64_t short_of(struct account *account, uint64_t need, uint64_t reserve)
{
    pthread_mutex_lock(&account->lock);
    if (!account->exact) {
        pthread_mutex_unlock(&account->lock);
        measure(account, TO_REFUSE);
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

    measure(account, TO_TELL);
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

/* account: many threads against a fake driver whose use is known at every instant. The fake has no lock: one
 * atomic sum is the card, and each thread that adds to it checks the limit. */
#include "interpose/account/account.h"
#include "tests/unit/interpose/apart.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#define MB      (UINT64_C(1) << 20)
#define PAGE    LIMIT_PAGE
#define LIMIT   (1024 * MB)
#define RESERVE (64 * MB)
#define CONTEXT (100 * MB) /* what the fake context takes; less than ACCOUNT_CONTEXT_GUESS */
#define THREADS 16
#define ROUNDS  400
#define HELD    8 /* blocks per thread */

static struct account account;
static _Atomic uint64_t truth;
static _Atomic uint64_t hidden_truth; /* part of truth that the fake does not show */
static atomic_bool overshot;
static atomic_int blind_every; /* n: every n-th question is answered with an error; 0: none */
static atomic_uint questions;
static atomic_bool not_woken;

/* A thread that waits for others is woken when they settle: it need not count on looking again after a while.
 * (The end of a promise may be missed, as it takes no lock: no test here makes a thread wait for one.) */
int __real_pthread_cond_timedwait(pthread_cond_t *changed, pthread_mutex_t *lock,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *changed, pthread_mutex_t *lock,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *changed, pthread_mutex_t *lock,
                                  const struct timespec *until)
{
    const struct timespec late = {until->tv_sec + 100, until->tv_nsec};
    const int rc = __real_pthread_cond_timedwait(changed, lock, &late);

    if (rc)
        atomic_store(&not_woken, true);
    return rc;
}

static void pause_a_little(unsigned *seed)
{
    for (int n = rand_r(seed) % 4; n > 0; n--)
        sched_yield();
}

static int ask_driver(void *context, uint64_t *bytes)
{
    const unsigned number = atomic_fetch_add(&questions, 1);
    const int every = atomic_load(&blind_every);
    unsigned seed = number;

    TEST_ASSERT_EQUAL_PTR(&account, context);
    if (every && number % (unsigned)every == 0)
        return -ENODATA;
    pause_a_little(&seed);
    *bytes = atomic_load(&truth) - atomic_load(&hidden_truth);
    pause_a_little(&seed);
    return 0;
}

static void driver_takes(uint64_t bytes)
{
    if (atomic_fetch_add(&truth, bytes) + bytes > LIMIT)
        atomic_store(&overshot, true);
}

void setUp(void)
{
    atomic_store(&truth, CONTEXT);
    atomic_store(&hidden_truth, 0);
    atomic_store(&overshot, false);
    atomic_store(&blind_every, 0);
    atomic_store(&questions, 1);
    account_init(&account, LIMIT, RESERVE, ask_driver, &account);
}

void tearDown(void)
{
    pthread_mutex_destroy(&account.lock);
    pthread_cond_destroy(&account.settled);
    TEST_ASSERT_FALSE(atomic_load(&not_woken));
}

/* Grant, driver call, settle; true if the block is there. */
static bool allocate(uint64_t bytes, bool driver_fails, unsigned *seed)
{
    if (!account_take(&account, bytes))
        return false;
    pause_a_little(seed);
    if (!driver_fails)
        driver_takes(bytes);
    pause_a_little(seed);
    account_settle(&account, bytes, !driver_fails, false);
    return !driver_fails;
}

static void release(uint64_t bytes, unsigned *seed)
{
    pause_a_little(seed);
    atomic_fetch_sub(&truth, bytes);
    pause_a_little(seed);
    account_give(&account, bytes, false);
}

static void *churn(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument * 7919u + 1;
    uint64_t held[HELD] = {0};

    for (int round = 0; round < ROUNDS && !atomic_load(&overshot); round++) {
        uint64_t *block = &held[rand_r(&seed) % HELD];

        if (*block) {
            release(*block, &seed);
            *block = 0;
            continue;
        }
        uint64_t bytes = PAGE * (uint64_t)(1 + rand_r(&seed) % 40);
        if (allocate(bytes, rand_r(&seed) % 10 == 0, &seed))
            *block = bytes;
    }
    for (int i = 0; i < HELD; i++) {
        if (held[i])
            release(held[i], &seed);
    }
    return NULL;
}

/* The driver grows by itself and shrinks again, as a context with streams does. */
static void *grow_and_shrink(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument * 104729u + 5;

    for (int round = 0; round < ROUNDS && !atomic_load(&overshot); round++) {
        uint64_t bytes = PAGE * (uint64_t)(1 + rand_r(&seed) % 4);

        if (!account_grow_begin(&account, bytes))
            continue;
        pause_a_little(&seed);
        driver_takes(bytes);
        pause_a_little(&seed);
        account_grow_end(&account, bytes, false);
        pause_a_little(&seed);
        atomic_fetch_sub(&truth, bytes);
    }
    return NULL;
}

static void run_threads(int count, void *(*even)(void *), void *(*odd)(void *))
{
    pthread_t threads[THREADS];

    for (int i = 0; i < count; i++)
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[i], NULL, i % 2 ? odd : even, (void *)(uintptr_t)i));
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static void nothing_is_left(void)
{
    TEST_ASSERT_FALSE_MESSAGE(atomic_load(&overshot), "the truth passed the limit");
    TEST_ASSERT_EQUAL_UINT64(CONTEXT, atomic_load(&truth));
    TEST_ASSERT_EQUAL_UINT64(0, account.charged);
    TEST_ASSERT_EQUAL_UINT64(0, account.hidden);
    TEST_ASSERT_EQUAL_UINT64(0, account.state.in_flight);
    atomic_store(&blind_every, 0);
    TEST_ASSERT_EQUAL_UINT64(LIMIT - RESERVE - CONTEXT, account_view(&account).room);
}

static void test_racing_threads_never_pass_the_limit_by_a_byte(void)
{
    run_threads(THREADS, churn, churn);
    nothing_is_left();
}

static void test_racing_allocations_and_driver_growth_never_pass_the_limit(void)
{
    run_threads(THREADS, churn, grow_and_shrink);
    nothing_is_left();
}

static void test_the_limit_holds_while_measurements_fail_now_and_then(void)
{
    atomic_store(&blind_every, 3);
    run_threads(THREADS, churn, churn);
    nothing_is_left();
}

static void test_what_is_said_to_be_free_can_be_taken_to_the_last_page(void)
{
    unsigned seed = 1;

    TEST_ASSERT_TRUE(allocate(300 * MB, false, &seed));
    uint64_t room = account_view(&account).room;
    TEST_ASSERT_EQUAL_UINT64(LIMIT - RESERVE - CONTEXT - 300 * MB, room);
    TEST_ASSERT_TRUE(allocate(room, false, &seed));
    TEST_ASSERT_EQUAL_UINT64(0, account_view(&account).room);
    TEST_ASSERT_FALSE(allocate(PAGE, false, &seed));
    TEST_ASSERT_EQUAL_UINT64(LIMIT - RESERVE, atomic_load(&truth));
}

static void test_what_was_taken_since_the_last_measurement_is_known(void)
{
    unsigned seed = 1;

    account_view(&account); /* measures */
    TEST_ASSERT_TRUE(allocate(2 * PAGE, false, &seed));
    TEST_ASSERT_EQUAL_UINT64(CONTEXT + 2 * PAGE, account_known(&account));
    release(PAGE, &seed);
    TEST_ASSERT_EQUAL_UINT64(CONTEXT + PAGE, account_known(&account));
}

static void test_freed_memory_can_be_taken_again_at_once(void)
{
    unsigned seed = 1;

    for (int i = 0; i < 100; i++) {
        TEST_ASSERT_TRUE(allocate(LIMIT - RESERVE - CONTEXT, false, &seed));
        TEST_ASSERT_FALSE(allocate(PAGE, false, &seed));
        release(LIMIT - RESERVE - CONTEXT, &seed);
    }
}

static void test_what_is_missing_does_not_include_what_was_freed(void)
{
    unsigned seed = 1;

    TEST_ASSERT_TRUE(allocate(LIMIT - RESERVE - CONTEXT, false, &seed));
    TEST_ASSERT_EQUAL_UINT64(8 * PAGE, account_short_to_take(&account, 8 * PAGE));
    release(6 * PAGE, &seed);
    TEST_ASSERT_EQUAL_UINT64(2 * PAGE, account_short_to_take(&account, 8 * PAGE));
    TEST_ASSERT_EQUAL_UINT64(0, account_short_to_grow(&account, 8 * PAGE));
}

static void test_a_driver_call_that_fails_leaves_the_account_as_it_was(void)
{
    unsigned seed = 1;

    TEST_ASSERT_TRUE(allocate(200 * MB, false, &seed));
    const struct account_view before = account_view(&account);
    const struct limit_state state = account.state;
    const uint64_t charged = account.charged;
    for (int i = 0; i < 1000; i++) {
        TEST_ASSERT_FALSE(allocate(PAGE * (uint64_t)(1 + i % 100), true, &seed));
        TEST_ASSERT_EQUAL_UINT64(charged, account.charged);
        TEST_ASSERT_EQUAL_UINT64(0, account.state.in_flight);
    }
    const struct account_view after = account_view(&account);
    TEST_ASSERT_EQUAL_UINT64(before.room, after.room);
    TEST_ASSERT_EQUAL_UINT64(before.used, after.used);
    TEST_ASSERT_EQUAL_UINT64(state.measured, account.state.measured);
}

static void test_far_from_the_limit_the_driver_is_hardly_asked(void)
{
    unsigned seed = 1;

    for (int i = 0; i < 100; i++)
        TEST_ASSERT_TRUE(allocate(PAGE, false, &seed));
    TEST_ASSERT_TRUE_MESSAGE(atomic_load(&questions) - 1 <= 2, "a measurement for every block");
}

/* A thread that asks for more than is left while the rest is in flight. */
struct asker {
    uint64_t bytes;
    bool granted;
    atomic_bool done;
};

static void *ask_and_settle(void *argument)
{
    struct asker *asker = argument;

    asker->granted = account_take(&account, asker->bytes);
    atomic_store(&asker->done, true);
    if (asker->granted)
        account_settle(&account, asker->bytes, false, false);
    return NULL;
}

/* Until the asker has measured and must be waiting. */
static void let_it_wait(unsigned before)
{
    while (atomic_load(&questions) == before)
        sched_yield();
    for (int i = 0; i < 1000; i++)
        sched_yield();
}

static void wait_behind_one(bool first_succeeds)
{
    const uint64_t half = (LIMIT - RESERVE - CONTEXT) / 2 + PAGE;
    struct asker asker = {.bytes = half / PAGE * PAGE};
    pthread_t thread;

    TEST_ASSERT_TRUE(account_take(&account, asker.bytes));
    unsigned before = atomic_load(&questions);
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, ask_and_settle, &asker));
    let_it_wait(before);
    TEST_ASSERT_FALSE_MESSAGE(atomic_load(&asker.done), "answered before the other's fate was known");
    if (first_succeeds)
        driver_takes(asker.bytes);
    account_settle(&account, asker.bytes, first_succeeds, false);
    pthread_join(thread, NULL);
    TEST_ASSERT_EQUAL_INT(!first_succeeds, asker.granted);
}

static void test_a_request_waits_for_others_in_flight_and_gets_what_they_did_not(void)
{
    wait_behind_one(false);
}

static void test_a_request_waits_for_others_in_flight_and_is_refused_after_they_took_it(void)
{
    wait_behind_one(true);
}

static void test_a_request_waits_for_growth_in_flight_and_gets_what_it_left(void)
{
    const uint64_t half = ((LIMIT - RESERVE - CONTEXT) / 2 + PAGE) / PAGE * PAGE;
    struct asker asker = {.bytes = half};
    pthread_t thread;

    TEST_ASSERT_TRUE(account_grow_begin(&account, half + RESERVE));
    const unsigned before = atomic_load(&questions);
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, ask_and_settle, &asker));
    let_it_wait(before);
    account_grow_end(&account, half + RESERVE, false);
    pthread_join(thread, NULL);
    TEST_ASSERT_TRUE(asker.granted);
}

static void test_who_holds_a_lock_is_told_of_others_in_flight_and_does_not_wait(void)
{
    const uint64_t bytes = ((LIMIT - RESERVE - CONTEXT) / 2 + PAGE) / PAGE * PAGE;
    bool busy = true;

    TEST_ASSERT_TRUE(account_try(&account, bytes, &busy));
    TEST_ASSERT_FALSE(busy);
    TEST_ASSERT_FALSE(account_try(&account, bytes, &busy));
    TEST_ASSERT_TRUE(busy);
    account_settle(&account, bytes, false, false);
    account_await(&account); /* no request is in flight */
    TEST_ASSERT_TRUE(account_try(&account, bytes, &busy));
    account_settle(&account, bytes, false, false);
    TEST_ASSERT_FALSE(account_try(&account, LIMIT, &busy));
    TEST_ASSERT_FALSE_MESSAGE(busy, "could never fit");
}

static void *ask_until_cancelled(void *argument)
{
    struct asker *asker = argument;

    asker->granted = account_take(&account, asker->bytes);
    if (asker->granted)
        account_settle(&account, asker->bytes, false, false);
    atomic_store(&asker->done, true);
    pthread_testcancel();
    return NULL;
}

static void test_a_thread_cancelled_while_it_waits_leaves_no_lock_behind(void)
{
    const uint64_t bytes = ((LIMIT - RESERVE - CONTEXT) / 2 + PAGE) / PAGE * PAGE;
    struct asker asker = {.bytes = bytes};
    pthread_t thread;
    void *end;

    TEST_ASSERT_TRUE(account_take(&account, bytes));
    unsigned before = atomic_load(&questions);
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, ask_until_cancelled, &asker));
    let_it_wait(before);
    pthread_cancel(thread);
    account_settle(&account, bytes, false, false);
    pthread_join(thread, &end);
    TEST_ASSERT_TRUE(atomic_load(&asker.done)); /* the call itself was not torn apart */
    TEST_ASSERT_TRUE(end == PTHREAD_CANCELED);
    TEST_ASSERT_EQUAL_UINT64(0, account.state.in_flight);
    TEST_ASSERT_EQUAL_UINT64(LIMIT - RESERVE - CONTEXT, account_view(&account).room);
}

static atomic_bool stop;

static void *churn_until_told(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument + 1;

    while (!atomic_load(&stop)) {
        if (allocate(PAGE, false, &seed))
            release(PAGE, &seed);
    }
    return NULL;
}

/* A time limit of the whole test is the assertion. */
static void test_a_hopeless_request_is_refused_though_others_never_rest(void)
{
    pthread_t threads[4];
    unsigned seed = 1;

    atomic_store(&stop, false);
    TEST_ASSERT_TRUE(allocate(600 * MB, false, &seed));
    for (int i = 0; i < 4; i++)
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[i], NULL, churn_until_told, (void *)(uintptr_t)i));
    for (int i = 0; i < 200; i++)
        TEST_ASSERT_FALSE(account_take(&account, 500 * MB));
    atomic_store(&stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

/* One question that is answered late: it has read the figure, and then sleeps. */
static atomic_int late; /* 0: off; 1: the next question is late; 2: it sleeps; 3: it may go on */

static int ask_late(void *context, uint64_t *bytes)
{
    int next = 1;

    *bytes = atomic_load(&truth);
    if (atomic_compare_exchange_strong(&late, &next, 2)) {
        while (atomic_load(&late) != 3)
            sched_yield();
    }
    return context == &account ? 0 : -EINVAL;
}

static void *look(void *unused)
{
    (void)unused;
    account_view(&account);
    return NULL;
}

static void test_an_old_answer_that_comes_late_does_not_hide_what_was_freed(void)
{
    const uint64_t all = LIMIT - RESERVE - CONTEXT;
    unsigned seed = 1;
    pthread_t thread;

    account.measure = ask_late;
    TEST_ASSERT_TRUE(allocate(all, false, &seed));
    atomic_store(&late, 1);
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, look, NULL));
    while (atomic_load(&late) != 2)
        sched_yield();
    release(all, &seed);
    TEST_ASSERT_EQUAL_UINT64(all, account_view(&account).room);
    atomic_store(&late, 3);
    pthread_join(thread, NULL);
    TEST_ASSERT_EQUAL_UINT64(CONTEXT, account.state.measured);
    TEST_ASSERT_TRUE(allocate(all, false, &seed));
}

static void test_growth_during_a_measurement_is_measured_before_the_next_grant(void)
{
    const uint64_t all = LIMIT - RESERVE - CONTEXT;
    unsigned seed = 1;
    pthread_t thread;

    account.measure = ask_late;
    account_view(&account);
    atomic_store(&late, 1);
    struct asker asker = {.bytes = all};
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, ask_and_settle, &asker));
    while (atomic_load(&late) != 2)
        sched_yield();
    driver_takes(PAGE); /* the driver grows by itself, after it has answered */
    account_touch(&account);
    atomic_store(&late, 3);
    pthread_join(thread, NULL);
    TEST_ASSERT_FALSE_MESSAGE(asker.granted, "granted on a figure from before the growth");
    TEST_ASSERT_TRUE(allocate(all - PAGE, false, &seed));
}

static void test_the_driver_may_use_the_reserve_and_no_more(void)
{
    unsigned seed = 1;

    TEST_ASSERT_TRUE(allocate(LIMIT - RESERVE - CONTEXT, false, &seed));
    TEST_ASSERT_FALSE(account_grow_begin(&account, RESERVE + PAGE));
    TEST_ASSERT_TRUE(account_grow_begin(&account, RESERVE));
    driver_takes(RESERVE);
    account_grow_end(&account, RESERVE, false);
    TEST_ASSERT_FALSE(account_grow_begin(&account, PAGE));
    TEST_ASSERT_EQUAL_UINT64(0, account_view(&account).room);
    TEST_ASSERT_EQUAL_UINT64(LIMIT, account_view(&account).used);
    TEST_ASSERT_FALSE(atomic_load(&overshot));
}

static void test_without_a_measurement_the_books_and_a_guess_are_the_limit(void)
{
    const uint64_t room = LIMIT - RESERVE - ACCOUNT_CONTEXT_GUESS;
    unsigned seed = 1;

    atomic_store(&blind_every, 1);
    TEST_ASSERT_EQUAL_UINT64(room, account_view(&account).room);
    for (uint64_t taken = 0; taken < room; taken += 10 * PAGE)
        TEST_ASSERT_TRUE(allocate(10 * PAGE, false, &seed));
    TEST_ASSERT_FALSE(allocate(PAGE, false, &seed));
    release(10 * PAGE, &seed);
    TEST_ASSERT_EQUAL_UINT64(10 * PAGE, account_view(&account).room);
    TEST_ASSERT_TRUE(allocate(10 * PAGE, false, &seed));
    TEST_ASSERT_FALSE(allocate(PAGE, false, &seed));
}

static void test_without_a_measurement_only_growth_that_lasts_is_counted(void)
{
    const uint64_t room = LIMIT - RESERVE - ACCOUNT_CONTEXT_GUESS;

    atomic_store(&blind_every, 1);
    TEST_ASSERT_TRUE(account_grow_begin(&account, 4 * PAGE));
    account_grow_end(&account, 4 * PAGE, false);
    TEST_ASSERT_EQUAL_UINT64(room, account_view(&account).room);
    TEST_ASSERT_TRUE(account_grow_begin(&account, 4 * PAGE));
    account_grow_end(&account, 4 * PAGE, true);
    TEST_ASSERT_EQUAL_UINT64(room - 4 * PAGE, account_view(&account).room);
    account_forget_growth(&account, 5 * PAGE);
    TEST_ASSERT_EQUAL_UINT64(room, account_view(&account).room);
}

static void test_without_a_measurement_growth_is_counted_at_the_next_request(void)
{
    atomic_store(&blind_every, 1);
    account_add_growth(&account, account_view(&account).room);
    TEST_ASSERT_FALSE(account_take(&account, PAGE));
}

static void the_next_request_asks(bool asks)
{
    const unsigned before = atomic_load(&questions);
    unsigned seed = 1;

    TEST_ASSERT_TRUE(allocate(PAGE, false, &seed));
    TEST_ASSERT_EQUAL_INT(asks, atomic_load(&questions) != before);
}

static void test_a_change_that_may_be_in_the_figure_has_the_driver_asked_again(void)
{
    account_view(&account);
    the_next_request_asks(false);
    account_add_growth(&account, PAGE);
    the_next_request_asks(true);
    account_forget_growth(&account, PAGE);
    the_next_request_asks(true);
    account_set_limit(&account, LIMIT / 2);
    the_next_request_asks(true);
    the_next_request_asks(false);
}

static void test_without_a_measurement_no_context_is_counted_before_there_is_one(void)
{
    static atomic_bool present;

    atomic_store(&blind_every, 1);
    account.present = &present;
    TEST_ASSERT_EQUAL_UINT64(LIMIT - RESERVE, account_view(&account).room);
    atomic_store(&present, true);
    TEST_ASSERT_EQUAL_UINT64(LIMIT - RESERVE - ACCOUNT_CONTEXT_GUESS, account_view(&account).room);
}

static int has_no_context(void *context, uint64_t *bytes)
{
    (void)context;
    *bytes = 0;
    return -ENOENT;
}

/* Libraries that are bound past the hooks may make contexts that we do not see, but not on a card where the
 * driver says that there is none. */
static void test_an_unseen_context_is_counted_only_where_there_may_be_one(void)
{
    static atomic_bool present;

    account.present = &present;
    account_expect_unseen();
    account.measure = has_no_context;
    TEST_ASSERT_EQUAL_UINT64(LIMIT - RESERVE, account_view(&account).room);
    account.measure = ask_driver;
    atomic_store(&blind_every, 1);
    TEST_ASSERT_EQUAL_UINT64(LIMIT - RESERVE - ACCOUNT_CONTEXT_GUESS, account_view(&account).room);
}

/* A pool of the driver's grows right after it was asked what it holds. */
static uint64_t held_before_growth(void *context)
{
    static bool grown;

    if (!grown)
        account_settle_pooled(context, 10 * PAGE, 10 * PAGE);
    grown = true;
    return 0;
}

static uint64_t held_after_growth(void *context)
{
    (void)context;
    return 10 * PAGE;
}

static void test_without_a_measurement_growth_of_a_pool_beside_the_question_counts(void)
{
    atomic_store(&blind_every, 1);
    TEST_ASSERT_TRUE(account_take(&account, 10 * PAGE));
    account.held = held_before_growth;
    const uint64_t room = account_view(&account).room;
    account.held = NULL;
    TEST_ASSERT_EQUAL_UINT64(LIMIT - RESERVE - ACCOUNT_CONTEXT_GUESS - 10 * PAGE, room);
    account.held = held_after_growth; /* the next answer includes it */
    TEST_ASSERT_EQUAL_UINT64(room, account_view(&account).room);
}

/* A request is settled right after the driver was asked; its memory is not in the answer. */
static uint64_t settled_now; /* bytes; 0: none */
static bool settled_in_pool;

static int ask_before_a_settlement(void *context, uint64_t *bytes)
{
    const uint64_t settled = settled_now;

    TEST_ASSERT_EQUAL_PTR(&account, context);
    *bytes = atomic_load(&truth);
    settled_now = 0;
    if (settled)
        driver_takes(settled);
    if (settled && settled_in_pool)
        account_settle_pooled(&account, settled, settled);
    else if (settled)
        account_settle(&account, settled, true, false);
    return 0;
}

static void test_what_is_settled_during_a_measurement_counts_beside_its_figure(void)
{
    account.measure = ask_before_a_settlement;
    account_view(&account);
    for (uint64_t n = 1; n <= 2; n++) {
        TEST_ASSERT_TRUE(account_take(&account, 100 * MB));
        settled_now = 100 * MB;
        settled_in_pool = n == 2;
        TEST_ASSERT_EQUAL_UINT64(LIMIT - RESERVE - CONTEXT - n * 100 * MB, account_view(&account).room);
    }
}

/* The whole card's figure: ours and a neighbour's. */
static _Atomic uint64_t neighbour;
static atomic_uint estimates;

static int estimate(void *context, uint64_t *bytes)
{
    unsigned seed = atomic_fetch_add(&estimates, 1);

    pause_a_little(&seed);
    *bytes = atomic_load(&truth) + atomic_load(&neighbour);
    pause_a_little(&seed);
    return context == &account ? 0 : -EINVAL;
}

static void test_an_estimate_is_good_enough_to_grant_by_and_not_to_refuse_by(void)
{
    unsigned seed = 1;

    account.estimate = estimate;
    atomic_store(&neighbour, 0);
    TEST_ASSERT_TRUE(allocate(400 * MB, false, &seed));
    TEST_ASSERT_EQUAL_UINT(1, atomic_load(&questions)); /* the slow one was not asked */
    atomic_store(&neighbour, LIMIT);                    /* other processes fill the card */
    TEST_ASSERT_TRUE(allocate(LIMIT - RESERVE - CONTEXT - 400 * MB, false, &seed));
    TEST_ASSERT_FALSE(allocate(PAGE, false, &seed));
    TEST_ASSERT_EQUAL_UINT64(LIMIT - RESERVE, atomic_load(&truth));
    TEST_ASSERT_EQUAL_UINT64(LIMIT - RESERVE, account_view(&account).used);
}

/* A figure for the program does not change with what other processes use. */
static void test_without_a_measurement_no_estimate_is_told(void)
{
    account.estimate = estimate;
    atomic_store(&neighbour, 0);
    atomic_store(&blind_every, 1);
    TEST_ASSERT_EQUAL_UINT64(LIMIT - RESERVE - ACCOUNT_CONTEXT_GUESS, account_view(&account).room);
    TEST_ASSERT_FALSE(account_view(&account).measured);
}

static int estimate_in_vain(void *context, uint64_t *bytes)
{
    (void)context;
    *bytes = 0;
    return -ENODATA;
}

static void test_without_any_figure_the_books_and_a_guess_are_the_limit(void)
{
    const uint64_t room = LIMIT - RESERVE - ACCOUNT_CONTEXT_GUESS;

    account.estimate = estimate_in_vain;
    atomic_store(&blind_every, 1);
    TEST_ASSERT_FALSE(account_take(&account, room + PAGE));
    TEST_ASSERT_TRUE(account_take(&account, room));
}

static void test_racing_threads_with_estimates_never_pass_the_limit(void)
{
    account.estimate = estimate;
    atomic_store(&neighbour, 200 * MB);
    run_threads(THREADS, churn, grow_and_shrink);
    nothing_is_left();
}

static void test_memory_that_the_driver_does_not_show_counts_all_the_same(void)
{
    const uint64_t managed = 500 * MB;

    TEST_ASSERT_TRUE(account_take(&account, managed));
    driver_takes(managed);
    atomic_fetch_add(&hidden_truth, managed);
    account_settle(&account, managed, true, true);
    TEST_ASSERT_EQUAL_UINT64(LIMIT - RESERVE - CONTEXT - managed, account_view(&account).room);
    TEST_ASSERT_FALSE(account_take(&account, managed));
    atomic_fetch_sub(&hidden_truth, managed);
    atomic_fetch_sub(&truth, managed);
    account_give(&account, managed, true);
    nothing_is_left();
}

static void test_a_limit_below_the_context_leaves_nothing_and_does_not_wrap(void)
{
    account_init(&account, 50 * MB, RESERVE, ask_driver, &account);
    TEST_ASSERT_EQUAL_UINT64(0, account_view(&account).room);
    TEST_ASSERT_FALSE(account_take(&account, PAGE));
    TEST_ASSERT_FALSE(account_grow_begin(&account, PAGE));
    TEST_ASSERT_FALSE(account_take(&account, UINT64_MAX));
}

static void test_a_limit_set_below_what_is_used_refuses_and_does_not_wrap(void)
{
    unsigned seed = 1;

    TEST_ASSERT_TRUE(allocate(500 * MB, false, &seed));
    account_set_limit(&account, 300 * MB);
    TEST_ASSERT_EQUAL_UINT64(0, account_view(&account).room);
    TEST_ASSERT_EQUAL_UINT64(600 * MB, account_view(&account).used);
    TEST_ASSERT_FALSE(allocate(PAGE, false, &seed));
    TEST_ASSERT_FALSE(account_grow_begin(&account, PAGE));
    account_set_limit(&account, 800 * MB);
    TEST_ASSERT_EQUAL_UINT64(800 * MB - RESERVE - 600 * MB, account_view(&account).room);
    TEST_ASSERT_TRUE(allocate(800 * MB - RESERVE - 600 * MB, false, &seed));
    TEST_ASSERT_FALSE(allocate(PAGE, false, &seed));
}

/* ---- the driver's own pools ---- */

static int looks;
static bool promised_meanwhile;

static void note_look(void *context)
{
    TEST_ASSERT_EQUAL_PTR(&account, context);
    looks++;
}

/* A request for the driver's pool comes while the driver is asked. */
static int ask_beside_a_request(void *context, uint64_t *bytes)
{
    if (account_promise(&account, PAGE)) {
        promised_meanwhile = true;
        account_forget_promise(&account, PAGE);
    }
    return ask_driver(context, bytes);
}

static void test_growth_behind_a_promise_is_counted_at_once(void)
{
    account_view(&account);
    const uint64_t room = account_room(&account);
    TEST_ASSERT_TRUE(account_promise(&account, 10 * PAGE));
    account_settle_promise(&account, 10 * PAGE, 10 * PAGE);
    TEST_ASSERT_EQUAL_UINT64(room - 10 * PAGE, account_room(&account));
}

static void test_nothing_is_promised_while_the_driver_is_asked(void)
{
    account_init(&account, LIMIT, RESERVE, ask_beside_a_request, &account);
    account.look_again = note_look;
    promised_meanwhile = false;
    for (int i = 0; i < 2; i++) { /* before the first answer no promise is made anyway */
        looks = 0;
        account_view(&account);
        TEST_ASSERT_FALSE(promised_meanwhile);
        TEST_ASSERT_EQUAL_INT(2, looks); /* at the pools, before and after */
    }
    TEST_ASSERT_TRUE(account_promise(&account, PAGE)); /* and then again */
    account_forget_promise(&account, PAGE);
    account_touch(&account); /* the figure is too old */
    TEST_ASSERT_FALSE(account_promise(&account, PAGE));
}

/* The pool of the driver's gave 128 MiB back before the answer and took them again after it: it has not
 * grown. */
static void test_a_request_in_flight_during_a_measurement_is_counted(void)
{
    account_view(&account);
    TEST_ASSERT_TRUE(account_promise(&account, 128 * MB));
    TEST_ASSERT_FALSE(account_promise(&account, UINT64_MAX)); /* the sum would wrap */
    account_view(&account);
    account_settle_promise(&account, 128 * MB, 0);
    atomic_fetch_add(&truth, 128 * MB);
    TEST_ASSERT_EQUAL_UINT64(LIMIT - RESERVE - CONTEXT - 128 * MB, account_room(&account));
    TEST_ASSERT_EQUAL_UINT64(LIMIT - RESERVE - CONTEXT - 128 * MB, account_view(&account).room);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_racing_threads_never_pass_the_limit_by_a_byte);
    RUN_TEST(test_racing_allocations_and_driver_growth_never_pass_the_limit);
    RUN_TEST(test_the_limit_holds_while_measurements_fail_now_and_then);
    RUN_TEST(test_what_is_said_to_be_free_can_be_taken_to_the_last_page);
    RUN_TEST(test_what_was_taken_since_the_last_measurement_is_known);
    RUN_TEST(test_freed_memory_can_be_taken_again_at_once);
    RUN_TEST(test_what_is_missing_does_not_include_what_was_freed);
    RUN_TEST(test_a_driver_call_that_fails_leaves_the_account_as_it_was);
    RUN_TEST(test_far_from_the_limit_the_driver_is_hardly_asked);
    RUN_TEST(test_a_request_waits_for_others_in_flight_and_gets_what_they_did_not);
    RUN_TEST(test_a_request_waits_for_others_in_flight_and_is_refused_after_they_took_it);
    RUN_TEST(test_a_request_waits_for_growth_in_flight_and_gets_what_it_left);
    RUN_TEST(test_who_holds_a_lock_is_told_of_others_in_flight_and_does_not_wait);
    RUN_TEST(test_a_thread_cancelled_while_it_waits_leaves_no_lock_behind);
    RUN_TEST(test_a_hopeless_request_is_refused_though_others_never_rest);
    RUN_TEST(test_an_old_answer_that_comes_late_does_not_hide_what_was_freed);
    RUN_TEST(test_growth_during_a_measurement_is_measured_before_the_next_grant);
    RUN_TEST(test_the_driver_may_use_the_reserve_and_no_more);
    RUN_TEST(test_without_a_measurement_the_books_and_a_guess_are_the_limit);
    RUN_TEST(test_without_a_measurement_only_growth_that_lasts_is_counted);
    RUN_TEST(test_without_a_measurement_growth_is_counted_at_the_next_request);
    RUN_TEST(test_a_change_that_may_be_in_the_figure_has_the_driver_asked_again);
    RUN_TEST(test_without_a_measurement_no_context_is_counted_before_there_is_one);
    RUN_TEST(test_without_a_measurement_growth_of_a_pool_beside_the_question_counts);
    RUN_TEST(test_what_is_settled_during_a_measurement_counts_beside_its_figure);
    RUN_TEST(test_an_estimate_is_good_enough_to_grant_by_and_not_to_refuse_by);
    RUN_TEST(test_without_a_measurement_no_estimate_is_told);
    RUN_TEST(test_without_any_figure_the_books_and_a_guess_are_the_limit);
    RUN_TEST(test_racing_threads_with_estimates_never_pass_the_limit);
    RUN_TEST(test_memory_that_the_driver_does_not_show_counts_all_the_same);
    RUN_TEST(test_a_limit_set_below_what_is_used_refuses_and_does_not_wrap);
    RUN_TEST(test_a_limit_below_the_context_leaves_nothing_and_does_not_wrap);
    RUN_TEST(test_growth_behind_a_promise_is_counted_at_once);
    RUN_TEST(test_nothing_is_promised_while_the_driver_is_asked);
    RUN_TEST(test_a_request_in_flight_during_a_measurement_is_counted);
    RUN_APART(test_an_unseen_context_is_counted_only_where_there_may_be_one);
    return UNITY_END();
}

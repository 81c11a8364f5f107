/* ledger: what concerns the whole card: guarantees, `high`, and the queue of those that wait for a full card.
 */
#include "ledger_support.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <unity.h>

#include "interpose/base/clock.h"

#define LONG_MS 600000 /* longer than ctest lets a test run */

void setUp(void)
{
    test_begin();
}

void tearDown(void)
{
    test_end();
}

/* A process of a job with these limits that uses so much. */
static struct ledger *join(const char *job, struct ledger_limits limits, uint64_t used)
{
    struct ledger *ledger = test_open();

    TEST_ASSERT_EQUAL_INT(0, ledger_join_within(ledger, job, &limits));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, used));
    ledger_settle(ledger, used);
    ledger_publish_used(ledger, used);
    return ledger;
}

static struct ledger_limits with_min(uint64_t min)
{
    return (struct ledger_limits){.max = 10000, .min = min};
}

/* What others have asked of it and it has not answered. */
static uint64_t wanted_of(const struct ledger *ledger)
{
    return atomic_load(&ledger->file->slots[ledger->slot].wanted_bytes) & LEDGER_WANTED_ALL;
}

static int admit(struct ledger *ledger, uint64_t need, uint64_t free_bytes)
{
    return ledger_admit(ledger, need, free_bytes, ledger_admitted(ledger));
}

/* ---- guarantees ---- */

static void test_without_a_min_nothing_is_kept(void)
{
    struct ledger *one = join("a", with_min(0), 100);

    join("b", with_min(0), 0);
    TEST_ASSERT_FALSE(ledger_is_guarded(one));
    TEST_ASSERT_EQUAL_UINT64(0, ledger_kept(one));
}

static void test_the_unused_part_of_a_min_is_kept_from_others_and_not_from_its_owner(void)
{
    struct ledger *owner = join("owner", with_min(1000), 300), *other = join("other", with_min(0), 0);

    TEST_ASSERT_FALSE(ledger_is_guarded(owner));
    TEST_ASSERT_TRUE(ledger_is_guarded(other));
    TEST_ASSERT_EQUAL_UINT64(700, ledger_kept(other));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, admit(other, 301, 1000));
    TEST_ASSERT_EQUAL_INT(0, admit(other, 300, 1000));
    ledger_publish_used(owner, 1200);
    TEST_ASSERT_EQUAL_UINT64(0, ledger_kept(other));
}

static void test_of_two_owners_each_keeps_what_the_other_has_not_used(void)
{
    struct ledger *one = join("one", with_min(1000), 300), *two = join("two", with_min(500), 100);

    TEST_ASSERT_EQUAL_UINT64(400, ledger_kept(one));
    TEST_ASSERT_EQUAL_UINT64(700, ledger_kept(two));
}

static void test_processes_of_the_owners_job_use_its_min_together(void)
{
    struct ledger *other = join("other", with_min(0), 0);

    join("owner", with_min(1000), 300);
    join("owner", with_min(0), 400);
    TEST_ASSERT_EQUAL_UINT64(300, ledger_kept(other));
}

static void test_a_process_without_a_job_has_a_min_of_its_own(void)
{
    struct ledger *owner = join(NULL, with_min(1000), 100), *other = join(NULL, with_min(0), 0);

    ledger_publish_used(owner, 100);
    TEST_ASSERT_EQUAL_UINT64(900, ledger_kept(other));
    TEST_ASSERT_EQUAL_UINT64(0, ledger_kept(owner));
    join(NULL, with_min(500), 0);
    TEST_ASSERT_EQUAL_UINT64(500, ledger_kept(owner)); /* not its own */
}

static void test_what_an_owner_has_claimed_counts_as_used(void)
{
    struct ledger *owner = join("owner", with_min(1000), 300), *other = join("other", with_min(0), 0);
    struct ledger *alone = join(NULL, with_min(500), 100);

    TEST_ASSERT_EQUAL_UINT64(700 + 400, ledger_kept(other));
    TEST_ASSERT_EQUAL_INT(0, admit(owner, 200, 2000));
    TEST_ASSERT_EQUAL_UINT64(500 + 400, ledger_kept(other));
    TEST_ASSERT_EQUAL_INT(0, admit(alone, 50, 2000));
    TEST_ASSERT_EQUAL_UINT64(500 + 350, ledger_kept(other));
}

static void test_a_min_counts_up_to_max(void)
{
    struct ledger *other = join("other", with_min(0), 0);

    join("owner", (struct ledger_limits){.max = 500, .min = 1000}, 0);
    TEST_ASSERT_EQUAL_UINT64(500, ledger_kept(other));
}

/* A tool has a slot only to take the lock. It has no memory and answers no question. */
static void test_a_tool_is_not_asked_and_counts_for_nothing(void)
{
    struct ledger *one = join("one", with_min(0), 100), *tool = test_open();

    TEST_ASSERT_EQUAL_INT(0, ledger_set_limit(tool, "later", LEDGER_MAX, 5));
    struct ledger_slot *slot = &tool->file->slots[tool->slot];
    atomic_store(&slot->used, 50); /* as if it had been a process before */
    TEST_ASSERT_EQUAL_UINT64(100, ledger_managed(one));
    const uint32_t questions = atomic_load(&slot->wanted);
    TEST_ASSERT_FALSE(ledger_ask_card(one, 10, 1, 0));
    TEST_ASSERT_EQUAL_UINT32(questions, atomic_load(&slot->wanted));
}

static void test_two_that_ask_at_once_do_not_touch_a_min_together(void)
{
    struct ledger *one = join("one", with_min(0), 0), *two = join("two", with_min(0), 0);

    join("owner", with_min(500), 0);
    const uint32_t seen = ledger_admitted(two);
    TEST_ASSERT_EQUAL_INT(0, admit(one, 400, 1000)); /* the driver has not answered yet */
    TEST_ASSERT_EQUAL_INT(-ENOMEM, admit(two, 400, 1000));
    ledger_end_claim(one, 400);
    /* What was free before that answer is not free now. */
    TEST_ASSERT_EQUAL_INT(-EAGAIN, ledger_admit(two, 400, 1000, seen));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, admit(two, 400, 600));
    TEST_ASSERT_EQUAL_INT(0, admit(two, 100, 600));
    ledger_end_claim(two, 40); /* one of several requests */
    TEST_ASSERT_EQUAL_UINT64(60, atomic_load(&two->file->slots[two->slot].claim));
}

/* Each time that the card is asked, another process's claim has just ended. */
static int free_beside_others(void *context, uint64_t *bytes)
{
    struct ledger *ledger = context;

    atomic_fetch_add(&ledger->file->admitted, 1);
    *bytes = 1000;
    return 0;
}

static void test_what_is_free_and_never_known_for_sure_is_not_granted(void)
{
    struct ledger *one = join("one", with_min(0), 0);

    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_admit_beside(one, 1, free_beside_others, one));
}

static void test_the_end_of_an_owner_ends_its_min_and_the_end_of_a_claimer_its_claim(void)
{
    struct ledger *other = join("other", with_min(0), 0);
    struct ledger *owner = join("owner", with_min(500), 0), *claimer = join("claimer", with_min(0), 0);

    TEST_ASSERT_EQUAL_INT(0, admit(claimer, 400, 1000));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, admit(other, 200, 1000));
    test_close(claimer);
    TEST_ASSERT_EQUAL_INT(0, admit(other, 200, 1000));
    ledger_end_claim(other, 200);
    TEST_ASSERT_EQUAL_INT(-ENOMEM, admit(other, 600, 1000));
    test_close(owner);
    TEST_ASSERT_EQUAL_UINT64(0, ledger_kept(other));
    TEST_ASSERT_EQUAL_INT(0, admit(other, 600, 1000));
    join("next", with_min(0), 0); /* recounts */
    TEST_ASSERT_FALSE(ledger_is_guarded(other));
    struct member dead = member_start("claimer", 10000);
    atomic_store(&other->file->slots[dead.slot].claim, 400);
    TEST_ASSERT_EQUAL_INT(-ENOMEM, admit(other, 200, 1000));
    member_kill(&dead);
    TEST_ASSERT_EQUAL_INT(0, admit(other, 200, 1000));
}

static void test_a_min_can_be_set_and_taken_back(void)
{
    struct ledger *other = join("other", with_min(0), 0);

    join("owner", with_min(0), 100);
    TEST_ASSERT_EQUAL_INT(0, ledger_set_limit(other, "owner", LEDGER_MIN, 300));
    TEST_ASSERT_EQUAL_UINT64(200, ledger_kept(other));
    TEST_ASSERT_EQUAL_INT(0, ledger_set_limit(other, "owner", LEDGER_MIN, 0));
    TEST_ASSERT_FALSE(ledger_is_guarded(other));
}

static void test_limits_that_were_set_before_a_job_came_stay_and_the_others_are_its_own(void)
{
    struct ledger *tool = test_open();
    struct ledger_entry entry;

    TEST_ASSERT_EQUAL_INT(0, ledger_set_limit(tool, "late", LEDGER_MIN, 300));
    struct ledger *late = join("late", (struct ledger_limits){.max = 1000, .min = 50, .high = 700}, 0);
    TEST_ASSERT_TRUE(ledger_read(tool, late->slot, &entry));
    TEST_ASSERT_EQUAL_UINT64(1000, entry.job_max);
    TEST_ASSERT_EQUAL_UINT64(300, entry.min);
    TEST_ASSERT_EQUAL_UINT64(700, entry.high);
    TEST_ASSERT_EQUAL_INT(0, ledger_set_limit(tool, "high", LEDGER_HIGH, 300));
    struct ledger *high = join("high", (struct ledger_limits){.max = 1000, .high = 700}, 0);
    TEST_ASSERT_TRUE(ledger_read(tool, high->slot, &entry));
    TEST_ASSERT_EQUAL_UINT64(300, entry.high);
    TEST_ASSERT_EQUAL_INT(0, ledger_set_limit(tool, "later", LEDGER_MIN, 300));
    struct ledger *first = join("later", with_min(0), 0);
    join("later", (struct ledger_limits){.max = 1000, .high = 700}, 0);
    TEST_ASSERT_TRUE(ledger_read(tool, first->slot, &entry));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, entry.high, "only the first process adds limits");
}

/* Idle memory that a job's min covers is not lent to other jobs; what is above it is. */
static void test_a_lender_keeps_its_min(void)
{
    struct ledger *asker = join("asker", with_min(0), 0), *lender = join("lender", with_min(600), 1000);

    ledger_publish(lender, &(struct ledger_figures){.used = 1000, .cached = 950, .lendable = 900});
    TEST_ASSERT_EQUAL_UINT64(400, ledger_above_min(asker, lender->slot));
    TEST_ASSERT_EQUAL_UINT64(LEDGER_UNLIMITED, ledger_above_min(asker, asker->slot));
    TEST_ASSERT_FALSE(ledger_ask_card(asker, 900, 1, 1)); /* it does not answer here */
    TEST_ASSERT_EQUAL_UINT64(400, wanted_of(lender));
    struct ledger *alone = join(NULL, with_min(600), 0);
    ledger_publish_used(alone, 1000);
    TEST_ASSERT_EQUAL_UINT64(400, ledger_above_min(asker, alone->slot));
}

/* ---- high ---- */

static void test_a_job_above_its_high_asks_its_processes_once_for_what_is_above(void)
{
    const struct ledger_limits limits = {.max = 10000, .high = 1000};
    struct ledger *one = join("a", limits, 600), *two = join("a", limits, 300), *other = join("b", limits, 9);

    TEST_ASSERT_EQUAL_UINT64(0, ledger_above_high(one));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(two, 500));
    TEST_ASSERT_EQUAL_UINT64(100, ledger_above_high(one));
    TEST_ASSERT_EQUAL_UINT64(100, wanted_of(one));
    TEST_ASSERT_EQUAL_UINT64(100, wanted_of(two));
    TEST_ASSERT_EQUAL_UINT64(0, wanted_of(other));
    const uint32_t asked = atomic_load(&one->file->slots[one->slot].wanted);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(two, 700));
    TEST_ASSERT_EQUAL_UINT32(asked, atomic_load(&one->file->slots[one->slot].wanted));
}

static void test_a_process_without_a_job_has_a_high_of_its_own(void)
{
    struct ledger *one = join(NULL, (struct ledger_limits){.max = 10000, .high = 1000}, 900);

    TEST_ASSERT_EQUAL_UINT64(0, ledger_above_high(one));
    ledger_publish_used(one, 1300);
    TEST_ASSERT_EQUAL_UINT64(300, ledger_above_high(one));
    TEST_ASSERT_EQUAL_UINT64(300, wanted_of(one));
    const uint32_t asked = atomic_load(&one->file->slots[one->slot].wanted);
    ledger_publish_used(one, 1400); /* it has been asked */
    TEST_ASSERT_EQUAL_UINT32(asked, atomic_load(&one->file->slots[one->slot].wanted));
}

static void test_a_high_that_is_set_below_what_is_used_asks_at_once(void)
{
    struct ledger *one = join("a", with_min(0), 800);

    TEST_ASSERT_EQUAL_INT(0, ledger_set_limit(one, "a", LEDGER_HIGH, 500));
    TEST_ASSERT_EQUAL_UINT64(300, wanted_of(one));
}

/* Only such a process looks at each free whether it must give memory back. */
static void test_a_process_is_needed_where_its_job_waits_or_has_a_high(void)
{
    const struct ledger_limits high = {.max = 10000, .high = 1000};
    struct ledger *one = join("a", with_min(0), 100), *other = join("b", with_min(0), 100);
    struct ledger *alone = join(NULL, with_min(0), 100);

    TEST_ASSERT_TRUE(ledger_is_needed(join("c", high, 0)) && ledger_is_needed(join(NULL, high, 0)));
    TEST_ASSERT_FALSE(ledger_is_needed(one) || ledger_is_needed(other) || ledger_is_needed(alone));
    atomic_store(&one->job->waiting, 1);
    TEST_ASSERT_TRUE(ledger_is_needed(one));
    TEST_ASSERT_FALSE(ledger_is_needed(other) || ledger_is_needed(alone));
}

/* ---- a full card ---- */

struct waiter {
    struct ledger *ledger;
    _Atomic int answer; /* of look() */
    int rc;
    pthread_t thread;
};

static int look(void *argument, uint64_t bytes)
{
    struct waiter *waiter = argument;

    (void)bytes;
    return atomic_load(&waiter->answer);
}

static void *wait_for_card(void *argument)
{
    struct waiter *waiter = argument;
    uint64_t ticket = 0;

    waiter->rc = ledger_wait_card(waiter->ledger, 100, &ticket, clock_ms() + LONG_MS, look, waiter);
    return NULL;
}

static void start(struct waiter *waiter, struct ledger *ledger, int answer)
{
    waiter->ledger = ledger;
    atomic_store(&waiter->answer, answer);
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&waiter->thread, NULL, wait_for_card, waiter));
    while (!atomic_load(&ledger->file->slots[ledger->slot].card_ticket))
        sched_yield();
    TEST_ASSERT_EQUAL_INT(0, ledger_lock(ledger)); /* it has entered the queue under the lock */
    ledger_unlock(ledger);
}

static void test_what_fits_or_can_never_fit_is_not_waited_for(void)
{
    struct waiter waiter = {.ledger = join("a", with_min(0), 100)};

    join("b", with_min(0), 100);
    wait_for_card(&waiter);
    TEST_ASSERT_EQUAL_INT(0, waiter.rc);
    const uint32_t freed = atomic_load(&waiter.ledger->file->freed);
    atomic_store(&waiter.answer, -ENOMEM);
    wait_for_card(&waiter);
    TEST_ASSERT_EQUAL_INT(-ENOMEM, waiter.rc);
    TEST_ASSERT_FALSE(ledger_is_card_waited_for(waiter.ledger));
    TEST_ASSERT_NOT_EQUAL(freed, atomic_load(&waiter.ledger->file->freed)); /* the next may be first now */
}

static void test_a_process_that_gives_back_wakes_the_one_that_waits(void)
{
    struct ledger *holder = join("holder", with_min(0), 100);
    struct waiter waiter;

    start(&waiter, join("a", with_min(0), 100), -EBUSY);
    TEST_ASSERT_TRUE(ledger_is_card_waited_for(holder));
    TEST_ASSERT_TRUE(ledger_is_waited_for(holder));
    const uint32_t freed = atomic_load(&holder->file->freed);
    atomic_store(&waiter.answer, 0);
    ledger_answer(holder);
    TEST_ASSERT_NOT_EQUAL(freed, atomic_load(&holder->file->freed));
    pthread_join(waiter.thread, NULL);
    TEST_ASSERT_EQUAL_INT(0, waiter.rc);
    TEST_ASSERT_FALSE(ledger_is_card_waited_for(holder));
}

static void test_one_that_waits_reminds_the_others_and_keeps_its_place(void)
{
    struct ledger *holder = join("holder", with_min(0), 100);
    struct waiter waiter = {.ledger = join("a", with_min(0), 100), .answer = -EAGAIN};
    uint64_t ticket = 0;

    for (int i = 0; i < 2; i++) {
        TEST_ASSERT_EQUAL_INT(-ETIMEDOUT,
                              ledger_wait_card(waiter.ledger, 100, &ticket, clock_ms() + 20, look, &waiter));
        TEST_ASSERT_EQUAL_UINT64(1, ticket);
    }
    TEST_ASSERT_EQUAL_UINT64(100, wanted_of(holder));
}

/* Alone on the card, or beside processes that hold nothing, nothing will come free. */
static void test_memory_that_no_process_holds_is_not_waited_for(void)
{
    struct waiter waiter = {.ledger = join("a", with_min(0), 100), .answer = -EBUSY};

    join("b", with_min(0), 0);
    wait_for_card(&waiter);
    TEST_ASSERT_EQUAL_INT(-EDEADLK, waiter.rc);
}

static void test_of_two_that_wait_for_each_other_the_second_is_refused(void)
{
    struct ledger *two = join("two", with_min(0), 100);
    struct waiter first, second = {.ledger = two, .answer = -EBUSY};

    start(&first, join("one", with_min(0), 100), -EBUSY);
    wait_for_card(&second);
    TEST_ASSERT_EQUAL_INT(-EDEADLK, second.rc);
    atomic_store(&first.answer, 0); /* the second has freed what it held */
    ledger_answer(two);
    pthread_join(first.thread, NULL);
    TEST_ASSERT_EQUAL_INT(0, first.rc);
}

/* One that waits in the queue of its job frees nothing meanwhile either. */
static void test_a_process_that_waits_for_its_job_gives_nothing_to_the_card(void)
{
    struct ledger *holder = join("one", with_min(0), 100);
    struct waiter waiter = {.ledger = join("two", with_min(0), 100), .answer = -EBUSY};

    atomic_store(&holder->file->slots[holder->slot].ticket, 1);
    wait_for_card(&waiter);
    TEST_ASSERT_EQUAL_INT(-EDEADLK, waiter.rc);
}

/* Programs outside the ledger may free what is missing: that is waited for, and looked for again and again.
 */
static void test_programs_outside_are_waited_for(void)
{
    struct waiter waiter;

    start(&waiter, join("a", with_min(0), 100), -EAGAIN);
    atomic_store(&waiter.answer, 0); /* nothing wakes it */
    pthread_join(waiter.thread, NULL);
    TEST_ASSERT_EQUAL_INT(0, waiter.rc);
}

static void test_first_come_first_served_on_the_card(void)
{
    struct waiter first, second;
    struct ledger *holder = join("holder", with_min(0), 100);

    struct ledger *two = join("two", with_min(0), 0);

    two->slow_ms = LONG_MS;
    start(&first, join("one", with_min(0), 0), -EBUSY);
    start(&second, two, 0); /* it would fit, but another one came first */
    ledger_answer(holder);
    TEST_ASSERT_NOT_EQUAL(0, atomic_load(&second.ledger->file->slots[second.ledger->slot].card_ticket));
    atomic_store(&first.answer, -ENOMEM); /* gives up */
    ledger_answer(holder);
    pthread_join(first.thread, NULL);
    pthread_join(second.thread, NULL);
    TEST_ASSERT_EQUAL_INT(-ENOMEM, first.rc);
    TEST_ASSERT_EQUAL_INT(0, second.rc);
}

/* For example a process that was stopped in the queue, and another behind it. */
static void test_one_that_is_first_and_does_not_take_what_fits_is_passed_over(void)
{
    struct ledger *one = join("one", with_min(0), 0), *next = join("next", with_min(0), 0);
    struct waiter third = {.ledger = join("three", with_min(0), 0)};

    join("holder", with_min(0), 100);
    atomic_store(&one->file->card_tickets, 2);
    atomic_store(&one->file->slots[one->slot].card_ticket, 1);
    atomic_store(&one->file->slots[next->slot].card_ticket, 2);
    third.ledger->slow_ms = 1;
    wait_for_card(&third);
    TEST_ASSERT_EQUAL_INT(0, third.rc);
}

static void test_a_recount_finds_all_that_wait_for_the_card(void)
{
    struct ledger *one = join("one", with_min(0), 0), *two = join("two", with_min(0), 0);

    atomic_store(&one->file->slots[one->slot].card_ticket, 1);
    two->dirty = true;
    TEST_ASSERT_EQUAL_INT(0, ledger_lock(two));
    ledger_unlock(two);
    TEST_ASSERT_TRUE(ledger_is_card_waited_for(two));
    atomic_store(&one->file->slots[one->slot].card_ticket, 0);
    two->dirty = true;
    TEST_ASSERT_EQUAL_INT(0, ledger_lock(two));
    ledger_unlock(two);
    TEST_ASSERT_FALSE(ledger_is_card_waited_for(two));
}

static void test_people_see_who_waits_for_the_card(void)
{
    struct ledger_entry entry;
    struct waiter waiter;

    start(&waiter, join("a", with_min(0), 100), -EAGAIN);
    TEST_ASSERT_TRUE(ledger_read(waiter.ledger, waiter.ledger->slot, &entry));
    TEST_ASSERT_TRUE(entry.waiting);
    TEST_ASSERT_EQUAL_UINT64(100, entry.asked);
    struct ledger_slot *slot = ledger_own_slot(waiter.ledger);
    TEST_ASSERT_EQUAL_UINT64(100, atomic_load(&slot->card_waits_for)); /* for those behind it */
    atomic_store(&waiter.answer, 0);
    pthread_join(waiter.thread, NULL);
    TEST_ASSERT_TRUE(ledger_read(waiter.ledger, waiter.ledger->slot, &entry));
    TEST_ASSERT_FALSE(entry.waiting);
}

/* ---- the size of a context ---- */

#define SIZE  (UINT64_C(300) << 20)
#define LOOKS 9

/* A second passes at each look at the clock, and every two seconds another process tries to make a context;
 * the last one succeeds. */
static struct {
    bool on; /* or the clock is the real one */
    struct ledger *tries[2];
    unsigned looks;
} hurry;

int __real_clock_gettime(clockid_t clock, struct timespec *now);

static atomic_int deadlines =
    2; /* looks at the time of day; the first one is followed by a jump of an hour */

static int read_time_of_day(struct timespec *now)
{
    const int rc = __real_clock_gettime(CLOCK_REALTIME, now);

    now->tv_sec -= deadlines++ ? 0 : 3600;
    return rc;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    if (clock == CLOCK_REALTIME)
        return read_time_of_day(now);
    if (!hurry.on)
        return __real_clock_gettime(clock, now);
    *now = (struct timespec){.tv_sec = ++hurry.looks};
    if (!hurry.tries[0])
        return 0;
    if (hurry.looks == LOOKS)
        ledger_set_context_bytes(hurry.tries[0], SIZE);
    else if (hurry.looks < LOOKS && hurry.looks % 2 == 0)
        atomic_store(&hurry.tries[0]->file->sizing, (uint32_t)hurry.tries[hurry.looks / 2 % 2]->slot + 1);
    return 0;
}

static void test_each_process_that_tries_to_make_a_context_is_waited_for(void)
{
    struct ledger *waiting = test_join(JOB, 1000), *other = test_join(JOB, 1000);

    TEST_ASSERT_EQUAL_UINT64(0, ledger_context_bytes(other));
    hurry.tries[1] = other;
    hurry.tries[0] = test_join(JOB, 1000);
    hurry.on = true;
    const uint64_t bytes = ledger_context_bytes(waiting);
    hurry.on = false;
    TEST_ASSERT_EQUAL_UINT64(SIZE, bytes);
}

/* While the same process keeps the lock, the wait is not prolonged at each look. */
static void test_the_owner_of_the_lock_is_waited_for_no_longer_than_its_time(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *owner = test_join(JOB, 1000);

    TEST_ASSERT_EQUAL_INT(0, ledger_lock(owner));
    ledger->patience_ms = 5000;
    hurry.tries[0] = NULL;
    hurry.looks = 0;
    hurry.on = true;
    const int rc = ledger_lock(ledger);
    hurry.on = false;
    TEST_ASSERT_EQUAL_INT(-ETIMEDOUT, rc);
    TEST_ASSERT_LESS_OR_EQUAL_UINT(8, hurry.looks);
    ledger_unlock(owner);
}

/* ---- the time of day ---- */

struct second {
    struct ledger *ledger;
    int rc;
    atomic_bool ended;
};

static void *wait_as_the_second(void *argument)
{
    struct second *second = argument;

    second->rc = ledger_wait_for(second->ledger, 0, 10, LONG_MS);
    second->ended = true;
    return NULL;
}

/* A thread that waits for another one of its process does so until a time of day. */
static void test_a_clock_that_is_set_forward_ends_no_wait(void)
{
    struct second second = {.ledger = test_join(JOB, 1000)};
    pthread_t thread;

    pthread_mutex_lock(&second.ledger->queue);
    deadlines = 0;
    pthread_create(&thread, NULL, wait_as_the_second, &second);
    while (deadlines < 2 && !second.ended)
        sched_yield();
    pthread_mutex_unlock(&second.ledger->queue);
    pthread_join(thread, NULL);
    TEST_ASSERT_EQUAL_INT(0, second.rc);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_each_process_that_tries_to_make_a_context_is_waited_for);
    RUN_TEST(test_the_owner_of_the_lock_is_waited_for_no_longer_than_its_time);
    RUN_TEST(test_without_a_min_nothing_is_kept);
    RUN_TEST(test_the_unused_part_of_a_min_is_kept_from_others_and_not_from_its_owner);
    RUN_TEST(test_of_two_owners_each_keeps_what_the_other_has_not_used);
    RUN_TEST(test_processes_of_the_owners_job_use_its_min_together);
    RUN_TEST(test_a_process_without_a_job_has_a_min_of_its_own);
    RUN_TEST(test_what_an_owner_has_claimed_counts_as_used);
    RUN_TEST(test_a_min_counts_up_to_max);
    RUN_TEST(test_a_tool_is_not_asked_and_counts_for_nothing);
    RUN_TEST(test_two_that_ask_at_once_do_not_touch_a_min_together);
    RUN_TEST(test_what_is_free_and_never_known_for_sure_is_not_granted);
    RUN_TEST(test_the_end_of_an_owner_ends_its_min_and_the_end_of_a_claimer_its_claim);
    RUN_TEST(test_a_min_can_be_set_and_taken_back);
    RUN_TEST(test_limits_that_were_set_before_a_job_came_stay_and_the_others_are_its_own);
    RUN_TEST(test_a_lender_keeps_its_min);
    RUN_TEST(test_a_job_above_its_high_asks_its_processes_once_for_what_is_above);
    RUN_TEST(test_a_process_without_a_job_has_a_high_of_its_own);
    RUN_TEST(test_a_process_is_needed_where_its_job_waits_or_has_a_high);
    RUN_TEST(test_a_high_that_is_set_below_what_is_used_asks_at_once);
    RUN_TEST(test_what_fits_or_can_never_fit_is_not_waited_for);
    RUN_TEST(test_a_process_that_gives_back_wakes_the_one_that_waits);
    RUN_TEST(test_one_that_waits_reminds_the_others_and_keeps_its_place);
    RUN_TEST(test_memory_that_no_process_holds_is_not_waited_for);
    RUN_TEST(test_of_two_that_wait_for_each_other_the_second_is_refused);
    RUN_TEST(test_a_process_that_waits_for_its_job_gives_nothing_to_the_card);
    RUN_TEST(test_programs_outside_are_waited_for);
    RUN_TEST(test_first_come_first_served_on_the_card);
    RUN_TEST(test_one_that_is_first_and_does_not_take_what_fits_is_passed_over);
    RUN_TEST(test_a_recount_finds_all_that_wait_for_the_card);
    RUN_TEST(test_people_see_who_waits_for_the_card);
    RUN_TEST(test_a_clock_that_is_set_forward_ends_no_wait);
    return UNITY_END();
}

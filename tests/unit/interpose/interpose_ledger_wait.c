/* ledger: questions between processes, and the queue of those that wait for memory. */
#include "ledger_support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unity.h>

#include "interpose/base/sums.h"

#define LONG_MS 600000 /* longer than ctest lets a test run */

void setUp(void)
{
    test_begin();
}

void tearDown(void)
{
    test_end();
}

/* How often this process has asked the kernel whether a process lives. */
static atomic_int queries;

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    va_list arguments;

    va_start(arguments, command);
    void *argument = va_arg(arguments, void *); /* each call of the ledger's has one */
    va_end(arguments);
    queries += command == F_OFD_GETLK;
    return __real_fcntl(fd, command, argument);
}

static struct ledger_entry read_entry(const struct ledger *ledger, int slot)
{
    struct ledger_entry entry;

    TEST_ASSERT_TRUE(ledger_read(ledger, slot, &entry));
    return entry;
}

/* ---- questions ---- */

/* A neighbour that holds `held` bytes and answers one question (ORDER_LISTEN). */
static struct member start_listening(uint64_t held)
{
    const struct member member = member_start(JOB, 0);

    TEST_ASSERT_EQUAL_INT64(0, member_do(&member, ORDER_EXTEND, held, 0));
    member_send(&member, ORDER_LISTEN, 0, 0);
    return member;
}

struct asking {
    struct ledger *ledger;
    uint64_t bytes;
    bool given;
};

static void *ask(void *argument)
{
    struct asking *asking = argument;

    asking->given = ledger_ask(asking->ledger, asking->bytes, LONG_MS);
    return NULL;
}

static void test_neighbour_hears_the_question_and_its_answer_is_awaited(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    const struct member member = start_listening(900);
    struct asking asking = {.ledger = ledger, .bytes = 300};
    pthread_t thread;

    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(ledger, 300));
    pthread_create(&thread, NULL, ask, &asking);
    TEST_ASSERT_EQUAL_INT64(300, member_answer(&member));
    member_do(&member, ORDER_SETTLE, 700, 0); /* 100 less than would end the wait before the answer */
    const uint32_t answers = atomic_load(&ledger->file->answers);
    member_do(&member, ORDER_ANSWER, 400, 0);
    TEST_ASSERT_NOT_EQUAL_UINT32(answers, atomic_load(&ledger->file->answers)); /* which wakes the asker */
    pthread_join(thread, NULL);
    TEST_ASSERT_TRUE(asking.given);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 300));
    TEST_ASSERT_EQUAL_UINT64(400, read_entry(ledger, member.slot).lent);
    TEST_ASSERT_EQUAL_UINT64(300, read_entry(ledger, ledger->slot).borrowed);
    struct ledger_totals totals;
    TEST_ASSERT_TRUE(ledger_read_job(ledger, JOB, &totals));
    TEST_ASSERT_EQUAL_UINT64(400, totals.lent);
    TEST_ASSERT_EQUAL_UINT64(300, totals.borrowed);
}

static void test_ask_says_so_if_the_neighbours_give_nothing(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    const struct member member = start_listening(900);
    struct asking asking = {.ledger = ledger, .bytes = 300, .given = true};
    pthread_t thread;

    pthread_create(&thread, NULL, ask, &asking);
    member_answer(&member);
    member_do(&member, ORDER_ANSWER, 0, 0);
    pthread_join(thread, NULL);
    TEST_ASSERT_FALSE(asking.given);
}

static void test_process_alone_asks_no_one(void)
{
    TEST_ASSERT_FALSE(ledger_ask(test_join(JOB, 1000), 1, LONG_MS));
}

/* The second question would wait for minutes. */
static void test_stopped_neighbour_is_not_waited_for_twice(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    const struct member member = start_listening(900);

    TEST_ASSERT_EQUAL_INT(0, kill(member.pid, SIGSTOP));
    TEST_ASSERT_EQUAL_INT(member.pid, waitpid(member.pid, NULL, WUNTRACED));
    TEST_ASSERT_FALSE(ledger_ask(ledger, 100, 1));
    TEST_ASSERT_FALSE(ledger_ask(ledger, 300, LONG_MS));
    TEST_ASSERT_FALSE(ledger_ask(ledger, 200, LONG_MS));
    TEST_ASSERT_EQUAL_INT(0, kill(member.pid, SIGCONT));
    TEST_ASSERT_EQUAL_INT64(300, member_answer(&member)); /* the largest of the three */
    member_do(&member, ORDER_ANSWER, 0, 0);
    /* it listens again, so it is waited for again */
    member_send(&member, ORDER_LISTEN, 0, 0);
    struct asking asking = {.ledger = ledger, .bytes = 7};
    pthread_t thread;
    pthread_create(&thread, NULL, ask, &asking);
    TEST_ASSERT_EQUAL_INT64(7, member_answer(&member));
    member_do(&member, ORDER_SETTLE, 0, 0);
    member_do(&member, ORDER_ANSWER, 900, 0);
    pthread_join(thread, NULL);
    TEST_ASSERT_TRUE(asking.given);
}

static void test_neighbour_that_dies_over_a_question_is_not_waited_for(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct member member = start_listening(900);
    struct asking asking = {.ledger = ledger, .bytes = 300};
    pthread_t thread;

    pthread_create(&thread, NULL, ask, &asking);
    member_answer(&member);
    member_kill(&member);
    pthread_join(thread, NULL); /* or the test waits for minutes */
    TEST_ASSERT_TRUE(asking.given);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 1000));
}

static void test_questions_of_several_are_heard_as_the_largest(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *other = test_join(JOB, 0);
    uint64_t bytes;

    TEST_ASSERT_FALSE(ledger_ask(other, 50, 0));
    TEST_ASSERT_FALSE(ledger_poke(other, ledger->slot, 20, 0));
    TEST_ASSERT_FALSE(ledger_poke(other, ledger->slot, 0, 0));
    TEST_ASSERT_TRUE(ledger_listen(ledger, &bytes));
    TEST_ASSERT_EQUAL_UINT64(50, bytes);
    ledger_answer(ledger);
    TEST_ASSERT_FALSE(ledger_poke(other, ledger->slot, 0, 0));
    TEST_ASSERT_TRUE(ledger_listen(ledger, &bytes));
    TEST_ASSERT_EQUAL_UINT64(0, bytes);
}

static void test_the_listener_knows_which_process_asked_for_most(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    const struct member little = member_start(JOB, 0), much = member_start(JOB, 0);
    uint64_t bytes;

    member_do(&little, ORDER_ASK, 20, 0);
    member_do(&much, ORDER_ASK, 50, 0);
    member_do(&little, ORDER_ASK, 30, 0);
    TEST_ASSERT_TRUE(ledger_listen(ledger, &bytes));
    TEST_ASSERT_EQUAL_UINT64(50, bytes);
    TEST_ASSERT_EQUAL_INT(read_entry(ledger, much.slot).pid, ledger_asker(ledger));
    ledger_answer(ledger);
    /* A process that gives back by itself does so for the one that waits. */
    ledger_ask_self(ledger, UINT64_MAX);
    TEST_ASSERT_TRUE(ledger_listen(ledger, &bytes));
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, bytes);
    TEST_ASSERT_EQUAL_INT(0, ledger_asker(ledger));
    atomic_store(&ledger->file->slots[little.slot].ticket, 7);
    TEST_ASSERT_EQUAL_INT(read_entry(ledger, little.slot).pid, ledger_asker(ledger));
    atomic_store(&ledger->file->slots[much.slot].ticket, 8); /* came later */
    TEST_ASSERT_EQUAL_INT(read_entry(ledger, little.slot).pid, ledger_asker(ledger));
    atomic_store(&ledger->file->slots[much.slot].ticket, 0);
    atomic_store(&ledger->file->slots[little.slot].ticket, 0);
    atomic_store(&ledger->file->slots[much.slot].card_ticket, 3);
    TEST_ASSERT_EQUAL_INT(read_entry(ledger, much.slot).pid, ledger_asker(ledger));
    ledger_answer(ledger);
}

static void test_question_during_an_answer_is_heard_next(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *other = test_join(JOB, 0);
    uint64_t bytes;

    ledger_poke(other, ledger->slot, 1, 0);
    TEST_ASSERT_TRUE(ledger_listen(ledger, &bytes));
    ledger_poke(other, ledger->slot, 2, 0);
    ledger_answer(ledger);
    TEST_ASSERT_TRUE(ledger_listen(ledger, &bytes)); /* does not sleep over it */
    TEST_ASSERT_EQUAL_UINT64(2, bytes);
    ledger_answer(ledger);
}

/* The counters have 32 bits. */
static void test_counters_of_questions_may_wrap(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct member member = member_start(JOB, 0);
    struct ledger_slot *slot = &ledger->file->slots[member.slot];

    atomic_store(&slot->wanted, UINT32_MAX - 1);
    atomic_store(&slot->answered, UINT32_MAX - 1);
    atomic_store(&ledger->file->answers, UINT32_MAX);
    for (uint64_t i = 1; i <= 4; i++) {
        struct asking asking = {.ledger = ledger, .bytes = i};
        pthread_t thread;

        TEST_ASSERT_EQUAL_INT64(0, member_do(&member, ORDER_EXTEND, i, 0));
        member_send(&member, ORDER_LISTEN, 0, 0);
        pthread_create(&thread, NULL, ask, &asking);
        TEST_ASSERT_EQUAL_INT64((int64_t)i, member_answer(&member));
        member_do(&member, ORDER_SETTLE, 0, 0);
        member_do(&member, ORDER_ANSWER, i, 0);
        pthread_join(thread, NULL);
        TEST_ASSERT_TRUE(asking.given);
    }
    TEST_ASSERT_EQUAL_UINT32(2, atomic_load(&slot->wanted));
    /* a new owner of the slot listens from there on */
    member_kill(&member);
    member = member_start(JOB, 0);
    TEST_ASSERT_EQUAL_PTR(slot, &ledger->file->slots[member.slot]);
    member_send(&member, ORDER_LISTEN, 0, 0);
    TEST_ASSERT_FALSE(ledger_poke(ledger, member.slot, 9, 0));
    TEST_ASSERT_EQUAL_INT64(9, member_answer(&member));
}

static void test_poke_reaches_a_process_of_another_job(void)
{
    struct ledger *ledger = test_open();
    const struct member member = member_start("another", 1000);

    member_send(&member, ORDER_LISTEN, 0, 0);
    ledger_poke(ledger, member.slot, 40, 0);
    TEST_ASSERT_EQUAL_INT64(40, member_answer(&member));
    member_send(&member, ORDER_ANSWER, 0, 0);
    TEST_ASSERT_EQUAL_INT64(0, member_answer(&member));
}

static void test_new_max_reaches_the_members_who_listen(void)
{
    struct ledger *visitor = test_open();
    const struct member member = member_start(JOB, 1000), other = member_start("another", 1000);
    const uint32_t before = atomic_load(&visitor->file->slots[other.slot].wanted);

    member_send(&member, ORDER_LISTEN, 0, 0);
    TEST_ASSERT_EQUAL_INT(0, ledger_set_max(visitor, JOB, 400));
    TEST_ASSERT_EQUAL_INT64(0, member_answer(&member));
    TEST_ASSERT_EQUAL_INT64(400, member_do(&member, ORDER_MAX, 0, 0));
    TEST_ASSERT_EQUAL_UINT32(before, atomic_load(&visitor->file->slots[other.slot].wanted));
}

static void *wake(void *ledger)
{
    ledger_wake(ledger);
    return NULL;
}

static void test_wake_ends_listening_for_good(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *other = test_join(JOB, 0);
    pthread_t thread;
    uint64_t bytes;

    pthread_create(&thread, NULL, wake, ledger);
    TEST_ASSERT_FALSE(ledger_listen(ledger, &bytes));
    pthread_join(thread, NULL);
    ledger_poke(other, ledger->slot, 1, 0);
    TEST_ASSERT_FALSE(ledger_listen(ledger, &bytes));
    TEST_ASSERT_FALSE(ledger_ask(other, 1, 10));
    TEST_ASSERT_FALSE(ledger_ask(other, 1, LONG_MS)); /* it is not waited for twice */
}

/* ---- waiting ---- */

static void test_wait_takes_what_is_there_at_once(void)
{
    struct ledger *ledger = test_join(JOB, 1000);

    TEST_ASSERT_EQUAL_INT(0, ledger_wait_for(ledger, 0, 1000, 0));
    TEST_ASSERT_EQUAL_UINT64(1000, ledger_lease(ledger));
    TEST_ASSERT_FALSE(read_entry(ledger, 0).waiting);
    TEST_ASSERT_FALSE(ledger_is_waited_for(ledger));
    TEST_ASSERT_EQUAL_INT(0, ledger_wait_for(ledger, 0, 10, UINT64_MAX));
}

/* Another thread has raised the lease; a process ahead in the queue does not matter. */
static void test_what_is_leased_already_is_not_waited_for(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *ahead = test_join(JOB, 0);

    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 500));
    ledger->job->tickets = 1;
    atomic_store(&ledger_own_slot(ahead)->ticket, 1);
    TEST_ASSERT_EQUAL_INT(0, ledger_wait_for(ledger, 0, 500, 0));
}

/* A process that read the word before memory was freed does not sleep on it. */
static void test_no_word_of_freed_memory_is_missed(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    const uint32_t before = atomic_load(&ledger->file->freed);

    ledger_tell_freed(ledger);
    const uint32_t after = atomic_load(&ledger->file->freed);
    TEST_ASSERT_EQUAL_UINT32(0, after & 1);
    TEST_ASSERT_NOT_EQUAL(before, after);
    TEST_ASSERT_EQUAL_INT(0,
                          ledger_wait_for(ledger, 0, 10, 0)); /* leaves the queue: another may be first now */
    TEST_ASSERT_NOT_EQUAL(after, atomic_load(&ledger->file->freed));
}

static void test_wait_is_never_for_more_than_max(void)
{
    struct ledger *ledger = test_join(JOB, 1000);

    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_wait_for(ledger, 0, 1001, LONG_MS));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_wait_for(ledger, 0, UINT64_MAX, LONG_MS));
    TEST_ASSERT_EQUAL_UINT64(0, ledger_lease(ledger));
}

static void test_wait_ends_after_its_time(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *holder = test_join(JOB, 0);

    ledger_extend(holder, 600);
    TEST_ASSERT_EQUAL_INT(-ETIMEDOUT, ledger_wait_for(ledger, 0, 401, 0));
    TEST_ASSERT_EQUAL_INT(-ETIMEDOUT, ledger_wait_for(ledger, 0, 401, 3));
    const struct ledger_entry entry = read_entry(holder, ledger->slot);
    TEST_ASSERT_FALSE(entry.waiting);
    TEST_ASSERT_FALSE(ledger_is_waited_for(holder));
    TEST_ASSERT_EQUAL_UINT64(0, entry.asked);
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(3, entry.waited_ms);
    TEST_ASSERT_EQUAL_UINT64(600, test_sum(ledger));
    TEST_ASSERT_EQUAL_INT(0, ledger_wait_for(ledger, 0, 400, 0));
}

static void test_wait_is_ended_by_a_settle(void)
{
    struct ledger *holder = test_join(JOB, 1000);
    const struct member member = member_start(JOB, 0);

    ledger_extend(holder, 1000);
    member_send(&member, ORDER_WAIT, 300, LONG_MS);
    await_waiting(holder, member.slot);
    TEST_ASSERT_EQUAL_UINT64(300, read_entry(holder, member.slot).asked);
    ledger_settle(holder, 800); /* not enough */
    ledger_settle(holder, 700);
    TEST_ASSERT_EQUAL_INT64(0, member_answer(&member));
    TEST_ASSERT_EQUAL_INT64(300, member_do(&member, ORDER_LEASE, 0, 0));
    TEST_ASSERT_EQUAL_UINT64(1000, test_sum(holder));
}

static void test_wait_is_ended_by_a_higher_max_and_by_a_lower_one(void)
{
    struct ledger *holder = test_join(JOB, 1000);
    const struct member member = member_start(JOB, 0);

    ledger_extend(holder, 1000);
    member_send(&member, ORDER_WAIT, 300, LONG_MS);
    await_waiting(holder, member.slot);
    TEST_ASSERT_EQUAL_INT(0, ledger_set_max(holder, JOB, 1300));
    TEST_ASSERT_EQUAL_INT64(0, member_answer(&member));
    member_send(&member, ORDER_WAIT, 400, LONG_MS);
    await_waiting(holder, member.slot);
    TEST_ASSERT_EQUAL_INT(0, ledger_set_max(holder, JOB, 399));
    TEST_ASSERT_EQUAL_INT64(-ENOMEM, member_answer(&member));
}

static void test_wait_is_ended_by_the_death_of_the_holder(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct member holder = member_start(JOB, 0);
    const struct member waiter = member_start(JOB, 0);

    member_do(&holder, ORDER_EXTEND, 1000, 0);
    member_send(&waiter, ORDER_WAIT, 1000, LONG_MS);
    await_waiting(ledger, waiter.slot);
    member_kill(&holder);
    TEST_ASSERT_EQUAL_INT64(0, member_answer(&waiter));
    TEST_ASSERT_EQUAL_UINT64(1000, test_sum(ledger));
}

/* The first wants all, the second a little that is there before: it gets it after the first. */
static void test_who_waits_first_is_served_first(void)
{
    struct ledger *holder = test_join(JOB, 1000);
    const struct member first = member_start(JOB, 0), second = member_start(JOB, 0);

    ledger_extend(holder, 900);
    member_send(&first, ORDER_WAIT, 900, LONG_MS);
    await_waiting(holder, first.slot);
    member_send(&second, ORDER_WAIT, 100, LONG_MS);
    await_waiting(holder, second.slot);
    ledger_settle(holder, 500);
    TEST_ASSERT_EQUAL_UINT64(500, test_sum(holder));
    TEST_ASSERT_TRUE(read_entry(holder, second.slot).waiting);
    ledger_settle(holder, 100);
    TEST_ASSERT_EQUAL_INT64(0, member_answer(&first));
    TEST_ASSERT_TRUE(read_entry(holder, second.slot).waiting);
    ledger_settle(holder, 0);
    TEST_ASSERT_EQUAL_INT64(0, member_answer(&second));
    TEST_ASSERT_EQUAL_UINT64(1000, test_sum(holder));
}

static void test_second_is_first_when_the_first_gives_up_or_dies(void)
{
    struct ledger *holder = test_join(JOB, 1000);
    struct member dies = member_start(JOB, 0);
    const struct member gives_up = member_start(JOB, 0), last = member_start(JOB, 0);

    ledger_extend(holder, 900);
    member_send(&dies, ORDER_WAIT, 900, LONG_MS);
    await_waiting(holder, dies.slot);
    member_send(&gives_up, ORDER_WAIT, 800, 1000);
    await_waited(holder, &gives_up);
    member_send(&last, ORDER_WAIT, 100, LONG_MS);
    await_waiting(holder, last.slot);
    member_kill(&dies);
    TEST_ASSERT_EQUAL_INT64(-ETIMEDOUT, member_answer(&gives_up));
    TEST_ASSERT_EQUAL_INT64(0, member_answer(&last));
}

static void test_of_those_that_hold_and_wait_for_each_other_one_is_refused(void)
{
    struct ledger *ledger = test_join(JOB, 900); /* holds nothing */
    struct member members[3];
    int refused = 0;

    for (int i = 0; i < 3; i++) {
        members[i] = member_start(JOB, 0);
        TEST_ASSERT_EQUAL_INT64(0, member_do(&members[i], ORDER_EXTEND, 300, 0));
    }
    for (int i = 0; i < 2; i++) {
        member_send(&members[i], ORDER_WAIT, 500, LONG_MS);
        await_waiting(ledger, members[i].slot);
    }
    TEST_ASSERT_EQUAL_INT64(-EDEADLK, member_do(&members[2], ORDER_WAIT, 400, LONG_MS));
    for (int i = 0; i < 2; i++)
        refused += !read_entry(ledger, members[i].slot).waiting;
    TEST_ASSERT_EQUAL_INT(0, refused);
    member_do(&members[2], ORDER_SETTLE, 0, 0); /* as a program does that is out of memory */
    TEST_ASSERT_EQUAL_INT64(0, member_answer(&members[0]));
    member_do(&members[0], ORDER_SETTLE, 0, 0);
    TEST_ASSERT_EQUAL_INT64(0, member_answer(&members[1]));
    TEST_ASSERT_EQUAL_UINT64(500, test_sum(ledger));
}

/* Stops a process, but not while it has the lock. */
static void stop_member(const struct ledger *ledger, const struct member *member)
{
    do {
        TEST_ASSERT_EQUAL_INT(0, kill(member->pid, SIGCONT));
        TEST_ASSERT_EQUAL_INT(0, kill(member->pid, SIGSTOP));
        TEST_ASSERT_EQUAL_INT(member->pid, waitpid(member->pid, NULL, WUNTRACED));
    } while ((atomic_load(&ledger->file->lock) & LEDGER_OWNER_MASK) == (uint32_t)member->slot + 1);
}

/* Waits until the lock has been taken again, or the slot's process does not wait any more. */
static void await_next_look(const struct ledger *ledger, int slot)
{
    const uint32_t before = atomic_load(&ledger->file->lock) >> LEDGER_OWNER_BITS;

    while (atomic_load(&ledger->file->lock) >> LEDGER_OWNER_BITS == before &&
           read_entry(ledger, slot).waiting)
        sched_yield();
}

/* All wait, but there is enough for the first: it has only not woken up yet. */
static void test_no_one_is_refused_while_the_first_can_be_served(void)
{
    struct ledger *holder = test_join(JOB, 900);
    const struct member first = member_start(JOB, 0), second = member_start(JOB, 0);

    TEST_ASSERT_EQUAL_INT(0, ledger_extend(holder, 300));
    member_do(&first, ORDER_EXTEND, 300, 0);
    member_do(&second, ORDER_EXTEND, 300, 0);
    member_send(&first, ORDER_WAIT, 500, LONG_MS);
    await_waiting(holder, first.slot);
    member_send(&second, ORDER_WAIT, 500, LONG_MS);
    await_waiting(holder, second.slot);
    stop_member(holder, &first);
    ledger_settle(holder, 0);
    for (int i = 0; i < 3; i++)
        await_next_look(holder, second.slot);
    TEST_ASSERT_TRUE(read_entry(holder, second.slot).waiting);
    TEST_ASSERT_EQUAL_INT(0, kill(first.pid, SIGCONT));
    TEST_ASSERT_EQUAL_INT64(0, member_answer(&first));
    member_do(&first, ORDER_SETTLE, 0, 0);
    TEST_ASSERT_EQUAL_INT64(0, member_answer(&second));
}

/* It goes on without the memory, and may free some. */
static void test_one_that_waits_only_briefly_is_part_of_no_cycle(void)
{
    struct ledger *ledger = test_join(JOB, 900), *other = test_join(JOB, 0);
    struct ledger_slot *slot = ledger->file->slots + ledger->slot, *first = other->file->slots + other->slot;

    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 450));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(other, 450));
    ledger->job->tickets = 1;
    atomic_store(&first->waits_for, 100);
    atomic_store(&first->ticket, 1);
    atomic_store(&first->brief, 1);
    TEST_ASSERT_EQUAL_INT(-ETIMEDOUT, ledger_wait_for(ledger, 0, 500, LEDGER_BRIEF_MS));
    TEST_ASSERT_EQUAL_UINT64(1, atomic_load(&slot->brief));
    atomic_store(&first->brief, 0);
    TEST_ASSERT_EQUAL_INT(-EDEADLK, ledger_wait_for(ledger, 0, 500, LONG_MS));
    TEST_ASSERT_EQUAL_UINT64(0, atomic_load(&slot->brief));
}

/* The cycle closes when the one that does not wait dies. */
static void test_cycle_that_closes_while_all_wait_is_found(void)
{
    struct ledger *ledger = test_join(JOB, 900);
    struct member third = member_start(JOB, 0);
    const struct member one = member_start(JOB, 0), two = member_start(JOB, 0);

    member_do(&third, ORDER_EXTEND, 100, 0);
    member_do(&one, ORDER_EXTEND, 400, 0);
    member_do(&two, ORDER_EXTEND, 400, 0);
    member_send(&one, ORDER_WAIT, 700, LONG_MS);
    await_waiting(ledger, one.slot);
    member_send(&two, ORDER_WAIT, 800, LONG_MS);
    await_waiting(ledger, two.slot);
    member_kill(&third);
    TEST_ASSERT_EQUAL_INT64(-EDEADLK, member_answer(&two));
    TEST_ASSERT_TRUE(read_entry(ledger, one.slot).waiting);
    member_do(&two, ORDER_SETTLE, 0, 0);
    TEST_ASSERT_EQUAL_INT64(0, member_answer(&one));
}

static atomic_int started;

struct waiting {
    struct ledger *ledger;
    uint64_t least;
    int rc;
};

static void *wait_for_memory(void *argument)
{
    struct waiting *waiting = argument;

    started++;
    waiting->rc = ledger_wait_for(waiting->ledger, 0, waiting->least, LONG_MS);
    return NULL;
}

/* A process has one place in the queue: its threads wait for it one after the other. */
static void test_threads_of_a_process_wait_in_turn(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *holder = test_join(JOB, 0);
    struct waiting waiting[4];
    pthread_t threads[4];

    ledger_extend(holder, 1000);
    started = 0;
    for (int i = 0; i < 4; i++) {
        waiting[i] = (struct waiting){ledger, 100 * (uint64_t)(i + 1), -1};
        pthread_create(&threads[i], NULL, wait_for_memory, &waiting[i]);
    }
    for (int i = 0; started < 4 || i < 1000; i++)
        sched_yield(); /* all of them are in ledger_wait_for now, or close to it */
    for (uint64_t left = 900; left >= 600; left -= 100) {
        await_waiting(holder, ledger->slot);
        ledger_settle(holder, left);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        TEST_ASSERT_EQUAL_INT(0, waiting[i].rc);
    }
    TEST_ASSERT_EQUAL_UINT64(400, ledger_lease(ledger));
    TEST_ASSERT_FALSE(read_entry(holder, ledger->slot).waiting);
}

/* Where hundreds wait, each of them would otherwise ask about all the others at each look. */
static void test_those_behind_the_first_do_not_count_all_processes_again_and_again(void)
{
    enum { OTHERS = 30, MS = 400 /* eight looks */ };
    struct ledger *others[OTHERS], *ledger = test_join(JOB, 1000);

    for (int i = 0; i < OTHERS; i++)
        others[i] = test_join(JOB, 0);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(others[0], 1000));
    ledger->job->tickets = 1;
    atomic_store(&ledger_own_slot(others[1])->waits_for, 100);
    atomic_store(&ledger_own_slot(others[1])->ticket, 1);
    queries = 0;
    TEST_ASSERT_EQUAL_INT(-ETIMEDOUT, ledger_wait_for(ledger, 0, 100, MS));
    TEST_ASSERT_LESS_THAN_INT(4 * OTHERS, queries);
}

/* So that the owner of the lock can run, however many wait for it. */
static void test_a_long_wait_for_the_lock_looks_less_and_less_often(void)
{
    enum { MS = 200 };
    struct ledger *owner = test_join(JOB, 1000), *ledger = test_join(JOB, 0);

    ledger->patience_ms = MS;
    TEST_ASSERT_EQUAL_INT(0, ledger_lock(owner));
    queries = 0;
    const int rc = ledger_lock(ledger);
    ledger_unlock(owner);
    TEST_ASSERT_EQUAL_INT(-ETIMEDOUT, rc);
    TEST_ASSERT_LESS_THAN_INT(MS / 4, queries);
}

/* Two processes pass all the memory to and fro, each waiting for the other. A wake-up that is lost costs 50
 * ms, until the next look: if all are lost, that is more than the time that a test has. */
static void test_no_wake_up_is_lost_when_memory_goes_to_and_fro(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    const struct member member = member_start(JOB, 0);

    atomic_store(&ledger->file->freed, UINT32_MAX - 100); /* it wraps on the way */
    for (int i = 0; i < 4000; i++) {
        TEST_ASSERT_EQUAL_INT(0, ledger_wait_for(ledger, 0, 1000, LONG_MS));
        member_send(&member, ORDER_WAIT, 1000, LONG_MS);
        if (i % 2)
            await_waiting(ledger, member.slot);
        ledger_settle(ledger, 0);
        TEST_ASSERT_EQUAL_INT64(0, member_answer(&member));
        member_send(&member, ORDER_SETTLE, 0, 0);
        TEST_ASSERT_EQUAL_INT(0, ledger_wait_for(ledger, 0, 1000, LONG_MS));
        TEST_ASSERT_EQUAL_INT64(0, member_answer(&member));
    }
}

/* ---- the whole card ---- */

static uint64_t wanted_of(const struct ledger *ledger)
{
    return atomic_exchange(&ledger->file->slots[ledger->slot].wanted_bytes, 0) & LEDGER_WANTED_ALL;
}

static void test_on_a_full_card_no_process_is_asked_for_more_than_it_has(void)
{
    struct ledger *none = test_join(NULL, 0);
    struct ledger *other = test_join("another", 1000), *third = test_join(NULL, 0);

    ledger_publish(other, &(struct ledger_figures){.used = 400, .cached = 300, .lendable = 100});
    ledger_publish(third, &(struct ledger_figures){.used = 400, .cached = 60, .lendable = 60});
    ledger_publish(none, &(struct ledger_figures){.used = 400});
    /* None answers here. Who asks a second time does not wait for them again, so others ask. */
    TEST_ASSERT_FALSE(ledger_ask_card(test_join(JOB, 1000), 161, 161, 1)); /* all of it would not be enough */
    TEST_ASSERT_EQUAL_UINT64(0, wanted_of(other));
    TEST_ASSERT_EQUAL_UINT64(0, wanted_of(third));
    TEST_ASSERT_FALSE(ledger_ask_card(test_join(JOB, 1000), 130, 130, 1));
    TEST_ASSERT_EQUAL_UINT64(100, wanted_of(other));
    TEST_ASSERT_EQUAL_UINT64(30, wanted_of(third));
    TEST_ASSERT_FALSE(ledger_ask_card(test_join(JOB, 1000), 90, 1, 1));
    TEST_ASSERT_EQUAL_UINT64(90, wanted_of(other));
    TEST_ASSERT_EQUAL_UINT64(0, wanted_of(third));
    TEST_ASSERT_EQUAL_UINT32(3, atomic_load(&ledger_own_slot(none)->wanted)); /* only what it has idle */
}

/* A process with 100 bytes that it takes to be lendable, of which the driver takes back as much as it says.
 */
struct lender {
    struct ledger *ledger;
    uint64_t gives, asked;
    pthread_t thread;
};

static void *answer_all(void *argument)
{
    struct lender *lender = argument;
    uint64_t bytes;

    while (ledger_listen(lender->ledger, &bytes)) {
        lender->asked += bytes;
        const uint64_t left = 100 - sums_smaller(lender->asked, lender->gives);
        ledger_publish(lender->ledger,
                       &(struct ledger_figures){.used = 400, .cached = left, .lendable = left});
        ledger_answer(lender->ledger);
    }
    return NULL;
}

static void start_lender(struct lender *lender)
{
    lender->ledger = test_join(NULL, 0);
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&lender->thread, NULL, answer_all, lender));
}

static void end_lender(struct lender *lender)
{
    ledger_wake(lender->ledger);
    pthread_join(lender->thread, NULL);
}

static void test_on_a_full_card_the_next_are_asked_for_what_one_could_not_give(void)
{
    struct lender lenders[] = {{.gives = 0}, {.gives = 20}, {.gives = 100}, {.gives = 100}};

    for (int i = 0; i < 4; i++)
        start_lender(&lenders[i]);
    TEST_ASSERT_TRUE(ledger_ask_card(test_join(JOB, 1000), 90, 90, LONG_MS));
    for (int i = 0; i < 4; i++)
        end_lender(&lenders[i]);
    TEST_ASSERT_EQUAL_UINT64(90, lenders[0].asked);
    TEST_ASSERT_EQUAL_UINT64(90, lenders[1].asked);
    TEST_ASSERT_EQUAL_UINT64(70, lenders[2].asked);
    TEST_ASSERT_EQUAL_UINT64(0, lenders[3].asked);
}

/* For example a process that was stopped in the queue. */
static void test_one_that_is_first_and_does_not_take_its_memory_is_passed_over(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *other = test_join(JOB, 0), *holder = test_join(JOB, 0);
    struct ledger_slot *first = &other->file->slots[other->slot];
    struct ledger_turn turn = {.ticket = 2};

    ledger_watch_head(ledger, &turn, 1, true);
    TEST_ASSERT_EQUAL_UINT64(0, turn.passed); /* it has had no time yet */
    ledger->job->tickets = 1;
    atomic_store(&first->waits_for, 400);
    atomic_store(&first->ticket, 1);
    ledger->slow_ms = 1;
    TEST_ASSERT_EQUAL_INT(0, ledger_wait_for(ledger, 0, 700, LONG_MS));
    ledger_settle(ledger, 0);
    /* What it waits for is not there: it keeps its place. */
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(holder, 300));
    atomic_store(&first->waits_for, 701);
    TEST_ASSERT_EQUAL_INT(-ETIMEDOUT, ledger_wait_for(ledger, 0, 100, 120));
}

static void test_what_a_dead_process_held_is_found_behind_one_that_was_stopped(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *stopped = test_join(JOB, 0);
    struct member holder = member_start(JOB, 0);
    struct waiting waiting = {.ledger = ledger, .least = 700};
    pthread_t thread;

    member_do(&holder, ORDER_EXTEND, 1000, 0);
    ledger->job->tickets = 1;
    atomic_store(&ledger_own_slot(stopped)->waits_for, 400);
    atomic_store(&ledger_own_slot(stopped)->ticket, 1);
    ledger->slow_ms = 1;
    pthread_create(&thread, NULL, wait_for_memory, &waiting);
    await_waiting(stopped, ledger->slot);
    await_next_look(stopped, ledger->slot);
    member_kill(&holder);
    pthread_join(thread, NULL); /* or the test waits for minutes */
    TEST_ASSERT_EQUAL_INT(0, waiting.rc);
}

static void test_what_the_job_can_lend_counts_as_free_unless_its_owner_is_silent(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *other = test_join(JOB, 1000),
                  *third = test_join("another", 500);

    TEST_ASSERT_EQUAL_INT(0, ledger_extend(other, 600));
    ledger_publish(other, &(struct ledger_figures){.used = 500, .cached = 450, .lendable = 400});
    ledger_publish(third, &(struct ledger_figures){.used = 300});
    TEST_ASSERT_EQUAL_UINT64(100, ledger_live_of_others(ledger, false));
    ledger_publish(other, &(struct ledger_figures){.used = 500, .lendable = 400, .unsure = 300});
    TEST_ASSERT_EQUAL_UINT64(100, ledger_live_of_others(ledger, false));
    TEST_ASSERT_EQUAL_UINT64(400, ledger_live_of_others(ledger, true));
    ledger_publish(other, &(struct ledger_figures){.used = 500, .unsure = 300}); /* it may lie */
    TEST_ASSERT_EQUAL_UINT64(500, ledger_live_of_others(ledger, true));
    ledger_publish(other, &(struct ledger_figures){.used = 0, .lendable = 400});
    TEST_ASSERT_EQUAL_UINT64(0, ledger_live_of_others(ledger, false));
    TEST_ASSERT_FALSE(ledger_is_owed(ledger));
    TEST_ASSERT_FALSE(ledger_ask(ledger, 10, 1));
    TEST_ASSERT_TRUE(ledger_is_owed(ledger));
    /* It may be slow, and have all of it idle. */
    TEST_ASSERT_EQUAL_UINT64(0, ledger_live_of_others(ledger, false));
    atomic_store(&ledger->silent_since[other->slot], 0); /* for longer than anybody is slow */
    TEST_ASSERT_EQUAL_UINT64(ledger_lease(other), ledger_live_of_others(ledger, false));
    TEST_ASSERT_FALSE(ledger_is_owed(ledger));
}

/* Or the test waits for minutes. */
static void test_who_has_enough_room_does_not_wait_for_a_slow_neighbour(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *slow = test_join(JOB, 1000);
    const struct member member = start_listening(800);
    struct asking asking = {.ledger = ledger, .bytes = 300};
    pthread_t thread;

    TEST_ASSERT_EQUAL_INT(0, ledger_extend(slow, 200));
    pthread_create(&thread, NULL, ask, &asking);
    member_answer(&member);
    member_do(&member, ORDER_SETTLE, 500, 0);
    member_do(&member, ORDER_ANSWER, 300, 0);
    pthread_join(thread, NULL);
    TEST_ASSERT_TRUE(asking.given);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 300));
    TEST_ASSERT_EQUAL_UINT64(0, atomic_load(&ledger->in_vain[slow->slot])); /* it had little time */
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_neighbour_hears_the_question_and_its_answer_is_awaited);
    RUN_TEST(test_ask_says_so_if_the_neighbours_give_nothing);
    RUN_TEST(test_process_alone_asks_no_one);
    RUN_TEST(test_stopped_neighbour_is_not_waited_for_twice);
    RUN_TEST(test_neighbour_that_dies_over_a_question_is_not_waited_for);
    RUN_TEST(test_questions_of_several_are_heard_as_the_largest);
    RUN_TEST(test_the_listener_knows_which_process_asked_for_most);
    RUN_TEST(test_question_during_an_answer_is_heard_next);
    RUN_TEST(test_counters_of_questions_may_wrap);
    RUN_TEST(test_poke_reaches_a_process_of_another_job);
    RUN_TEST(test_new_max_reaches_the_members_who_listen);
    RUN_TEST(test_wake_ends_listening_for_good);
    RUN_TEST(test_wait_takes_what_is_there_at_once);
    RUN_TEST(test_what_is_leased_already_is_not_waited_for);
    RUN_TEST(test_no_word_of_freed_memory_is_missed);
    RUN_TEST(test_wait_is_never_for_more_than_max);
    RUN_TEST(test_wait_ends_after_its_time);
    RUN_TEST(test_wait_is_ended_by_a_settle);
    RUN_TEST(test_wait_is_ended_by_a_higher_max_and_by_a_lower_one);
    RUN_TEST(test_wait_is_ended_by_the_death_of_the_holder);
    RUN_TEST(test_who_waits_first_is_served_first);
    RUN_TEST(test_second_is_first_when_the_first_gives_up_or_dies);
    RUN_TEST(test_of_those_that_hold_and_wait_for_each_other_one_is_refused);
    RUN_TEST(test_no_one_is_refused_while_the_first_can_be_served);
    RUN_TEST(test_one_that_waits_only_briefly_is_part_of_no_cycle);
    RUN_TEST(test_cycle_that_closes_while_all_wait_is_found);
    RUN_TEST(test_threads_of_a_process_wait_in_turn);
    RUN_TEST(test_those_behind_the_first_do_not_count_all_processes_again_and_again);
    RUN_TEST(test_a_long_wait_for_the_lock_looks_less_and_less_often);
    RUN_TEST(test_no_wake_up_is_lost_when_memory_goes_to_and_fro);
    RUN_TEST(test_on_a_full_card_no_process_is_asked_for_more_than_it_has);
    RUN_TEST(test_on_a_full_card_the_next_are_asked_for_what_one_could_not_give);
    RUN_TEST(test_one_that_is_first_and_does_not_take_its_memory_is_passed_over);
    RUN_TEST(test_what_a_dead_process_held_is_found_behind_one_that_was_stopped);
    RUN_TEST(test_what_the_job_can_lend_counts_as_free_unless_its_owner_is_silent);
    RUN_TEST(test_who_has_enough_room_does_not_wait_for_a_slow_neighbour);
    return UNITY_END();
}

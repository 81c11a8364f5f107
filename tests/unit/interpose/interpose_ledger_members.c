/* ledger, the processes in it: slots, descriptors that the program closes, forks, and containers. */
#include "ledger_support.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

static void *woken;                         /* the last word whose sleepers were woken */
static _Thread_local struct timespec slept; /* how long the last sleep was to be */

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
    long values[6];
    va_list arguments;

    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        values[i] = va_arg(arguments, long);
    va_end(arguments);
    if (number == SYS_futex && values[1] == FUTEX_WAKE)
        woken = (void *)values[0];
    if (number == SYS_futex && values[1] == FUTEX_WAIT && values[3])
        slept = *(const struct timespec *)values[3];
    return __real_syscall(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}

void setUp(void)
{
    test_begin();
}

void tearDown(void)
{
    test_end();
}

static const uint64_t apart[RECORDING_APART_COUNT] = {5, 300, 40, [RECORDING_APART_PARTS] = 260};

/* ---- slots ---- */

static void test_slots_run_out_and_come_back(void)
{
    struct member member = member_start(JOB, 1000);
    struct ledger *last = NULL;

    for (int i = 1; i < LEDGER_SLOTS; i++)
        last = test_join(JOB, 0);
    TEST_ASSERT_EQUAL_INT(LEDGER_SLOTS - 1, last->slot);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(last, 1000));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, member_do(&member, ORDER_EXTEND, 1, 0));
    struct ledger *late = test_open();
    TEST_ASSERT_EQUAL_INT(-ENOSPC, ledger_join(late, JOB, 0));
    TEST_ASSERT_EQUAL_INT(-ENOSPC, ledger_set_max(late, JOB, 0));
    test_close(last);
    TEST_ASSERT_EQUAL_INT(0, ledger_join(late, JOB, 0));
    TEST_ASSERT_EQUAL_INT(LEDGER_SLOTS - 1, late->slot);
    TEST_ASSERT_EQUAL_INT64(0, member_do(&member, ORDER_EXTEND, 1000, 0));
}

static void test_slot_of_a_dead_process_is_reused_without_its_figures(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct member dead = member_start(JOB, 0);
    struct ledger_entry entry;
    uint32_t question;

    member_do(&dead, ORDER_EXTEND, 900, 0);
    const int slot = dead.slot;
    atomic_store(&ledger->file->slots[slot].used, 800);
    atomic_store(&ledger->file->slots[slot].peak, 900);
    atomic_store(&ledger->file->slots[slot].refused, 2);
    atomic_store(&ledger->file->slots[slot].ticket, 1);
    TEST_ASSERT_TRUE(ledger_ask_slot(ledger, slot, 5, &question));
    member_kill(&dead);
    TEST_ASSERT_FALSE(ledger_read(ledger, slot, &entry));
    struct member next = member_start(JOB, 0);
    TEST_ASSERT_EQUAL_INT(slot, next.slot);
    TEST_ASSERT_TRUE(ledger_read(ledger, slot, &entry));
    TEST_ASSERT_EQUAL_INT(next.pid, entry.pid);
    TEST_ASSERT_EQUAL_UINT64(0, atomic_load(&ledger->file->slots[slot].lease));
    TEST_ASSERT_EQUAL_UINT64(0, entry.used);
    TEST_ASSERT_EQUAL_UINT64(0, entry.peak);
    TEST_ASSERT_EQUAL_UINT64(0, entry.refused);
    TEST_ASSERT_FALSE(entry.waiting);
    TEST_ASSERT_EQUAL_UINT64(0, entry.job_used);
    TEST_ASSERT_EQUAL_UINT32(question,
                             atomic_load(&ledger->file->slots[slot].answered)); /* not its question */
    TEST_ASSERT_EQUAL_INT64(0, member_do(&next, ORDER_EXTEND, 1000, 0));
}

static void test_a_slot_that_was_looked_at_is_free_when_its_process_ends(void)
{
    struct ledger *first = test_join(JOB, 1000);
    const int slot = first->slot;

    test_join(JOB, 0); /* looks at the slots from the first on, and stays */
    test_close(first);
    TEST_ASSERT_EQUAL_INT(slot, test_join(JOB, 0)->slot);
}

/* It takes the slot of a dead process, and then the lock cannot be had. */
static void test_one_that_could_not_join_has_no_lease(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *late = test_open();
    struct member dead = member_start(JOB, 0);
    struct ledger_entry entry;

    member_do(&dead, ORDER_EXTEND, 900, 0);
    member_kill(&dead);
    TEST_ASSERT_EQUAL_INT(0, ledger_lock(ledger));
    late->patience_ms = 1;
    TEST_ASSERT_EQUAL_INT(-ETIMEDOUT, ledger_join(late, JOB, 0));
    ledger_unlock(ledger);
    TEST_ASSERT_EQUAL_INT(dead.slot, late->slot);
    TEST_ASSERT_FALSE(ledger_read(ledger, late->slot, &entry));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 1000));
}

static void test_bytes_of_a_dead_process_go_to_the_next_that_asks(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct member dead = member_start(JOB, 0);

    TEST_ASSERT_EQUAL_INT64(0, member_do(&dead, ORDER_EXTEND, 1000, 0));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(ledger, 1));
    member_kill(&dead);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 1000));
    TEST_ASSERT_EQUAL_UINT64(1000, test_sum(ledger));
}

static void test_sums_are_counted_again_after_another_process_has_written_into_our_lock(void)
{
    struct ledger *ledger = test_join(JOB, 1000);

    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 100));
    TEST_ASSERT_EQUAL_INT(0, ledger_lock(ledger));
    atomic_store(&ledger->file->lock, 0); /* it took us for dead, took the lock and released it */
    atomic_store(&ledger->job->sum, 900);
    ledger_unlock(ledger);
    TEST_ASSERT_EQUAL_UINT64(100, test_sum(ledger));
    atomic_store(&ledger->job->sum, 900);
    TEST_ASSERT_EQUAL_UINT64(900, test_sum(ledger)); /* once is enough */
}

static void test_a_sleep_lasts_as_long_as_asked(void)
{
    _Atomic uint32_t word = 1;

    ledger_sleep(&word, 0, 61234); /* which it is not: returns at once */
    TEST_ASSERT_EQUAL_INT64(61, slept.tv_sec);
    TEST_ASSERT_EQUAL_INT64(234000000, slept.tv_nsec);
}

static void test_the_lock_wakes_one_that_sleeps_on_it(void)
{
    struct ledger *ledger = test_join(JOB, 1000);

    woken = NULL;
    TEST_ASSERT_EQUAL_INT(0, ledger_lock(ledger));
    ledger_unlock(ledger);
    TEST_ASSERT_NULL_MESSAGE(woken, "no process sleeps");
    TEST_ASSERT_EQUAL_INT(0, ledger_lock(ledger));
    atomic_store(&ledger->file->waiters, 1);
    ledger_unlock(ledger);
    TEST_ASSERT_EQUAL_PTR(&ledger->file->lock, woken);
}

static void test_closing_gives_everything_back(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct member member = member_start(JOB, 0);
    struct ledger_entry entry;

    member_do(&member, ORDER_EXTEND, 1000, 0);
    const int slot = member.slot;
    member_end(&member);
    TEST_ASSERT_EQUAL_UINT64(0, test_sum(ledger));
    TEST_ASSERT_FALSE(ledger_read(ledger, slot, &entry));
}

/* ---- descriptors ---- */

static void test_process_that_closes_all_descriptors_keeps_its_lease(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct member member = member_start(JOB, 0), third = member_start(JOB, 0);
    struct ledger_entry entry;

    member_do(&member, ORDER_EXTEND, 600, 0);
    member_do(&third, ORDER_EXTEND, 100, 0);
    member_do(&member, ORDER_CLOSE_ALL, 0, 0);
    TEST_ASSERT_TRUE(ledger_read(ledger, member.slot, &entry));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(ledger, 301));
    TEST_ASSERT_EQUAL_UINT64(700, test_living(ledger));
    /* Slot 8 has no process, so lock word 9 is that of a dead owner. Taking it over counts all living ones.
     */
    atomic_store(&ledger->file->lock, 9);
    TEST_ASSERT_EQUAL_INT64(-ENOMEM, member_do(&member, ORDER_EXTEND, 901, 0));
    TEST_ASSERT_EQUAL_UINT64(700, test_sum(ledger));
    TEST_ASSERT_EQUAL_INT64(0, member_do(&member, ORDER_EXTEND, 650, 0));
    TEST_ASSERT_EQUAL_UINT64(750, test_sum(ledger));
    TEST_ASSERT_EQUAL_UINT64(750, test_living(ledger));
    /* and it sees who dies */
    member_kill(&third);
    TEST_ASSERT_EQUAL_INT64(0, member_do(&member, ORDER_EXTEND, 1000, 0));
    member_kill(&member);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 1000));
}

static void test_file_that_gets_the_number_of_our_descriptor_is_left_alone(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct member member = member_start(JOB, 0);

    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 300));
    member_do(&member, ORDER_EXTEND, 600, 0);
    TEST_ASSERT_GREATER_THAN_INT64(2, member_do(&member, ORDER_DUP_OVER, 0, 0));
    /* in that file no slot is locked: all others would seem dead */
    const uint32_t questions = atomic_load(&ledger->file->slots[ledger->slot].wanted);
    TEST_ASSERT_EQUAL_INT64(0, member_do(&member, ORDER_ASK, 1, 0));
    TEST_ASSERT_EQUAL_UINT32(questions + 1, atomic_load(&ledger->file->slots[ledger->slot].wanted));
    TEST_ASSERT_EQUAL_INT64(-ENOMEM, member_do(&member, ORDER_EXTEND, 701, 0));
    TEST_ASSERT_EQUAL_UINT64(900, test_sum(ledger));
    TEST_ASSERT_EQUAL_INT64(-ETIMEDOUT, member_do(&member, ORDER_WAIT, 701, 0));
    member_do(&member, ORDER_SETTLE, 10, 0);
    TEST_ASSERT_EQUAL_INT64(1, member_do(&member, ORDER_OWN_FILE, 0, 0));
    TEST_ASSERT_EQUAL_UINT64(310, test_living(ledger));
    member_end(&member);
    TEST_ASSERT_EQUAL_UINT64(300, test_sum(ledger));
}

/* The file was removed, and another process has made a new one. No slot is locked in that one: all others
 * would seem dead. */
static void test_another_file_of_the_same_name_is_not_taken_for_ours(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    char path[2 * LEDGER_PATH];

    snprintf(path, sizeof(path), "%s/" CARD ".ledger", test_folder);
    close(ledger->fd);
    TEST_ASSERT_EQUAL_INT(0, unlink(path));
    struct ledger *other = test_join(JOB, 1000);
    if (other->fd == ledger->fd) { /* the number that we had */
        other->fd = fcntl(other->fd, F_DUPFD_CLOEXEC, other->fd + 1);
        close(ledger->fd);
    }
    ledger_reopen(ledger);
    TEST_ASSERT_FALSE(ledger_is_open(ledger));
    TEST_ASSERT_FALSE(ledger_is_file(other, ledger->fd));
}

static void test_close_leaves_the_programs_file_open(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    const int fd = ledger->fd;

    TEST_ASSERT_EQUAL_INT(fd, dup2(0, fd));
    test_close(ledger);
    TEST_ASSERT_NOT_EQUAL(-1, fcntl(fd, F_GETFD));
    close(fd);
}

static void test_join_refuses_if_the_program_has_closed_the_file(void)
{
    struct ledger *ledger = test_open();

    close(ledger->fd);
    TEST_ASSERT_EQUAL_INT(-EBADF, ledger_join(ledger, JOB, 1000));
}

static void test_descriptor_is_out_of_the_way_and_not_inherited(void)
{
    struct ledger *ledger = test_join(JOB, 1000);

    TEST_ASSERT_GREATER_OR_EQUAL_INT(1000, ledger->fd);
    TEST_ASSERT_EQUAL_INT(FD_CLOEXEC, fcntl(ledger->fd, F_GETFD) & FD_CLOEXEC);
}

static void test_child_after_fork_does_not_keep_its_dead_parent_alive(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct member member = member_start(JOB, 0);
    struct ledger_entry entry;

    member_do(&member, ORDER_EXTEND, 1000, 0);
    const pid_t child = (pid_t)member_do(&member, ORDER_FORK, 0, 0);
    TEST_ASSERT_GREATER_THAN_INT(0, child);
    TEST_ASSERT_TRUE(ledger_read(ledger, member.slot, &entry));
    TEST_ASSERT_EQUAL_INT64(1000, member_do(&member, ORDER_LEASE, 0, 0));
    member_kill(&member);
    TEST_ASSERT_EQUAL_INT(0, kill(child, 0));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 1000));
    TEST_ASSERT_EQUAL_INT(0, kill(child, SIGKILL));
}

static void test_ledger_of_a_child_after_fork_does_no_harm(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    const struct ledger_figures figures = {1, 2, 3, 4, 5};
    const struct ledger_refusal refusal = {1, 2, 3, 4, 5, 6, 7};
    int status;

    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 500));
    const pid_t child = fork();
    if (child == 0) {
        uint64_t bytes;

        ledger_after_fork(ledger);
        ledger_publish(ledger, &figures);
        ledger_note_refusal(ledger, &refusal, apart);
        ledger_settle(ledger, 1);
        ledger_note_lent(ledger, 1);
        ledger_answer(ledger);
        ledger_wake(ledger);
        const bool harmless = ledger_extend(ledger, 5000) == 0 &&
                              ledger_wait_for(ledger, 0, 1, 0) == -ENOMEM && !ledger_ask(ledger, 1, 0) &&
                              !ledger_listen(ledger, &bytes) && ledger_join(ledger, JOB, 1) == -EBADF;
        ledger_close(ledger);
        _exit(harmless ? 0 : 1);
    }
    TEST_ASSERT_EQUAL_INT(child, waitpid(child, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
    TEST_ASSERT_EQUAL_UINT64(500, ledger_lease(ledger));
    TEST_ASSERT_EQUAL_UINT64(500, test_sum(ledger));
    TEST_ASSERT_EQUAL_UINT64(500, test_living(test_join(JOB, 0)));
}

/* ---- containers ---- */

/* Takes all of the job's memory in a PID namespace of its own, and stays. */
static void run_in_namespace(int ready)
{
    char why[LEDGER_WHY], result = 0;
    struct ledger *ledger;

    test_after_fork();
    result = ledger_open(&ledger, test_folder, CARD, why) == 0 && ledger_join(ledger, JOB, 0) == 0 &&
             ledger_extend(ledger, 1000) == 0 && getpid() == 1;
    if (write(ready, &result, 1) == 1)
        pause();
    _exit(0);
}

static void test_processes_of_another_pid_namespace_are_seen_alive_and_dead(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct ledger_entry entry;
    int ready[2], status;
    char result = 0;

    TEST_ASSERT_EQUAL_INT(0, pipe2(ready, O_CLOEXEC));
    const pid_t outer = fork();
    if (outer == 0) {
        if (unshare(CLONE_NEWPID))
            _exit(77);
        const pid_t inner = fork();
        if (inner == 0)
            run_in_namespace(ready[1]);
        test_after_fork();
        waitpid(inner, NULL, 0);
        _exit(0);
    }
    close(ready[1]);
    if (read(ready[0], &result, 1) != 1) {
        waitpid(outer, &status, 0);
        TEST_IGNORE_MESSAGE("no PID namespace can be made here");
    }
    close(ready[0]);
    TEST_ASSERT_EQUAL_INT(1, result);
    TEST_ASSERT_TRUE(ledger_read(ledger, 1, &entry));
    TEST_ASSERT_EQUAL_INT(1, entry.pid); /* as it sees itself */
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(ledger, 1));
    /* the outer one takes the inner one with it */
    TEST_ASSERT_EQUAL_INT(0, kill(outer, SIGKILL));
    TEST_ASSERT_EQUAL_INT(outer, waitpid(outer, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, ledger_wait_for(ledger, 0, 1000, 60000));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_slots_run_out_and_come_back);
    RUN_TEST(test_slot_of_a_dead_process_is_reused_without_its_figures);
    RUN_TEST(test_a_slot_that_was_looked_at_is_free_when_its_process_ends);
    RUN_TEST(test_one_that_could_not_join_has_no_lease);
    RUN_TEST(test_bytes_of_a_dead_process_go_to_the_next_that_asks);
    RUN_TEST(test_sums_are_counted_again_after_another_process_has_written_into_our_lock);
    RUN_TEST(test_a_sleep_lasts_as_long_as_asked);
    RUN_TEST(test_the_lock_wakes_one_that_sleeps_on_it);
    RUN_TEST(test_closing_gives_everything_back);
    RUN_TEST(test_process_that_closes_all_descriptors_keeps_its_lease);
    RUN_TEST(test_file_that_gets_the_number_of_our_descriptor_is_left_alone);
    RUN_TEST(test_another_file_of_the_same_name_is_not_taken_for_ours);
    RUN_TEST(test_close_leaves_the_programs_file_open);
    RUN_TEST(test_join_refuses_if_the_program_has_closed_the_file);
    RUN_TEST(test_descriptor_is_out_of_the_way_and_not_inherited);
    RUN_TEST(test_child_after_fork_does_not_keep_its_dead_parent_alive);
    RUN_TEST(test_ledger_of_a_child_after_fork_does_no_harm);
    RUN_TEST(test_processes_of_another_pid_namespace_are_seen_alive_and_dead);
    return UNITY_END();
}

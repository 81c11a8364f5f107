/* ledger: layout, leases, jobs, the lock word and what people see. Processes that join and leave are in
 * interpose_ledger_members.c, questions and waiting in interpose_ledger_wait.c, files in
 * interpose_ledger_files.c, deaths in interpose_ledger_death.c. */
#include "ledger_support.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

#define MIB      UINT64_C(1048576)
#define NEVER_MS 600000 /* the test would take too long */

void setUp(void)
{
    test_begin();
}

void tearDown(void)
{
    test_end();
}

static const uint64_t apart[RECORDING_APART_COUNT] = {5, 300, 40, [RECORDING_APART_PARTS] = 260};

/* ---- layout ---- */

/* A change here is a change of LEDGER_VERSION. */
static void test_layout_is_frozen(void)
{
    TEST_ASSERT_EQUAL(7, LEDGER_VERSION);
    TEST_ASSERT_EQUAL_HEX64(UINT64_C(0x72656764656c6367), LEDGER_MAGIC);
    TEST_ASSERT_EQUAL(435320, sizeof(struct ledger_file));
    TEST_ASSERT_EQUAL(64, sizeof(struct ledger_head));
    TEST_ASSERT_EQUAL(168, sizeof(struct ledger_job));
    TEST_ASSERT_EQUAL(808, sizeof(struct ledger_slot));
    TEST_ASSERT_EQUAL(56, sizeof(struct ledger_refusal));
    TEST_ASSERT_EQUAL_INT64(INT64_C(1099511627776), LEDGER_SETUP_BYTE);
    TEST_ASSERT_EQUAL_INT64(INT64_C(1099511627777), LEDGER_SLOT_BYTE);
    TEST_ASSERT_EQUAL(512, LEDGER_SLOTS);
    TEST_ASSERT_EQUAL(128, LEDGER_JOBS);
    TEST_ASSERT_EQUAL(10, LEDGER_OWNER_BITS);
}

static void test_offsets_are_frozen(void)
{
    TEST_ASSERT_EQUAL(0, offsetof(struct ledger_head, magic));
    TEST_ASSERT_EQUAL(8, offsetof(struct ledger_head, version));
    TEST_ASSERT_EQUAL(12, offsetof(struct ledger_head, bytes));
    TEST_ASSERT_EQUAL(16, offsetof(struct ledger_head, uuid));
    TEST_ASSERT_EQUAL(64, offsetof(struct ledger_file, lock));
    TEST_ASSERT_EQUAL(68, offsetof(struct ledger_file, waiters));
    TEST_ASSERT_EQUAL(72, offsetof(struct ledger_file, freed));
    TEST_ASSERT_EQUAL(76, offsetof(struct ledger_file, answers));
    TEST_ASSERT_EQUAL(80, offsetof(struct ledger_file, sizing));
    TEST_ASSERT_EQUAL(84, offsetof(struct ledger_file, taken));
    TEST_ASSERT_EQUAL(88, offsetof(struct ledger_file, context_bytes));
    TEST_ASSERT_EQUAL(96, offsetof(struct ledger_file, guards));
    TEST_ASSERT_EQUAL(100, offsetof(struct ledger_file, admitted));
    TEST_ASSERT_EQUAL(104, offsetof(struct ledger_file, card_tickets));
    TEST_ASSERT_EQUAL(112, offsetof(struct ledger_file, card_waiting));
    TEST_ASSERT_EQUAL(120, offsetof(struct ledger_file, jobs));
    TEST_ASSERT_EQUAL(21624, offsetof(struct ledger_file, slots));
    TEST_ASSERT_EQUAL(0, offsetof(struct ledger_job, name));
    TEST_ASSERT_EQUAL(64, offsetof(struct ledger_job, max));
    TEST_ASSERT_EQUAL(72, offsetof(struct ledger_job, sum));
    TEST_ASSERT_EQUAL(80, offsetof(struct ledger_job, given));
    TEST_ASSERT_EQUAL(88, offsetof(struct ledger_job, tickets));
    TEST_ASSERT_EQUAL(96, offsetof(struct ledger_job, waiting));
    TEST_ASSERT_EQUAL(104, offsetof(struct ledger_job, preset));
    TEST_ASSERT_EQUAL(112, offsetof(struct ledger_job, peak));
    TEST_ASSERT_EQUAL(120, offsetof(struct ledger_job, refused));
    TEST_ASSERT_EQUAL(128, offsetof(struct ledger_job, lent));
    TEST_ASSERT_EQUAL(136, offsetof(struct ledger_job, borrowed));
    TEST_ASSERT_EQUAL(144, offsetof(struct ledger_job, waited_ms));
    TEST_ASSERT_EQUAL(152, offsetof(struct ledger_job, min));
    TEST_ASSERT_EQUAL(160, offsetof(struct ledger_job, high));
    TEST_ASSERT_EQUAL(0, offsetof(struct ledger_slot, state));
    TEST_ASSERT_EQUAL(4, offsetof(struct ledger_slot, job));
    TEST_ASSERT_EQUAL(8, offsetof(struct ledger_slot, pid));
    TEST_ASSERT_EQUAL(12, offsetof(struct ledger_slot, uid));
    TEST_ASSERT_EQUAL(16, offsetof(struct ledger_slot, lease));
    TEST_ASSERT_EQUAL(24, offsetof(struct ledger_slot, used));
    TEST_ASSERT_EQUAL(32, offsetof(struct ledger_slot, cached));
    TEST_ASSERT_EQUAL(40, offsetof(struct ledger_slot, limit));
    TEST_ASSERT_EQUAL(48, offsetof(struct ledger_slot, peak));
    TEST_ASSERT_EQUAL(56, offsetof(struct ledger_slot, refused));
    TEST_ASSERT_EQUAL(64, offsetof(struct ledger_slot, lent));
    TEST_ASSERT_EQUAL(72, offsetof(struct ledger_slot, borrowed));
    TEST_ASSERT_EQUAL(80, offsetof(struct ledger_slot, waited_ms));
    TEST_ASSERT_EQUAL(88, offsetof(struct ledger_slot, started));
    TEST_ASSERT_EQUAL(96, offsetof(struct ledger_slot, wanted));
    TEST_ASSERT_EQUAL(100, offsetof(struct ledger_slot, answered));
    TEST_ASSERT_EQUAL(104, offsetof(struct ledger_slot, wanted_bytes));
    TEST_ASSERT_EQUAL(112, offsetof(struct ledger_slot, ticket));
    TEST_ASSERT_EQUAL(120, offsetof(struct ledger_slot, waits_for));
    TEST_ASSERT_EQUAL(128, offsetof(struct ledger_slot, card_ticket));
    TEST_ASSERT_EQUAL(136, offsetof(struct ledger_slot, card_waits_for));
    TEST_ASSERT_EQUAL(144, offsetof(struct ledger_slot, asked));
    TEST_ASSERT_EQUAL(152, offsetof(struct ledger_slot, min));
    TEST_ASSERT_EQUAL(160, offsetof(struct ledger_slot, high));
    TEST_ASSERT_EQUAL(168, offsetof(struct ledger_slot, claim));
    TEST_ASSERT_EQUAL(176, offsetof(struct ledger_slot, command));
    TEST_ASSERT_EQUAL(240, offsetof(struct ledger_slot, refusals));
    TEST_ASSERT_EQUAL(688, offsetof(struct ledger_slot, apart));
    TEST_ASSERT_EQUAL(784, offsetof(struct ledger_slot, lendable));
    TEST_ASSERT_EQUAL(792, offsetof(struct ledger_slot, unsure));
    TEST_ASSERT_EQUAL(800, offsetof(struct ledger_slot, brief));
    TEST_ASSERT_EQUAL(40, offsetof(struct ledger_refusal, fits));
    TEST_ASSERT_EQUAL(48, offsetof(struct ledger_refusal, bound));
}

/* ---- leases ---- */

static void test_lease_grows_to_what_is_asked_and_settles_to_what_is_used(void)
{
    struct ledger *ledger = test_join(JOB, 1000);

    TEST_ASSERT_EQUAL_INT(1, ledger_slots(ledger)); /* no others are looked at */
    TEST_ASSERT_EQUAL_UINT64(0, ledger_lease(ledger));
    TEST_ASSERT_EQUAL_UINT64(1000, ledger_room(ledger));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 600));
    TEST_ASSERT_EQUAL_UINT64(600, ledger_lease(ledger));
    TEST_ASSERT_EQUAL_UINT64(400, ledger_room(ledger));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 500)); /* never lowers it */
    TEST_ASSERT_EQUAL_UINT64(600, ledger_lease(ledger));
    ledger_settle(ledger, 100);
    TEST_ASSERT_EQUAL_UINT64(100, ledger_lease(ledger));
    TEST_ASSERT_EQUAL_UINT64(900, ledger_room(ledger));
    TEST_ASSERT_EQUAL_UINT64(500, atomic_load(&ledger->job->given));
    TEST_ASSERT_EQUAL_UINT64(100, test_sum(ledger));
}

static void test_lease_beyond_max_is_refused_and_changes_nothing(void)
{
    struct ledger *ledger = test_join(JOB, 1000);

    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 1000));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(ledger, 1001));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(ledger, UINT64_MAX));
    TEST_ASSERT_EQUAL_UINT64(1000, ledger_lease(ledger));
    TEST_ASSERT_EQUAL_UINT64(1000, test_sum(ledger));
    TEST_ASSERT_EQUAL_UINT64(0, ledger_room(ledger));
}

static void test_lease_is_raised_by_more_only_from_what_the_others_leave(void)
{
    struct ledger *ledger = test_join(JOB, 1024 * MIB);
    struct ledger *other = test_join(JOB, 0);

    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 1));
    TEST_ASSERT_GREATER_THAN_UINT64(1, ledger_lease(ledger));
    TEST_ASSERT_LESS_THAN_UINT64(100 * MIB, ledger_lease(ledger));
    const uint64_t left = 1024 * MIB - ledger_lease(ledger);
    TEST_ASSERT_EQUAL_UINT64(left, ledger_room(other));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(other, left));
    TEST_ASSERT_EQUAL_UINT64(1024 * MIB, test_sum(ledger));
    TEST_ASSERT_EQUAL_UINT64(left, ledger_lease(other));
}

static void test_room_that_is_to_be_left_is_not_leased(void)
{
    struct ledger *ledger = test_join(JOB, 1000);

    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend_beside(ledger, 801, 200));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend_beside(ledger, 800, 200));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 1000));
    struct ledger *large = test_join("large", 1024 * MIB); /* gets a little more than it asks for */
    TEST_ASSERT_EQUAL_INT(0, ledger_extend_beside(large, 100 * MIB, 880 * MIB));
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(880 * MIB, ledger_room(large));
}

/* An unused lease would count against it. */
static void test_lease_beside_a_high_is_raised_by_no_more_than_asked(void)
{
    struct ledger *ledger = test_open();

    TEST_ASSERT_EQUAL_INT(
        0, ledger_join_within(ledger, JOB, &(struct ledger_limits){.max = 1024 * MIB, .high = MIB}));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 1));
    TEST_ASSERT_EQUAL_UINT64(1, ledger_lease(ledger));
}

/* Another process may have written into our slot. */
static void test_lease_of_our_own_is_as_we_know_it(void)
{
    struct ledger *ledger = test_join(JOB, 1000);

    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 600));
    atomic_store(&ledger->file->slots[ledger->slot].lease, 5);
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(ledger, 1001)); /* recounts */
    TEST_ASSERT_EQUAL_UINT64(600, ledger_lease(ledger));
    TEST_ASSERT_EQUAL_UINT64(600, test_sum(ledger));
}

static void test_driver_may_say_that_more_is_used_than_max(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *other = test_join(JOB, 0);

    ledger_settle(ledger, 1000);
    TEST_ASSERT_FALSE(ledger_is_over(ledger));
    ledger_settle(ledger, 1500);
    TEST_ASSERT_TRUE(ledger_is_over(ledger));
    TEST_ASSERT_EQUAL_UINT64(1500, test_sum(other));
    TEST_ASSERT_EQUAL_UINT64(0, ledger_room(other));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(other, 1));
    ledger_settle(ledger, 999);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(other, 1));
}

static void test_sums_of_absurd_figures_do_not_wrap(void)
{
    struct ledger *ledger = test_join(JOB, LEDGER_UNLIMITED), *other = test_join(JOB, 0);

    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, UINT64_MAX - 5));
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(UINT64_MAX - 5, ledger_lease(ledger));
    ledger_settle(other, UINT64_MAX / 2);
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, test_sum(ledger));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(other, UINT64_MAX - (UINT64_C(1) << 20)));
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(UINT64_MAX - (UINT64_C(1) << 20), ledger_lease(other));
    TEST_ASSERT_EQUAL_INT(0, ledger_set_max(other, JOB, 1000));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(ledger, UINT64_MAX));
}

static void test_two_processes_share_max(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct member member = member_start(JOB, 5); /* the job has its max already */

    TEST_ASSERT_EQUAL_INT64(1000, member_do(&member, ORDER_MAX, 0, 0));
    TEST_ASSERT_EQUAL_INT64(0, member_do(&member, ORDER_EXTEND, 700, 0));
    TEST_ASSERT_EQUAL_UINT64(300, ledger_room(ledger));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(ledger, 301));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 300));
    TEST_ASSERT_EQUAL_INT64(-ENOMEM, member_do(&member, ORDER_EXTEND, 701, 0));
    member_do(&member, ORDER_SETTLE, 0, 0);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 1000));
    TEST_ASSERT_EQUAL_INT64(-ENOMEM, member_do(&member, ORDER_EXTEND, 1, 0));
    member_end(&member);
}

static void test_lowering_max_below_what_is_used_refuses_what_is_new_only(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *other = test_join(JOB, 0);

    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 800));
    TEST_ASSERT_EQUAL_INT(0, ledger_set_max(other, JOB, 500));
    TEST_ASSERT_EQUAL_UINT64(500, ledger_max(ledger));
    TEST_ASSERT_EQUAL_UINT64(800, ledger_lease(ledger));
    TEST_ASSERT_EQUAL_UINT64(0, ledger_room(ledger));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 800));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(ledger, 801));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(other, 1));
    ledger_settle(ledger, 499);
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(other, 2));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(other, 1));
}

/* ---- jobs ---- */

static void test_jobs_do_not_see_each_other(void)
{
    struct ledger *one = test_join("one", 1000), *two = test_join("two", 500);

    TEST_ASSERT_EQUAL_INT(0, ledger_extend(one, 1000));
    TEST_ASSERT_EQUAL_UINT64(500, ledger_room(two));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(two, 500));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(two, 501));
    ledger_settle(one, 0);
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(two, 501));
    TEST_ASSERT_EQUAL_INT(0, ledger_set_max(two, "one", 7));
    TEST_ASSERT_EQUAL_UINT64(500, ledger_max(two));
    TEST_ASSERT_FALSE(ledger_ask(one, 1, 0));
}

static void test_process_without_a_job_has_no_limit_and_is_seen(void)
{
    struct ledger *ledger = test_join(NULL, 1000);
    struct ledger_entry entry;

    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, UINT64_MAX));
    ledger_settle(ledger, 12);
    TEST_ASSERT_EQUAL_UINT64(LEDGER_UNLIMITED, ledger_lease(ledger));
    TEST_ASSERT_EQUAL_UINT64(LEDGER_UNLIMITED, ledger_room(ledger));
    TEST_ASSERT_EQUAL_UINT64(LEDGER_UNLIMITED, ledger_max(ledger));
    TEST_ASSERT_FALSE(ledger_ask(ledger, 1, 0));
    TEST_ASSERT_TRUE(ledger_read(ledger, ledger->slot, &entry));
    TEST_ASSERT_EQUAL_STRING("", entry.job);
    TEST_ASSERT_EQUAL_UINT64(LEDGER_UNLIMITED, entry.job_max);
    TEST_ASSERT_EQUAL_UINT64(1000, entry.limit);
}

static void test_names_that_no_job_can_have_are_refused(void)
{
    struct ledger *ledger = test_open();
    char name[LEDGER_NAME + 1];

    memset(name, 'a', sizeof(name));
    name[LEDGER_NAME] = '\0';
    TEST_ASSERT_EQUAL_INT(-EINVAL, ledger_join(ledger, "", 1));
    TEST_ASSERT_EQUAL_INT(-EINVAL, ledger_join(ledger, name, 1));
    TEST_ASSERT_EQUAL_INT(-EINVAL, ledger_set_max(ledger, "", 1));
    TEST_ASSERT_EQUAL_INT(-EINVAL, ledger_set_max(ledger, name, 1));
    name[LEDGER_NAME - 1] = '\0';
    TEST_ASSERT_EQUAL_INT(0, ledger_join(ledger, name, 1));
    name[LEDGER_NAME - 2] = 'b'; /* the longest names differ in the last letter too */
    TEST_ASSERT_EQUAL_UINT64(5, ledger_max(test_join(name, 5)));
}

static void test_max_of_a_job_can_be_set_before_it_starts(void)
{
    struct ledger *visitor = test_open();
    struct ledger_entry entry;

    TEST_ASSERT_EQUAL_INT(0, ledger_set_max(visitor, JOB, 70));
    TEST_ASSERT_FALSE(ledger_read(visitor, visitor->slot, &entry)); /* a visitor is no process of the card */
    TEST_ASSERT_EQUAL_UINT64(70, ledger_max(test_join(JOB, 1000)));
    /* who has visited may join, and keeps its slot */
    const int slot = visitor->slot;
    TEST_ASSERT_EQUAL_INT(0, ledger_join(visitor, JOB, 0));
    TEST_ASSERT_EQUAL_INT(slot, visitor->slot);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(visitor, 70));
    TEST_ASSERT_EQUAL_INT(0, ledger_join(visitor, "another", 100)); /* which it enters with no lease */
    TEST_ASSERT_EQUAL_UINT64(0, ledger_lease(visitor));
}

static void test_job_without_a_process_can_start_over(void)
{
    struct ledger *tool = test_open();
    struct ledger_totals totals;
    struct member first = member_start(JOB, 1000);

    member_do(&first, ORDER_EXTEND, 600, 0);
    member_do(&first, ORDER_PUBLISH, 600, 0);
    TEST_ASSERT_EQUAL_INT(0, ledger_set_max(tool, JOB, 700));
    ledger_forget_job(tool, JOB); /* not while it has a process */
    TEST_ASSERT_EQUAL_INT64(700, member_do(&first, ORDER_MAX, 0, 0));
    member_kill(&first);
    struct ledger *next = test_join(JOB, 2000); /* the next process of the same run */
    TEST_ASSERT_EQUAL_UINT64(700, ledger_max(next));
    TEST_ASSERT_TRUE(ledger_read_job(next, JOB, &totals));
    TEST_ASSERT_EQUAL_UINT64(600, totals.peak);
    test_close(next);
    ledger_forget_job(tool, JOB); /* another run */
    TEST_ASSERT_FALSE(ledger_read_job(tool, JOB, &totals));
    next = test_join(JOB, 2000);
    TEST_ASSERT_EQUAL_UINT64(2000, ledger_max(next));
    test_close(next);
    TEST_ASSERT_EQUAL_INT(0, ledger_set_max(tool, JOB, 300)); /* for what comes */
    ledger_forget_job(tool, JOB);
    TEST_ASSERT_EQUAL_UINT64(300, ledger_max(test_join(JOB, 2000)));
}

static void test_damaged_number_of_a_job_names_none(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct ledger_slot *slot = &ledger->file->slots[ledger->slot];

    atomic_store(&slot->job, LEDGER_JOBS);
    TEST_ASSERT_EQUAL_PTR(&ledger->file->jobs[LEDGER_JOBS - 1], ledger_job_of(ledger, slot));
    atomic_store(&slot->job, LEDGER_JOBS + 1);
    TEST_ASSERT_NULL(ledger_job_of(ledger, slot));
}

static void test_damaged_number_of_slots_is_repaired(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct member member = member_start(JOB, 0);

    TEST_ASSERT_EQUAL_INT64(0, member_do(&member, ORDER_EXTEND, 600, 0));
    for (uint32_t taken = 0; taken < 2; taken++) {
        atomic_store(&ledger->file->taken, taken);
        TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(ledger, 500)); /* recounts */
        TEST_ASSERT_EQUAL_UINT64(600, test_sum(ledger));
    }
}

static void fill_jobs(struct ledger *ledger)
{
    char name[LEDGER_NAME];

    for (int i = 0; i < LEDGER_JOBS; i++) {
        snprintf(name, sizeof(name), "job %d", i);
        TEST_ASSERT_EQUAL_INT(0, ledger_set_max(ledger, name, 100 + (uint64_t)i));
    }
}

static void test_record_of_a_job_is_reused_only_if_no_process_is_in_it(void)
{
    struct ledger *visitor = test_open();
    struct member member = member_start("job 0", 100);
    struct ledger *joined[LEDGER_JOBS];
    struct ledger_totals totals;
    char name[LEDGER_NAME];

    TEST_ASSERT_EQUAL_INT64(0, member_do(&member, ORDER_EXTEND, 50, 0));
    member_do(&member, ORDER_PUBLISH, 50, 0);
    fill_jobs(visitor);
    for (int i = 1; i < LEDGER_JOBS; i++) {
        snprintf(name, sizeof(name), "job %d", i);
        joined[i] = test_join(name, 0);
        TEST_ASSERT_EQUAL_UINT64(100 + (uint64_t)i, ledger_max(joined[i]));
    }
    TEST_ASSERT_EQUAL_INT(-ENOSPC, ledger_set_max(visitor, "another", 5));
    TEST_ASSERT_EQUAL_INT(-ENOSPC, ledger_join(test_open(), "another", 5));
    member_kill(&member);
    TEST_ASSERT_EQUAL_INT(0, ledger_set_max(visitor, "another", 5));
    for (int i = 1; i < LEDGER_JOBS; i++)
        TEST_ASSERT_EQUAL_UINT64(100 + (uint64_t)i, ledger_max(joined[i]));
    TEST_ASSERT_EQUAL_UINT64(5, ledger_max(test_join("another", 7)));
    TEST_ASSERT_TRUE(ledger_read_job(visitor, "another", &totals));
    TEST_ASSERT_EQUAL_UINT64(0, totals.peak); /* that of the job before it was 50 */
}

/* Limits that were set for jobs to come are not dropped for others of that kind, but a process that joins has
 * a place. */
static void test_a_limit_that_waits_for_its_job_gives_way_to_a_process_only(void)
{
    struct ledger *visitor = test_open();

    fill_jobs(visitor);
    TEST_ASSERT_EQUAL_INT(-ENOSPC, ledger_set_max(visitor, "another", 5));
    struct ledger *joined = test_join("job 127", 7);
    TEST_ASSERT_EQUAL_UINT64(100 + LEDGER_JOBS - 1, ledger_max(joined));
    TEST_ASSERT_EQUAL_STRING("", ledger_dropped(joined));
    TEST_ASSERT_EQUAL_INT(0,
                          ledger_set_max(visitor, "job 5", LEDGER_UNLIMITED)); /* no limit needs no place */
    TEST_ASSERT_EQUAL_INT(0, ledger_set_max(visitor, "another", 5));
    TEST_ASSERT_EQUAL_INT(-ENOSPC, ledger_set_max(visitor, "one more", 6));
    joined = test_join("one more", 6);
    TEST_ASSERT_EQUAL_UINT64(6, ledger_max(joined));
    TEST_ASSERT_EQUAL_STRING("job 0", ledger_dropped(joined));
}

/* ---- the lock word ---- */

/* The last owner of the slot died with the lock, and a new process has the slot. */
static void test_lock_left_in_a_slot_is_free_for_its_next_owner(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct ledger_file *file = ledger->file;

    atomic_store(&file->lock, 7u << LEDGER_OWNER_BITS | 2);
    atomic_store(&file->jobs[0].sum, 12345); /* half a change */
    struct ledger *next = test_join(JOB, 0);
    TEST_ASSERT_EQUAL_INT(1, next->slot);
    TEST_ASSERT_EQUAL_UINT64(0, test_sum(next));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 1000));
}

/* A process that saw a dead owner must not take the lock from a new owner of that slot: the word is another
 * one each time that the lock is taken. */
static void test_lock_word_is_never_the_same_twice_in_a_row(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    uint32_t last = 0;

    atomic_store(&ledger->file->lock, UINT32_MAX & ~LEDGER_OWNER_MASK); /* the count wraps */
    for (int i = 0; i < 5; i++) {
        TEST_ASSERT_EQUAL_INT(0, ledger_lock(ledger));
        const uint32_t word = atomic_load(&ledger->file->lock);
        ledger_unlock(ledger);
        TEST_ASSERT_EQUAL_UINT32(ledger->slot + 1, word & LEDGER_OWNER_MASK);
        TEST_ASSERT_EQUAL_UINT32(0, atomic_load(&ledger->file->lock) & LEDGER_OWNER_MASK);
        TEST_ASSERT_EQUAL_UINT32(word & ~LEDGER_OWNER_MASK, atomic_load(&ledger->file->lock));
        TEST_ASSERT_NOT_EQUAL(last, word);
        last = word;
    }
    TEST_ASSERT_EQUAL_UINT32(4u << LEDGER_OWNER_BITS | 1, last);
}

static void test_lock_word_of_no_slot_is_taken_over(void)
{
    struct ledger *ledger = test_join(JOB, 1000);

    for (uint32_t owner = LEDGER_SLOTS; owner <= LEDGER_OWNER_MASK; owner += 255) {
        atomic_store(&ledger->file->lock, owner);
        atomic_store(&ledger->file->jobs[0].sum, UINT64_MAX);
        ledger_settle(ledger, owner % 1000);
        TEST_ASSERT_EQUAL_UINT64(owner % 1000, test_sum(ledger));
    }
}

static void test_owner_that_does_not_go_on_is_not_waited_for_for_ever(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *other = test_join(JOB, 0);

    ledger->patience_ms = 20;
    TEST_ASSERT_EQUAL_INT(0, ledger_lock(other));
    TEST_ASSERT_EQUAL_INT(-ETIMEDOUT, ledger_extend(ledger, 1));
    ledger->patience_ms = NEVER_MS; /* at a later try such an owner is waited for 20 ms (STUCK_MS) */
    TEST_ASSERT_EQUAL_INT(-ETIMEDOUT, ledger_wait_for(ledger, 0, 1, 0));
    TEST_ASSERT_EQUAL_INT(-ETIMEDOUT, ledger_set_max(ledger, JOB, 1));
    ledger_unlock(other);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 1));
    TEST_ASSERT_EQUAL_UINT64(1000, ledger_max(ledger));
}

/* ---- what people see ---- */

static void test_readers_see_what_a_process_publishes(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *reader = test_open();
    struct ledger_entry entry;

    ledger_extend(ledger, 200);
    ledger_publish(ledger, &(struct ledger_figures){.used = 150, .cached = 40, .limit = 777});
    ledger_publish(ledger, &(struct ledger_figures){.used = 120, .cached = 50, .limit = 778});
    TEST_ASSERT_TRUE(ledger_read(reader, ledger->slot, &entry));
    TEST_ASSERT_EQUAL_INT(getpid(), entry.pid);
    TEST_ASSERT_EQUAL_UINT(geteuid(), entry.uid);
    TEST_ASSERT_FALSE(entry.waiting);
    TEST_ASSERT_EQUAL_STRING(JOB, entry.job);
    TEST_ASSERT_NOT_NULL(strstr(entry.command, "interpose_ledger"));
    TEST_ASSERT_EQUAL_UINT64(120, entry.used);
    TEST_ASSERT_EQUAL_UINT64(150, entry.peak);
    TEST_ASSERT_EQUAL_UINT64(50, entry.cached);
    TEST_ASSERT_EQUAL_UINT64(778, entry.limit);
    TEST_ASSERT_EQUAL_UINT64(1000, entry.job_max);
    TEST_ASSERT_EQUAL_UINT64(200, entry.job_used);
    TEST_ASSERT_GREATER_THAN_UINT64(0, entry.started);
}

static void test_totals_of_a_job_outlive_its_processes(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct member member = member_start(JOB, 0);
    struct ledger_totals totals;

    TEST_ASSERT_FALSE(ledger_read_job(ledger, "no such job", &totals));
    TEST_ASSERT_FALSE(ledger_read_job(ledger, "", &totals));
    TEST_ASSERT_EQUAL_INT64(0, member_do(&member, ORDER_EXTEND, 600, 0));
    member_do(&member, ORDER_PUBLISH, 600, 0);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 300));
    ledger_publish_used(ledger, 300);
    ledger_publish_used(ledger, 100);
    ledger_note_refusal(ledger, &(struct ledger_refusal){.asked = 5}, apart);
    TEST_ASSERT_EQUAL_INT(-ETIMEDOUT, ledger_wait_for(ledger, 0, 1000, 20));
    member_kill(&member);
    /* The killed process's figures are still in its slot, but it uses nothing any more. */
    ledger_publish_used(ledger, 350);
    TEST_ASSERT_TRUE(ledger_read_job(ledger, JOB, &totals));
    TEST_ASSERT_EQUAL_UINT64(1000, totals.max);
    TEST_ASSERT_EQUAL_UINT64(900, totals.peak);
    TEST_ASSERT_EQUAL_UINT64(1, totals.refused);
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(20, totals.waited_ms);
}

/* What is used is published before the lease of a process that has shrunk is: the sum may be of two moments.
 */
static void test_a_job_can_be_looked_at_without_joining_it(void)
{
    struct ledger *ledger = test_join(JOB, 1000), *other = test_join(JOB, 0), *stranger = test_join("b", 9);
    uint64_t max, used;

    ledger_publish_used(ledger, 300);
    ledger_publish_used(other, 20);
    ledger_publish_used(stranger, 9);
    TEST_ASSERT_TRUE(ledger_look_at_job(test_folder, CARD, JOB, &max, &used));
    TEST_ASSERT_EQUAL_UINT64(1000, max);
    TEST_ASSERT_EQUAL_UINT64(320, used);
    TEST_ASSERT_FALSE(ledger_look_at_job(test_folder, CARD, "none", &max, &used));
    TEST_ASSERT_FALSE(ledger_look_at_job(test_folder, "GPU-another", JOB, &max, &used));
    /* Its first process will set the max, unless that is set before it comes. */
    TEST_ASSERT_EQUAL_INT(0, ledger_set_limit(ledger, "early", LEDGER_MIN, 500));
    TEST_ASSERT_FALSE(ledger_look_at_job(test_folder, CARD, "early", &max, &used));
    TEST_ASSERT_EQUAL_INT(0, ledger_set_limit(ledger, "early", LEDGER_MAX, 700));
    TEST_ASSERT_TRUE(ledger_look_at_job(test_folder, CARD, "early", &max, &used));
    TEST_ASSERT_EQUAL_UINT64(700, max);
    TEST_ASSERT_EQUAL_UINT64(0, used);
}

static void test_peak_of_a_job_is_never_above_its_leases(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct ledger_totals totals;

    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 300));
    ledger_publish_used(ledger, 400);
    TEST_ASSERT_TRUE(ledger_read_job(ledger, JOB, &totals));
    TEST_ASSERT_EQUAL_UINT64(300, totals.peak);
}

/* A process that waits for room sleeps until then. */
static void test_a_new_limit_wakes_those_that_wait(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    const uint32_t freed = atomic_load(&ledger->file->freed);
    const uint32_t questions = atomic_load(&ledger->file->slots[ledger->slot].wanted);

    TEST_ASSERT_EQUAL_INT(0, ledger_set_max(ledger, JOB, 2000));
    TEST_ASSERT_NOT_EQUAL_UINT32(freed, atomic_load(&ledger->file->freed));
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(questions + 1, atomic_load(&ledger->file->slots[ledger->slot].wanted),
                                     "the job's processes are told");
}

static void *sleep_until_freed(void *argument)
{
    struct ledger *ledger = argument;

    ledger_await_freed(ledger, atomic_load(&ledger->file->freed) & ~1U, NEVER_MS);
    return NULL;
}

/* Otherwise a process that waits would only look again when its own time is up. */
static void test_all_that_sleep_are_woken_by_what_is_freed(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    pthread_t threads[2];

    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, sleep_until_freed, ledger);
    while (!(atomic_load(&ledger->file->freed) & 1)) /* the first one is about to sleep */
        sched_yield();
    ledger_tell_freed(ledger);
    for (int i = 0; i < 2; i++) {
        while (pthread_tryjoin_np(threads[i], NULL)) {
            ledger_tell_freed(ledger); /* the second one may have come late */
            sched_yield();
        }
    }
}

/* The driver or its settings may change before the next process. */
static void test_size_of_a_context_is_known_while_any_process_lives(void)
{
    struct ledger *first = test_join(JOB, 1000), *second = test_join("another", 1000);

    TEST_ASSERT_EQUAL_UINT64(0, ledger_context_bytes(first)); /* this process is to find out */
    ledger_set_context_bytes(first, 300 * MIB);
    TEST_ASSERT_EQUAL_UINT64(300 * MIB, ledger_context_bytes(second));
    TEST_ASSERT_EQUAL_UINT32(0, atomic_load(&second->file->sizing));
    test_close(first);
    first = test_join(JOB, 1000);
    TEST_ASSERT_EQUAL_UINT64(300 * MIB, ledger_context_bytes(first));
    test_close(first);
    test_close(second);
    TEST_ASSERT_EQUAL_UINT64(0, ledger_context_bytes(test_join(JOB, 1000)));
}

static void test_slots_that_are_none_read_as_nothing(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    static const int none[] = {-1, LEDGER_SLOTS, INT_MAX, INT_MIN, 1};
    struct ledger_refusal refusals[LEDGER_REFUSALS];
    struct ledger_entry entry;

    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
        TEST_ASSERT_FALSE(ledger_read(ledger, none[i], &entry));
        TEST_ASSERT_EQUAL_INT(0, ledger_read_refusals(ledger, none[i], refusals));
        TEST_ASSERT_FALSE(ledger_poke(ledger, none[i], 1, 0));
    }
}

static void test_control_characters_do_not_reach_a_terminal(void)
{
    struct ledger *ledger = test_join("a\x1b[2Jb\x7f", 1000);
    struct ledger_entry entry;

    memset(ledger->file->slots[0].command, '\x1b', LEDGER_COMMAND); /* nor is it terminated */
    TEST_ASSERT_TRUE(ledger_read(ledger, 0, &entry));
    TEST_ASSERT_EQUAL_STRING("a?[2Jb?", entry.job);
    TEST_ASSERT_EQUAL_INT(LEDGER_COMMAND - 1, strlen(entry.command));
    for (const char *c = entry.command; *c; c++)
        TEST_ASSERT_EQUAL_CHAR('?', *c);
}

static void test_last_refusals_are_kept_newest_first(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct ledger_refusal refusals[LEDGER_REFUSALS];
    uint64_t last[RECORDING_APART_COUNT];
    struct ledger_entry entry;

    TEST_ASSERT_EQUAL_INT(0, ledger_read_refusals(ledger, 0, refusals));
    for (uint64_t i = 1; i <= LEDGER_REFUSALS + 3; i++) {
        ledger_note_refusal(ledger, &(struct ledger_refusal){.at = i, .asked = 10 * i, .limit = 10000 * i},
                            apart);
        const int kept = i < LEDGER_REFUSALS ? (int)i : LEDGER_REFUSALS;

        TEST_ASSERT_EQUAL_INT(kept, ledger_read_refusals(ledger, 0, refusals));
        for (int k = 0; k < kept; k++) {
            TEST_ASSERT_EQUAL_UINT64(i - (uint64_t)k, refusals[k].at);
            TEST_ASSERT_EQUAL_UINT64(10000 * (i - (uint64_t)k), refusals[k].limit);
        }
    }
    TEST_ASSERT_TRUE(ledger_read(ledger, 0, &entry));
    TEST_ASSERT_EQUAL_UINT64(LEDGER_REFUSALS + 3, entry.refused);
    ledger_read_apart(ledger, 0, last);
    TEST_ASSERT_EQUAL_UINT64_ARRAY(apart, last, RECORDING_APART_COUNT);
    ledger_read_apart(ledger, LEDGER_SLOTS, last);
    TEST_ASSERT_EQUAL_UINT64(0, last[RECORDING_APART_IDLE]);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_layout_is_frozen);
    RUN_TEST(test_offsets_are_frozen);
    RUN_TEST(test_lease_grows_to_what_is_asked_and_settles_to_what_is_used);
    RUN_TEST(test_lease_beyond_max_is_refused_and_changes_nothing);
    RUN_TEST(test_lease_is_raised_by_more_only_from_what_the_others_leave);
    RUN_TEST(test_room_that_is_to_be_left_is_not_leased);
    RUN_TEST(test_lease_beside_a_high_is_raised_by_no_more_than_asked);
    RUN_TEST(test_lease_of_our_own_is_as_we_know_it);
    RUN_TEST(test_driver_may_say_that_more_is_used_than_max);
    RUN_TEST(test_sums_of_absurd_figures_do_not_wrap);
    RUN_TEST(test_two_processes_share_max);
    RUN_TEST(test_lowering_max_below_what_is_used_refuses_what_is_new_only);
    RUN_TEST(test_jobs_do_not_see_each_other);
    RUN_TEST(test_process_without_a_job_has_no_limit_and_is_seen);
    RUN_TEST(test_names_that_no_job_can_have_are_refused);
    RUN_TEST(test_max_of_a_job_can_be_set_before_it_starts);
    RUN_TEST(test_job_without_a_process_can_start_over);
    RUN_TEST(test_damaged_number_of_a_job_names_none);
    RUN_TEST(test_damaged_number_of_slots_is_repaired);
    RUN_TEST(test_a_limit_that_waits_for_its_job_gives_way_to_a_process_only);
    RUN_TEST(test_record_of_a_job_is_reused_only_if_no_process_is_in_it);
    RUN_TEST(test_lock_left_in_a_slot_is_free_for_its_next_owner);
    RUN_TEST(test_lock_word_is_never_the_same_twice_in_a_row);
    RUN_TEST(test_lock_word_of_no_slot_is_taken_over);
    RUN_TEST(test_owner_that_does_not_go_on_is_not_waited_for_for_ever);
    RUN_TEST(test_readers_see_what_a_process_publishes);
    RUN_TEST(test_totals_of_a_job_outlive_its_processes);
    RUN_TEST(test_a_job_can_be_looked_at_without_joining_it);
    RUN_TEST(test_peak_of_a_job_is_never_above_its_leases);
    RUN_TEST(test_a_new_limit_wakes_those_that_wait);
    RUN_TEST(test_all_that_sleep_are_woken_by_what_is_freed);
    RUN_TEST(test_size_of_a_context_is_known_while_any_process_lives);
    RUN_TEST(test_slots_that_are_none_read_as_nothing);
    RUN_TEST(test_control_characters_do_not_reach_a_terminal);
    RUN_TEST(test_last_refusals_are_kept_newest_first);
    return UNITY_END();
}

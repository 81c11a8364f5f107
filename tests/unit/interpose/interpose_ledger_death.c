/* ledger: a process may be killed at any instruction, and the others go on.
 *
 * First one process is single-stepped through each operation of a ledger. What others can see of it is the
 * file and the kernel's lock on its slot, so after every instruction that changes the file a copy of the
 * file, in which the slot's lock is gone, is what a SIGKILL would have left: a survivor works on that copy.
 * The same is done with real SIGKILLs. Then many processes race while some are killed. */
#include "ledger_support.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/base/clock.h"

#define MAX       1000
#define NEW_JOB   "new"
#define OLD_JOB   "old"
#define OLD_MAX   7
#define NEW_MAX   50
#define STEPS_MAX 2000000 /* of one operation */
#define STEPS     6000    /* on the way to all real deaths in an operation */

static char copy_folder[LEDGER_PATH + 8];

void setUp(void)
{
    test_begin();
    snprintf(copy_folder, sizeof(copy_folder), "%s-copy", test_folder);
}

void tearDown(void)
{
    char path[2 * LEDGER_PATH];

    snprintf(path, sizeof(path), "%s/" CARD ".ledger", copy_folder);
    unlink(path);
    rmdir(copy_folder);
    test_end();
}

/* ---- the operations ---- */

struct operation {
    const char *name;
    uint64_t others; /* lease of the survivor */
    uint64_t own;    /* lease of the victim */
    bool outside;    /* the victim has not joined */
    bool full;       /* all records of jobs are taken; the second one's has no process */
    void (*run)(struct ledger *ledger);
    void (*prepare)(struct ledger *ledger); /* or NULL: what the victim does before */
};

static void run_extend(struct ledger *ledger)
{
    ledger_extend(ledger, 500);
}

static void run_extend_too_far(struct ledger *ledger)
{
    ledger_extend(ledger, 900);
}

static void run_settle(struct ledger *ledger)
{
    ledger_settle(ledger, 100);
}

static void run_join(struct ledger *ledger)
{
    ledger_join(ledger, JOB, MAX);
}

static void run_join_new(struct ledger *ledger)
{
    ledger_join(ledger, NEW_JOB, NEW_MAX);
}

static void run_set_max(struct ledger *ledger)
{
    ledger_set_max(ledger, JOB, 2 * MAX);
}

static void run_set_max_new(struct ledger *ledger)
{
    ledger_set_max(ledger, NEW_JOB, NEW_MAX);
}

static void run_wait_in_vain(struct ledger *ledger)
{
    ledger_wait_for(ledger, 0, 400, 1);
}

static void run_wait(struct ledger *ledger)
{
    ledger_wait_for(ledger, 0, 400, 1000);
}

static void run_admit(struct ledger *ledger)
{
    if (ledger_admit(ledger, 100, 1000, ledger_admitted(ledger)) == 0)
        ledger_end_claim(ledger, 100);
}

static int full_card(void *unused, uint64_t bytes)
{
    (void)unused;
    (void)bytes;
    return -EBUSY;
}

static void run_wait_for_card(struct ledger *ledger)
{
    uint64_t ticket = 0;

    ledger_wait_card(ledger, 100, &ticket, 0, full_card, NULL);
}

static void run_refusal(struct ledger *ledger)
{
    const uint64_t apart[RECORDING_APART_COUNT] = {6};

    ledger_note_refusal(ledger, &(struct ledger_refusal){1, 2, 3, 4, 5, 6, 7}, apart);
}

static void run_set_min(struct ledger *ledger)
{
    ledger_set_limit(ledger, JOB, LEDGER_MIN, MAX / 2);
}

/* With a dead process its job's min ends. */
static void run_join_with_min(struct ledger *ledger)
{
    ledger_join_within(ledger, NEW_JOB, &(struct ledger_limits){.max = NEW_MAX, .min = NEW_MAX});
}

/* Leaves a job that has no process and that no tool has made. */
static void pass_through_new_job(struct ledger *ledger)
{
    ledger_join(ledger, NEW_JOB, NEW_MAX);
    ledger_join(ledger, JOB, MAX);
}

static void run_forget_job(struct ledger *ledger)
{
    ledger_forget_job(ledger, NEW_JOB);
}

static void run_context_bytes(struct ledger *ledger)
{
    if (ledger_context_bytes(ledger) == 0)
        ledger_set_context_bytes(ledger, 5);
}

static void run_close(struct ledger *ledger)
{
    ledger_close(ledger);
}

static const struct operation operations[] = {
    {"extend", 200, 300, false, false, run_extend, NULL},
    {"settle", 200, 300, false, false, run_settle, NULL},
    {"extend, refused", 200, 300, false, false, run_extend_too_far, NULL},
    {"wait, served", 200, 300, false, false, run_wait, NULL},
    {"wait, in vain", 700, 300, false, false, run_wait_in_vain, NULL},
    {"set_max", 200, 300, false, false, run_set_max, NULL},
    {"set_max, as a visitor", 200, 0, true, false, run_set_max_new, NULL},
    {"set_max, in another job's record", 200, 0, true, true, run_set_max_new, NULL},
    {"join", 200, 0, true, false, run_join, NULL},
    {"join, a new job", 200, 0, true, false, run_join_new, NULL},
    {"admit", 200, 300, false, false, run_admit, NULL},
    {"wait for the card", 200, 300, false, false, run_wait_for_card, NULL},
    {"note_refusal", 200, 300, false, false, run_refusal, NULL},
    {"set_min", 200, 300, false, false, run_set_min, NULL},
    {"join, with a min", 200, 0, true, false, run_join_with_min, NULL},
    {"forget_job", 200, 0, true, false, run_forget_job, pass_through_new_job},
    {"context_bytes", 200, 300, false, false, run_context_bytes, NULL},
    {"close", 200, 300, false, false, run_close, NULL},
};
#define OPERATIONS (sizeof(operations) / sizeof(*operations))

/* ---- the victim ---- */

static void be_victim(const struct operation *operation)
{
    char why[LEDGER_WHY];
    struct ledger *ledger;

    test_after_fork();
    if (ledger_open(&ledger, test_folder, CARD, why))
        _exit(1);
    if (!operation->outside && (ledger_join(ledger, JOB, MAX) || ledger_extend(ledger, operation->own)))
        _exit(1);
    if (operation->prepare)
        operation->prepare(ledger);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
        _exit(77);
    raise(SIGSTOP);
    operation->run(ledger);
    raise(SIGSTOP);
    _exit(0);
}

/* Starts a process that stands before the operation. */
static pid_t start_victim(const struct operation *operation)
{
    const pid_t victim = fork();
    int status;

    TEST_ASSERT_NOT_EQUAL(-1, victim);
    if (victim == 0)
        be_victim(operation);
    TEST_ASSERT_EQUAL_INT(victim, waitpid(victim, &status, 0));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        TEST_IGNORE_MESSAGE("ptrace is not permitted here");
    TEST_ASSERT_TRUE(WIFSTOPPED(status));
    return victim;
}

/* Lets it do one instruction. False if the operation is over. */
static bool step(pid_t victim)
{
    int status;

    TEST_ASSERT_EQUAL_INT(0, ptrace(PTRACE_SINGLESTEP, victim, NULL, NULL));
    TEST_ASSERT_EQUAL_INT(victim, waitpid(victim, &status, 0));
    TEST_ASSERT_TRUE(WIFSTOPPED(status));
    return WSTOPSIG(status) == SIGTRAP;
}

static void kill_victim(pid_t victim)
{
    int status;

    kill(victim, SIGKILL);
    TEST_ASSERT_EQUAL_INT(victim, waitpid(victim, &status, 0));
    TEST_ASSERT_TRUE_MESSAGE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "it ended before");
}

/* The part of a ledger's file that the operations change: the tests of the race cover the rest. */
struct window {
    unsigned char words[offsetof(struct ledger_file, jobs) - sizeof(struct ledger_head)];
    unsigned char jobs[2 * sizeof(struct ledger_job)];
    unsigned char slots[3 * sizeof(struct ledger_slot)];
};

static struct window look(const struct ledger *ledger)
{
    struct window window;

    memcpy(window.words, (const char *)ledger->file + sizeof(struct ledger_head), sizeof(window.words));
    memcpy(window.jobs, ledger->file->jobs, sizeof(window.jobs));
    memcpy(window.slots, ledger->file->slots, sizeof(window.slots));
    return window;
}

/* ---- the survivor ---- */

/* All memory of the job is to be had but what the survivor holds, the sums are right, and a new process finds
 * its place; then everything is as before. */
static void check_survivor(struct ledger *survivor, const struct operation *operation)
{
    const uint64_t max = ledger_max(survivor);
    struct ledger *next;
    char why[LEDGER_WHY];

    TEST_ASSERT_TRUE(max == MAX || max == 2 * (uint64_t)MAX);
    if (!strcmp(survivor->file->jobs[1].name, OLD_JOB)) /* or its record is reused, or about to be */
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(OLD_MAX, atomic_load(&survivor->file->jobs[1].max), operation->name);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, ledger_extend(survivor, max), operation->name);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(max, test_sum(survivor), operation->name);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(max, test_living(survivor), operation->name);
    ledger_settle(survivor, operation->others);
    /* dead processes have no claim and no place in the card's queue */
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, ledger_admit(survivor, 50, 50, ledger_admitted(survivor)),
                                  operation->name);
    ledger_end_claim(survivor, 50);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, ledger_open(&next, survivor->folder, CARD, why), why);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, ledger_join(next, JOB, MAX), operation->name);
    TEST_ASSERT_EQUAL_INT(1, next->slot);
    TEST_ASSERT_EQUAL_INT(0, ledger_wait_for(next, 0, max - operation->others, 0));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend(next, max - operation->others + 1));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(max, test_sum(next), operation->name);
    ledger_close(next);
    /* a job that was just being made has one of the two limits */
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, ledger_open(&next, survivor->folder, CARD, why), why);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, ledger_join(next, NEW_JOB, NEW_MAX + 1), operation->name);
    TEST_ASSERT_TRUE(ledger_max(next) == NEW_MAX || ledger_max(next) == NEW_MAX + 1);
    TEST_ASSERT_EQUAL_UINT64(0, test_sum(next));
    ledger_close(next);
    TEST_ASSERT_FALSE_MESSAGE(ledger_is_card_waited_for(survivor), operation->name);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(operation->others, test_sum(survivor), operation->name);
}

static struct ledger *join_in(const char *folder, uint64_t lease)
{
    char why[LEDGER_WHY];
    struct ledger *ledger;

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, ledger_open(&ledger, folder, CARD, why), why);
    TEST_ASSERT_EQUAL_INT(0, ledger_join(ledger, JOB, MAX));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, lease));
    return ledger;
}

/* Makes the jobs what they were before the operation. */
static void reset_jobs(struct ledger *ledger, const struct operation *operation)
{
    char name[LEDGER_NAME];

    memset(&ledger->file->jobs[1], 0, sizeof(ledger->file->jobs[1]));
    TEST_ASSERT_EQUAL_INT(0, ledger_set_max(ledger, JOB, MAX));
    if (!operation->full)
        return;
    TEST_ASSERT_EQUAL_INT(0, ledger_set_max(ledger, OLD_JOB, OLD_MAX));
    for (int i = 2; i < LEDGER_JOBS; i++) {
        snprintf(name, sizeof(name), "job %d", i);
        TEST_ASSERT_EQUAL_INT(0, ledger_set_max(ledger, name, 1));
    }
}

/* ---- every instruction ---- */

static void skip_where_steps_are_impossible(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    TEST_IGNORE_MESSAGE("one instruction of ours is many of the sanitizer's");
#endif
#ifdef __aarch64__
    /* A pair of exclusive load and store never succeeds if each is stepped. */
    if (!(getauxval(AT_HWCAP) & HWCAP_ATOMICS))
        TEST_IGNORE_MESSAGE("this processor has no atomic instructions that can be stepped");
#endif
}

struct course {
    unsigned steps, changes; /* instructions of an operation, and those that change the file */
};

/* Steps through the operation; after each instruction that changes the file, checks a copy. */
static struct course enumerate(const struct operation *operation, const struct ledger *original,
                               struct ledger *copy)
{
    const pid_t victim = start_victim(operation);
    struct window last = look(original);
    struct course course = {0, 0};

    while (step(victim)) {
        const struct window now = look(original);

        TEST_ASSERT_LESS_THAN_UINT(STEPS_MAX, ++course.steps);
        if (!memcmp(&now, &last, sizeof(now)))
            continue;
        last = now;
        course.changes++;
        memcpy(copy->file, original->file, sizeof(*copy->file));
        check_survivor(copy, operation);
    }
    kill_victim(victim);
    return course;
}

/* Kills a victim after so many instructions, or after so many changes of the file, if that is earlier. */
static void kill_after(const struct operation *operation, struct ledger *survivor, unsigned steps,
                       unsigned changes)
{
    const pid_t victim = start_victim(operation);
    struct window last = look(survivor);

    while (steps && changes && step(victim)) {
        const struct window now = look(survivor);

        steps--;
        changes -= memcmp(&now, &last, sizeof(now)) != 0;
        last = now;
    }
    kill_victim(victim);
    check_survivor(survivor, operation);
    reset_jobs(survivor, operation);
}

/* The copies were checked after every change. Real deaths cost a step each on the way: there are as many as
 * STEPS allows, and one after the last change at least. */
static void kill_at_many_places(const struct operation *operation, struct ledger *survivor,
                                struct course course)
{
    const unsigned kills = STEPS / course.steps + 1;
    const unsigned steps = kills < course.steps ? course.steps / kills : 1;
    const unsigned changes = kills < course.changes ? course.changes / kills : 1;

    for (unsigned i = course.changes; i >= changes; i -= changes)
        kill_after(operation, survivor, UINT_MAX, i);
    for (unsigned i = 0; i < course.steps; i += steps)
        kill_after(operation, survivor, i, UINT_MAX);
}

static void test_death_after_any_instruction_leaves_a_ledger_that_works(void)
{
    skip_where_steps_are_impossible();
    for (size_t i = 0; i < OPERATIONS; i++) {
        struct ledger *original = join_in(test_folder, operations[i].others);
        struct ledger *copy = join_in(copy_folder, operations[i].others);
        reset_jobs(original, &operations[i]);
        const struct course course = enumerate(&operations[i], original, copy);

        printf("%s: %u instructions, %u of them change the file\n", operations[i].name, course.steps,
               course.changes);
        TEST_ASSERT_GREATER_OR_EQUAL_UINT(2, course.changes); /* the lock is taken and given back */
        check_survivor(original, &operations[i]);
        reset_jobs(original, &operations[i]);
        kill_at_many_places(&operations[i], original, course);
        memset(original->file->jobs + 1, 0, (LEDGER_JOBS - 1) * sizeof(*original->file->jobs));
        ledger_close(original);
        ledger_close(copy);
    }
}

/* ---- between two questions to the kernel ---- */

#define QUESTIONS 12 /* more than a wait asks before it ends */

static pid_t doomed;
static int questions_left = -1; /* until `doomed` dies; -1: it is not to die */

/* The ledger asks the kernel who lives. Before one of these questions a process dies. */
int fcntl(int fd, int command, ...)
{
    va_list arguments;

    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (command == F_OFD_GETLK && questions_left >= 0 && questions_left-- == 0)
        kill_victim(doomed);
    return (int)syscall(SYS_fcntl, fd, command, argument);
}

static pid_t start_holder(uint64_t lease)
{
    int ready[2];
    char done;

    TEST_ASSERT_EQUAL_INT(0, pipe(ready));
    const pid_t holder = fork();
    if (holder == 0) {
        test_after_fork();
        join_in(test_folder, lease);
        if (write(ready[1], "", 1) == 1)
            pause();
        _exit(1);
    }
    close(ready[1]);
    TEST_ASSERT_EQUAL_INT(1, read(ready[0], &done, 1));
    close(ready[0]);
    return holder;
}

static void test_death_between_any_two_questions_ends_a_wait_with_the_memory(void)
{
    struct ledger *ledger = join_in(test_folder, 0);

    for (int i = 0; i < QUESTIONS; i++) {
        doomed = start_holder(MAX);
        questions_left = i;
        TEST_ASSERT_EQUAL_INT(0, ledger_wait_for(ledger, 0, MAX, 60000));
        TEST_ASSERT_EQUAL_INT(-1, questions_left);
        ledger_settle(ledger, 0);
    }
    ledger_close(ledger);
}

/* ---- the race ---- */

#define PROCESSES 16
#define THREADS   4
#define RACE_MS   3000
#define LONG_MS   60000    /* for the processes of a slow machine to come to a refusal */
#define PAUSE_NS  3000000L /* between two kills */
#define RACE_MAX  (UINT64_C(1) << 30)

/* In memory that all processes share. */
static struct score {
    atomic_ulong rounds, refusals;
    atomic_ulong sums_wrong, overshoots, refused_with_room, failures; /* none of these may happen */
} * score;

static pthread_mutex_t settling = PTHREAD_MUTEX_INITIALIZER;

static uint64_t random_below(uint64_t *state, uint64_t limit)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return limit ? *state % limit : 0;
}

/* Returns the sum of the leases of the job's living processes. Lock held. */
static uint64_t add_leases(const struct ledger *ledger)
{
    uint64_t sum = 0;

    for (int i = 0; i < LEDGER_SLOTS; i++) {
        const struct ledger_slot *slot = &ledger->file->slots[i];

        if (atomic_load(&slot->state) == LEDGER_MEMBER && ledger_job_of(ledger, slot) == ledger->job &&
            ledger_alive(ledger, i))
            sum += atomic_load(&slot->lease);
    }
    return sum;
}

/* What ledger_extend does, and under the same lock a look at all sums before and after. */
static void extend_with_a_look(struct ledger *ledger, uint64_t more)
{
    if (ledger_lock(ledger)) {
        score->failures++;
        return;
    }
    /* Other processes may die meanwhile, but no lease is raised, so that the sum can only fall. */
    const uint64_t before = add_leases(ledger), least = ledger->lease + more;
    score->sums_wrong += atomic_load(&ledger->job->sum) < before;
    score->overshoots += before > RACE_MAX;
    if (ledger_raise(ledger, least, 0)) {
        ledger_recount(ledger);
        const uint64_t sum = atomic_load(&ledger->job->sum);

        score->sums_wrong += sum > before || sum < add_leases(ledger);
        if (ledger_raise(ledger, least, 0)) {
            score->refusals++;
            score->refused_with_room += before + more <= RACE_MAX;
        }
    }
    score->overshoots += add_leases(ledger) > RACE_MAX;
    ledger_unlock(ledger);
}

/* Only downwards: to settle for more is the driver's right, not a racing thread's. */
static void settle_for_less(struct ledger *ledger, uint64_t *state)
{
    pthread_mutex_lock(&settling);
    ledger_settle(ledger, random_below(state, ledger_lease(ledger) + 1));
    pthread_mutex_unlock(&settling);
}

static void *race(void *argument)
{
    struct ledger *ledger = argument;
    uint64_t state = clock_ns() ^ (uint64_t)getpid() << 32 ^ (uint64_t)pthread_self();

    for (;;) {
        const uint64_t more = random_below(&state, RACE_MAX / PROCESSES);

        switch (random_below(&state, 8)) {
        case 0:
        case 1:
        case 2: {
            const int rc = ledger_extend(ledger, ledger_lease(ledger) + more);

            score->failures += rc != 0 && rc != -ENOMEM;
            break;
        }
        case 3:
            extend_with_a_look(ledger, more);
            break;
        case 4: {
            const int rc = ledger_wait_for(ledger, 0, ledger_lease(ledger) + more, 1);

            score->failures += rc != 0 && rc != -ETIMEDOUT && rc != -EDEADLK && rc != -ENOMEM;
            break;
        }
        default:
            settle_for_less(ledger, &state);
        }
        score->rounds++;
    }
    return NULL;
}

static pid_t start_racing(void)
{
    const pid_t racer = fork();
    char why[LEDGER_WHY];
    struct ledger *ledger;
    pthread_t thread;

    TEST_ASSERT_NOT_EQUAL(-1, racer);
    if (racer)
        return racer;
    test_after_fork();
    if (ledger_open(&ledger, test_folder, CARD, why)) {
        score->failures++;
        _exit(1);
    }
    test_be_patient(ledger);
    if (ledger_join(ledger, JOB, RACE_MAX)) {
        score->failures++;
        _exit(1);
    }
    for (int i = 1; i < THREADS; i++)
        pthread_create(&thread, NULL, race, ledger);
    race(ledger);
    _exit(0);
}

/* A while, and until the processes have done something since the last kill: where they are slow to start, too
 * many deaths would leave none that works. */
static void race_on(uint64_t limit)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    const unsigned long before = score->rounds;

    do
        nanosleep(&pause, NULL);
    while (score->rounds < before + PROCESSES && clock_ms() < limit);
}

static void test_race_with_random_deaths_keeps_the_budget(void)
{
    uint64_t state = 88172645463325252U;
    pid_t racers[PROCESSES];
    unsigned kills = 0;

    score = mmap(NULL, sizeof(*score), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < PROCESSES; i++)
        racers[i] = start_racing();
    const uint64_t until = clock_ms() + RACE_MS, limit = until + LONG_MS;
    for (; clock_ms() < until || (!score->refusals && clock_ms() < limit); kills++) {
        pid_t *racer = &racers[random_below(&state, PROCESSES)];

        race_on(limit);
        kill_victim(*racer);
        *racer = start_racing();
    }
    for (int i = 0; i < PROCESSES; i++)
        kill_victim(racers[i]);
    printf("%lu rounds, %lu refusals, %u deaths\n", score->rounds, score->refusals, kills);
    TEST_ASSERT_EQUAL_UINT(0, score->sums_wrong);
    TEST_ASSERT_EQUAL_UINT(0, score->overshoots);
    TEST_ASSERT_EQUAL_UINT(0, score->refused_with_room);
    TEST_ASSERT_EQUAL_UINT(0, score->failures);
    TEST_ASSERT_GREATER_THAN_UINT(0, score->refusals); /* the budget was short */
    struct ledger *ledger = test_join(JOB, 0);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, RACE_MAX));
    TEST_ASSERT_EQUAL_UINT64(RACE_MAX, test_sum(ledger));
    munmap(score, sizeof(*score));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_death_after_any_instruction_leaves_a_ledger_that_works);
    RUN_TEST(test_death_between_any_two_questions_ends_a_wait_with_the_memory);
    RUN_TEST(test_race_with_random_deaths_keeps_the_budget);
    return UNITY_END();
}

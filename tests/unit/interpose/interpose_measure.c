/* measure: this process's own figure out of NVML's list, with a fake NVML. Each case runs in a process of its
 * own, because NVML is loaded once per process. */
#include "interpose/account/measure.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/driver/nvml.h"

#define MB       (1ULL << 20)
#define LIST_MAX 5000
#define CARD     ((nvml_device)0x1000)
#define SECOND   ((nvml_device)0x2000) /* another card, with at most one process */

struct nvml_table nvml;

static struct nvml_process list[LIST_MAX];
static unsigned listed;
static unsigned on_second; /* the process on the second card; 0: none */
static bool library_missing, start_fails;
static atomic_bool stuck;  /* the thread cannot load the library: another one holds the loader's lock */
static atomic_bool slow;   /* NVML's start takes its time */
static atomic_int started; /* calls of nvmlInit */
static pthread_t main_thread;

bool nvml_open(void)
{
    while (!pthread_equal(pthread_self(), main_thread) && atomic_load(&stuck))
        sched_yield();
    return !library_missing;
}

static atomic_bool loads_ended;

void nvml_end(void)
{
    atomic_store(&loads_ended, true);
}

/* Whether NVML lists us under our own number for sure: measure asks the kernel in which namespace we are. */
static bool outside_containers;

ssize_t readlink(const char *path, char *buffer, size_t size)
{
    const char *answer = outside_containers ? "pid:[4026531836]" : "pid:[4026532000]";

    if (strcmp(path, "/proc/self/ns/pid") || size < strlen(answer))
        return -1;
    memcpy(buffer, answer, strlen(answer));
    return (ssize_t)strlen(answer);
}

static atomic_bool hangs;   /* NVML's start takes longer than anything waits for it */
static atomic_bool hurries; /* the patience of waits is over at once */
static atomic_int waits;

int __real_pthread_cond_timedwait(pthread_cond_t *changed, pthread_mutex_t *lock,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *changed, pthread_mutex_t *lock,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *changed, pthread_mutex_t *lock,
                                  const struct timespec *until)
{
    atomic_fetch_add(&waits, 1);
    return atomic_load(&hurries) ? ETIMEDOUT : __real_pthread_cond_timedwait(changed, lock, until);
}

static nvml_return fake_init(void)
{
    atomic_fetch_add(&started, 1);
    while (atomic_load(&hangs))
        sched_yield();
    if (atomic_load(&slow))
        usleep(20000);
    return start_fails ? NVML_NOT_SUPPORTED : NVML_OK;
}

static nvml_return fake_count(unsigned *count)
{
    *count = 2;
    return NVML_OK;
}

static nvml_return fake_handle_by_index(unsigned index, nvml_device *device)
{
    *device = index == 0 ? CARD : SECOND;
    return index < 2 ? NVML_OK : NVML_NOT_SUPPORTED;
}

static nvml_return fake_handle_by_uuid(const char *uuid, nvml_device *device)
{
    if (strcmp(uuid, "GPU-0") && strcmp(uuid, "MIG-2"))
        return NVML_NOT_SUPPORTED;
    *device = CARD;
    return NVML_OK;
}

static nvml_return fake_processes(nvml_device device, unsigned *count, struct nvml_process *out)
{
    const unsigned room = *count;

    if (device == SECOND) {
        *count = on_second != 0;
        out[0] = (struct nvml_process){.pid = on_second, .used = 1 * MB};
        return NVML_OK;
    }
    *count = listed;
    if (device != CARD)
        return NVML_NOT_SUPPORTED;
    if (room < listed)
        return NVML_INSUFFICIENT_SIZE;
    memcpy(out, list, listed * sizeof(*list));
    return NVML_OK;
}

static nvml_return fake_memory(nvml_device device, struct nvml_memory *memory)
{
    *memory = (struct nvml_memory){.total = 80 * MB, .free = 30 * MB, .used = 50 * MB};
    return device == CARD ? NVML_OK : NVML_NOT_SUPPORTED;
}

static void add(unsigned pid, unsigned long long bytes)
{
    list[listed++] = (struct nvml_process){.pid = pid, .used = bytes};
}

static struct measure_card card = {.uuid = "GPU-0"};

static bool measures(uint64_t want)
{
    uint64_t bytes = 1;
    int rc = measure_used(&card, &bytes);

    if (rc == 0 && bytes == want)
        return true;
    fprintf(stderr, "measured rc %d, %llu bytes instead of %llu\n", rc, (unsigned long long)bytes,
            (unsigned long long)want);
    return false;
}

static bool answers(int want)
{
    uint64_t bytes;

    return measure_used(&card, &bytes) == want;
}

void setUp(void) {}
void tearDown(void) {}

/* Runs a case in a child; its answer, or what killed it. */
static void run(bool (*scenario)(void))
{
    int status;

    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        main_thread = pthread_self();
        _exit(scenario() ? 0 : 1);
    }
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
}

static bool listed_under_own_number(void)
{
    add(1, 5 * MB);
    add((unsigned)getpid(), 100 * MB);
    add(99999999, 7 * MB);
    add((unsigned)getpid(), 11 * MB); /* a second context, or another kind of it */
    return measures(111 * MB) && measures(111 * MB);
}

static bool gone_again(void)
{
    add((unsigned)getpid(), 100 * MB);
    if (!measures(100 * MB))
        return false;
    listed = 0;
    add(77, 5 * MB);
    return answers(-ENOENT); /* we have no context any more, and may hold memory all the same */
}

/* It was listed before: not to be is no sign that NVML is blind. */
static bool gone_while_its_context_ends(void)
{
    outside_containers = true;
    atomic_store(&card.present, true);
    return gone_again();
}

/* A number that was only recognized may have been another's. */
static bool gone_in_a_container(void)
{
    measure_ready();
    atomic_store(&card.present, true);
    add(5151, 60 * MB);
    if (!measures(60 * MB))
        return false;
    listed = 0;
    return answers(-ESRCH);
}

static bool newcomer_in_a_container(void)
{
    add(4242, 5 * MB); /* there before us */
    measure_ready();
    add(5151, 60 * MB);
    if (!answers(-ESRCH)) /* we have no context: this is another process */
        return false;
    atomic_store(&card.present, true);
    return measures(60 * MB);
}

static bool from_another_card(void)
{
    on_second = 4242;
    measure_ready();
    add(4242, 5 * MB); /* it uses this card too now */
    add(5151, 60 * MB);
    atomic_store(&card.present, true);
    return measures(60 * MB);
}

static bool newcomer_outside_containers(void)
{
    outside_containers = true;
    measure_ready();
    add(5151, 60 * MB);
    return answers(-ENOENT); /* another process: ours would be listed under its own number */
}

static bool not_listed_with_a_context(void)
{
    outside_containers = true;
    measure_ready();
    add(5151, 60 * MB);
    atomic_store(&card.present, true);
    return answers(-ESRCH); /* we hold something: NVML is blind */
}

/* The driver gives the UUID of a slice, and not that it is one. */
static bool slice_of_a_card(void)
{
    struct measure_card slice = {.uuid = "GPU-2"};
    uint64_t bytes = 0;

    add((unsigned)getpid(), 60 * MB);
    return measure_used(&slice, &bytes) == 0 && bytes == 60 * MB;
}

static bool two_newcomers(void)
{
    atomic_store(&card.present, true);
    measure_ready();
    add(4242, 5 * MB);
    add(5151, 60 * MB);
    return answers(-ESRCH);
}

static bool stranger_with_our_number(void)
{
    add((unsigned)getpid(), 5 * MB); /* outside the container, before us */
    atomic_store(&card.present, true);
    measure_ready();
    add(5151, 60 * MB);
    return measures(60 * MB);
}

static bool nobody_listed(void)
{
    return answers(-ESRCH);
}

static bool figure_not_available(void)
{
    add((unsigned)getpid(), NVML_NOT_AVAILABLE);
    return answers(-ENODATA);
}

static bool no_library(void)
{
    library_missing = true;
    return answers(-ENODATA) && answers(-ENODATA);
}

static bool no_start(void)
{
    start_fails = true;
    return answers(-ENODATA);
}

static bool unknown_card(void)
{
    struct measure_card other = {.uuid = "GPU-1"};
    uint64_t bytes;

    add((unsigned)getpid(), 5 * MB);
    return measure_used(&other, &bytes) == -ENODATA;
}

static bool crowd(void)
{
    for (unsigned i = 0; i < 1000; i++)
        add(100000000 + i, 1 * MB);
    add((unsigned)getpid(), 100 * MB);
    if (!measures(100 * MB))
        return false;
    while (listed < LIST_MAX)
        add(200000000 + listed, 1 * MB);
    return answers(-ENODATA);
}

static bool thread_is_stuck(void)
{
    add((unsigned)getpid(), 100 * MB);
    atomic_store(&stuck, true);
    measure_start();
    bool right = measures(100 * MB) && atomic_load(&started) == 1;
    atomic_store(&stuck, false);
    return right;
}

static bool exit_while_thread_is_stuck(void)
{
    atomic_store(&stuck, true);
    measure_start();
    exit(0); /* the time limit of the test is the assertion */
}

static bool exit_during_start(void)
{
    atomic_store(&slow, true);
    measure_start();
    exit(0);
}

/* The library's exit handler also runs if NVML was never asked. */
static bool end_before_the_first_question(void)
{
    measure_end();
    return atomic_load(&loads_ended) && atomic_load(&started) == 0;
}

static void still_loaded(void)
{
    _exit(atomic_load(&loads_ended) ? 0 : 1);
}

/* Every exit ends the loading, also that of a process whose NVML is there: a second thread may still be at
 * it. */
static bool exit_ends_loading(void)
{
    atexit(still_loaded); /* runs last */
    add((unsigned)getpid(), 100 * MB);
    if (!measures(100 * MB))
        return false;
    exit(1);
}

static bool started_once(void)
{
    add((unsigned)getpid(), 100 * MB);
    atomic_store(&slow, true);
    measure_start();
    measure_start();
    return measures(100 * MB) && measures(100 * MB) && atomic_load(&started) == 1;
}

/* A child that was forked while NVML starts in the parent measures for itself. */
static bool fork_during_start(void)
{
    int status;

    add((unsigned)getpid(), 100 * MB);
    atomic_store(&slow, true);
    measure_start();
    pid_t pid = fork();
    if (pid == 0) {
        add((unsigned)getpid(), 30 * MB);
        _exit(measures(30 * MB) ? 0 : 1);
    }
    return measures(100 * MB) && waitpid(pid, &status, 0) == pid && status == 0;
}

static bool fork_while_stuck(void)
{
    int status;

    atomic_store(&stuck, true);
    measure_start();
    pid_t pid = fork();
    if (pid == 0) {
        main_thread = pthread_self();
        add((unsigned)getpid(), 30 * MB);
        _exit(measures(30 * MB) ? 0 : 1);
    }
    return waitpid(pid, &status, 0) == pid && status == 0;
}

/* A child is another process, whatever its parent was listed under. */
static bool fork_after_a_question(void)
{
    int status;

    add((unsigned)getpid(), 100 * MB);
    if (!measures(100 * MB))
        return false;
    pid_t pid = fork();
    if (pid == 0) {
        add((unsigned)getpid(), 30 * MB);
        _exit(measures(30 * MB) ? 0 : 1);
    }
    return waitpid(pid, &status, 0) == pid && status == 0 && measures(100 * MB);
}

/* The thread that starts NVML does not exist in a child: what it has not finished is not waited for. */
static bool fork_during_a_start_that_hangs(void)
{
    int status;

    atomic_store(&hangs, true);
    measure_start();
    while (!atomic_load(&started))
        sched_yield();
    atomic_store(&hurries, true);
    pid_t pid = fork();
    if (pid == 0) {
        atomic_store(&hurries, false);
        atomic_store(&waits, 0);
        _exit(answers(-ENODATA) && atomic_load(&waits) == 0 ? 0 : 1);
    }
    return waitpid(pid, &status, 0) == pid && status == 0;
}

static bool everyone(void)
{
    uint64_t bytes = 1;

    if (measure_all(&card, &bytes) != -ENODATA || bytes) /* NVML sees no process: it may be blind */
        return false;
    add(4242, 5 * MB);
    add(5151, 60 * MB);
    if (measure_all(&card, &bytes) || bytes != 65 * MB)
        return false;
    add(6161, NVML_NOT_AVAILABLE);
    return measure_all(&card, &bytes) == -ENODATA;
}

static bool free_on_card(void)
{
    struct measure_card unknown = {.uuid = "GPU-9"};
    uint64_t bytes = 1;

    return measure_free(&unknown, &bytes) == -ENODATA && bytes == 0 && measure_free(&card, &bytes) == 0 &&
           bytes == 30 * MB;
}

/* Signals of the host program go to the host program's threads only. */
static volatile sig_atomic_t handled_on_main;

static void on_signal(int number)
{
    (void)number;
    handled_on_main = pthread_equal(pthread_self(), main_thread);
}

static bool signals_stay_with_the_host(void)
{
    sigset_t set, now;

    signal(SIGUSR1, on_signal);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    atomic_store(&stuck, true);
    measure_start();
    kill(getpid(), SIGUSR1); /* our thread must not take it */
    for (int i = 0; i < 1000; i++)
        sched_yield();
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    bool kept = sigismember(&now, SIGUSR1) == 1 && !handled_on_main;
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    atomic_store(&stuck, false);
    return kept && handled_on_main;
}

static ucontext_t back, aside;
static bool small_stack_answer;

static void on_small_stack(void)
{
    small_stack_answer = measures(100 * MB);
}

/* A program may run on stacks of 16 KiB: what we need of it must be a small part. */
static bool small_stack(void)
{
    static char stack[16 * 1024];
    const unsigned char mark = 0xa5;
    size_t untouched = 0;

    measure_ready();
    add((unsigned)getpid(), 100 * MB);
    memset(stack, mark, sizeof(stack));
    getcontext(&aside);
    aside.uc_stack.ss_sp = stack;
    aside.uc_stack.ss_size = sizeof(stack);
    aside.uc_link = &back;
    makecontext(&aside, on_small_stack, 0);
    swapcontext(&back, &aside);
    while (untouched < sizeof(stack) && (unsigned char)stack[untouched] == mark)
        untouched++;
    return small_stack_answer && untouched > sizeof(stack) / 2;
}

#define CASE(name, scenario)                                                                                 \
    static void name(void)                                                                                   \
    {                                                                                                        \
        run(scenario);                                                                                       \
    }

CASE(test_our_own_entries_are_added_up, listed_under_own_number)
CASE(test_a_process_that_is_not_listed_any_more_holds_nothing, gone_again)
CASE(test_a_process_whose_context_ends_is_not_taken_for_a_blind_nvml, gone_while_its_context_ends)
CASE(test_in_a_container_not_to_be_listed_any_more_is_a_blind_nvml, gone_in_a_container)
CASE(test_in_a_container_the_only_newcomer_is_us, newcomer_in_a_container)
CASE(test_a_process_that_was_on_another_card_before_is_no_newcomer, from_another_card)
CASE(test_outside_of_containers_a_newcomer_is_somebody_else, newcomer_outside_containers)
CASE(test_a_process_with_a_context_that_is_not_listed_is_no_empty_one, not_listed_with_a_context)
CASE(test_a_slice_of_a_card_is_found_by_its_own_name, slice_of_a_card)
CASE(test_of_two_newcomers_neither_is_taken_for_us, two_newcomers)
CASE(test_a_stranger_with_our_number_is_not_us, stranger_with_our_number)
CASE(test_not_being_listed_is_told_apart_from_holding_nothing, nobody_listed)
CASE(test_a_figure_that_nvml_does_not_have_is_no_figure, figure_not_available)
CASE(test_without_nvml_there_is_no_figure_and_no_crash, no_library)
CASE(test_an_nvml_that_does_not_start_gives_no_figure, no_start)
CASE(test_a_card_that_nvml_does_not_know_gives_no_figure, unknown_card)
CASE(test_a_thousand_processes_on_one_card_are_read, crowd)
CASE(test_a_question_does_not_wait_for_a_thread_that_cannot_go_on, thread_is_stuck)
CASE(test_exit_does_not_wait_for_a_thread_that_cannot_go_on, exit_while_thread_is_stuck)
CASE(test_exit_during_the_start_of_nvml_is_clean, exit_during_start)
CASE(test_the_end_may_come_before_the_first_question, end_before_the_first_question)
CASE(test_every_exit_ends_the_loading_of_nvml, exit_ends_loading)
CASE(test_nvml_is_started_once, started_once)
CASE(test_a_child_forked_during_the_start_measures_for_itself, fork_during_start)
CASE(test_a_child_forked_while_the_thread_is_stuck_measures_for_itself, fork_while_stuck)
CASE(test_a_forked_child_is_another_process, fork_after_a_question)
CASE(test_a_child_does_not_wait_for_a_start_that_hangs_in_its_parent, fork_during_a_start_that_hangs)
CASE(test_all_processes_are_added_up_if_all_have_figures, everyone)
CASE(test_free_memory_is_that_of_a_known_card, free_on_card)
CASE(test_signals_stay_with_the_host_program, signals_stay_with_the_host)

static void test_a_question_fits_on_a_small_stack(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    TEST_IGNORE_MESSAGE("a sanitizer needs a larger stack itself");
#endif
    run(small_stack);
}

int main(void)
{
    nvml = (struct nvml_table){.init = fake_init,
                               .count = fake_count,
                               .handle_by_index = fake_handle_by_index,
                               .handle_by_uuid = fake_handle_by_uuid,
                               .processes = fake_processes,
                               .memory = fake_memory};
    UNITY_BEGIN();
    RUN_TEST(test_our_own_entries_are_added_up);
    RUN_TEST(test_a_process_that_is_not_listed_any_more_holds_nothing);
    RUN_TEST(test_a_process_whose_context_ends_is_not_taken_for_a_blind_nvml);
    RUN_TEST(test_in_a_container_not_to_be_listed_any_more_is_a_blind_nvml);
    RUN_TEST(test_in_a_container_the_only_newcomer_is_us);
    RUN_TEST(test_a_process_that_was_on_another_card_before_is_no_newcomer);
    RUN_TEST(test_outside_of_containers_a_newcomer_is_somebody_else);
    RUN_TEST(test_a_process_with_a_context_that_is_not_listed_is_no_empty_one);
    RUN_TEST(test_a_slice_of_a_card_is_found_by_its_own_name);
    RUN_TEST(test_of_two_newcomers_neither_is_taken_for_us);
    RUN_TEST(test_a_stranger_with_our_number_is_not_us);
    RUN_TEST(test_not_being_listed_is_told_apart_from_holding_nothing);
    RUN_TEST(test_a_figure_that_nvml_does_not_have_is_no_figure);
    RUN_TEST(test_without_nvml_there_is_no_figure_and_no_crash);
    RUN_TEST(test_an_nvml_that_does_not_start_gives_no_figure);
    RUN_TEST(test_a_card_that_nvml_does_not_know_gives_no_figure);
    RUN_TEST(test_a_thousand_processes_on_one_card_are_read);
    RUN_TEST(test_a_question_does_not_wait_for_a_thread_that_cannot_go_on);
    RUN_TEST(test_exit_does_not_wait_for_a_thread_that_cannot_go_on);
    RUN_TEST(test_exit_during_the_start_of_nvml_is_clean);
    RUN_TEST(test_the_end_may_come_before_the_first_question);
    RUN_TEST(test_every_exit_ends_the_loading_of_nvml);
    RUN_TEST(test_nvml_is_started_once);
    RUN_TEST(test_a_child_forked_during_the_start_measures_for_itself);
    RUN_TEST(test_a_forked_child_is_another_process);
    RUN_TEST(test_a_child_does_not_wait_for_a_start_that_hangs_in_its_parent);
    RUN_TEST(test_all_processes_are_added_up_if_all_have_figures);
    RUN_TEST(test_free_memory_is_that_of_a_known_card);
    RUN_TEST(test_signals_stay_with_the_host_program);
    RUN_TEST(test_a_child_forked_while_the_thread_is_stuck_measures_for_itself);
    RUN_TEST(test_a_question_fits_on_a_small_stack);
    return UNITY_END();
}

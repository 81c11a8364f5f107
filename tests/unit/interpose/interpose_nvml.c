/* nvml: who may load NVML at the end of the process, with a dynamic loader that the test holds up. Each case
 * runs in a process of its own, because the end is for good. The clock is the test's: it goes on only while
 * nvml_end sleeps. */
#include "interpose/driver/nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/driver/real.h"

static atomic_bool loader_held; /* another thread holds the loader's lock: dladdr waits */
static atomic_bool slow;        /* the library's constructor takes its time: dlopen waits */
static atomic_int waiting;      /* threads in dladdr */
static atomic_int inside;       /* threads in dlopen */
static atomic_int opens;        /* calls of dlopen that have ended */
static bool lacks_names;
static const char *lacks;   /* this name alone */
static bool exits_inside;   /* the library's constructor calls exit */
static atomic_int naps;     /* of nvml_end */
static atomic_bool hurries; /* a nap takes no time, and the clock goes on by its length; or it stands */

/* In place of libc's: only nvml_end sleeps by this one. */
int nanosleep(const struct timespec *span, struct timespec *rest)
{
    (void)span, (void)rest;
    atomic_fetch_add(&naps, 1);
    if (!atomic_load(&hurries))
        usleep(1000);
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    const int ms = atomic_load(&hurries) ? atomic_load(&naps) : 0;

    (void)clock;
    *now = (struct timespec){.tv_sec = 1 + ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    return 0;
}

/* In place of the dynamic loader's. */
int dladdr(const void *address, Dl_info *info)
{
    (void)address, (void)info;
    atomic_fetch_add(&waiting, 1);
    while (atomic_load(&loader_held))
        usleep(1000);
    atomic_fetch_sub(&waiting, 1);
    return 1;
}

void *dlopen(const char *file, int mode)
{
    (void)file, (void)mode;
    atomic_fetch_add(&inside, 1);
    while (atomic_load(&slow))
        usleep(1000);
    if (exits_inside)
        nvml_end();
    atomic_fetch_sub(&inside, 1);
    atomic_fetch_add(&opens, 1);
    return &opens;
}

int dlclose(void *handle)
{
    (void)handle;
    return 0;
}

void *real_symbol(void *handle, const char *name)
{
    return lacks_names || (lacks && !strcmp(name, lacks)) ? NULL : handle;
}

void setUp(void) {}
void tearDown(void) {}

static void run(bool (*scenario)(void))
{
    int status;

    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(scenario() ? 0 : 1);
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
}

static void *open_aside(void *answer)
{
    *(bool *)answer = nvml_open();
    return NULL;
}

static atomic_bool end_returned;
static atomic_int opens_at_end;

static void *end_aside(void *unused)
{
    nvml_end();
    atomic_store(&opens_at_end, atomic_load(&opens));
    atomic_store(&end_returned, true);
    return unused;
}

static void await(const atomic_int *count)
{
    while (atomic_load(count) == 0)
        usleep(1000);
}

static bool opens_before_the_end(void)
{
    return nvml_open() && nvml_open() && atomic_load(&opens) == 1;
}

static bool nothing_is_loaded_after_the_end(void)
{
    nvml_end();
    return !nvml_open() && atomic_load(&opens) == 0;
}

static bool loaded_stays_loaded(void)
{
    if (!nvml_open())
        return false;
    nvml_end();
    return nvml_open();
}

static bool end_waits_for_a_thread_that_loads(void)
{
    pthread_t opener, ender;
    bool answer = false;

    lacks_names = true;
    atomic_store(&slow, true);
    pthread_create(&opener, NULL, open_aside, &answer);
    await(&inside);
    pthread_create(&ender, NULL, end_aside, NULL);
    for (int i = 0; i < 100; i++) /* time to return too early */
        usleep(1000);
    const bool early = atomic_load(&end_returned);
    atomic_store(&slow, false);
    pthread_join(opener, NULL);
    pthread_join(ender, NULL);
    return !early && atomic_load(&opens_at_end) == 1;
}

/* That thread gets the loader's lock from one that exits in a constructor, and must not load then. */
static bool end_does_not_wait_for_a_thread_that_waits_for_the_loader(void)
{
    pthread_t opener;
    bool answer = true;

    atomic_store(&loader_held, true);
    pthread_create(&opener, NULL, open_aside, &answer);
    await(&waiting);
    nvml_end();
    const bool before = atomic_load(&waiting) == 1;
    atomic_store(&loader_held, false);
    pthread_join(opener, NULL);
    return before && !answer && atomic_load(&opens) == 0;
}

static bool end_does_not_wait_for_ever(void)
{
    pthread_t opener;
    static bool answer;

    atomic_store(&slow, true);
    pthread_create(&opener, NULL, open_aside, &answer);
    await(&inside);
    atomic_store(&hurries, true);
    nvml_end(); /* the time limit of the test is the assertion */
    return atomic_load(&naps) > 0;
}

/* A child forked meanwhile has no such thread to wait for. */
static bool a_child_waits_for_no_thread_of_its_parent(void)
{
    pthread_t opener;
    bool answer;
    int status;

    atomic_store(&slow, true);
    pthread_create(&opener, NULL, open_aside, &answer);
    await(&inside);
    pid_t pid = fork();
    if (pid == 0) {
        nvml_end();
        _exit(atomic_load(&naps) ? 1 : 0);
    }
    const bool right = waitpid(pid, &status, 0) == pid && status == 0;
    atomic_store(&slow, false);
    pthread_join(opener, NULL);
    return right;
}

/* The thread would wait for itself. */
static bool a_constructor_that_exits_is_not_waited_for(void)
{
    exits_inside = true;
    nvml_open();
    return atomic_load(&naps) == 0;
}

static bool older_and_newer_libraries_will_do(void)
{
    lacks = "nvmlDeviceGetComputeRunningProcesses_v3"; /* drivers before 510 */
    if (!nvml_open() || !nvml.processes)
        return false;
    return nvml.init && nvml.count && nvml.index && nvml.handle_by_index && nvml.memory_v2;
}

static bool one_without_an_optional_name_will_do(void)
{
    lacks = "nvmlDeviceGetMemoryInfo_v2";
    return nvml_open() && !nvml.memory_v2 && nvml.memory;
}

static bool one_without_a_needed_name_will_not(void)
{
    static const char *const needed[] = {"nvmlInit_v2", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetUUID",
                                         "nvmlDeviceGetMemoryInfo"};

    for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++) {
        lacks = needed[i];
        if (nvml_open())
            return false;
    }
    return true;
}

#define CASE(name, scenario)                                                                                 \
    static void name(void)                                                                                   \
    {                                                                                                        \
        run(scenario);                                                                                       \
    }

CASE(test_nvml_is_loaded_once, opens_before_the_end)
CASE(test_after_the_end_nothing_is_loaded, nothing_is_loaded_after_the_end)
CASE(test_what_is_loaded_stays_after_the_end, loaded_stays_loaded)
CASE(test_the_end_waits_for_a_thread_that_loads, end_waits_for_a_thread_that_loads)
CASE(test_the_end_does_not_wait_for_a_thread_without_the_loaders_lock,
     end_does_not_wait_for_a_thread_that_waits_for_the_loader)
CASE(test_the_end_does_not_wait_for_ever, end_does_not_wait_for_ever)
CASE(test_the_end_does_not_wait_for_its_own_thread, a_constructor_that_exits_is_not_waited_for)
CASE(test_libraries_of_older_drivers_will_do, older_and_newer_libraries_will_do)
CASE(test_a_library_without_an_optional_name_will_do, one_without_an_optional_name_will_do)
CASE(test_a_library_without_a_needed_name_is_not_used, one_without_a_needed_name_will_not)
CASE(test_a_child_waits_for_no_thread_of_its_parent, a_child_waits_for_no_thread_of_its_parent)

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_nvml_is_loaded_once);
    RUN_TEST(test_after_the_end_nothing_is_loaded);
    RUN_TEST(test_what_is_loaded_stays_after_the_end);
    RUN_TEST(test_the_end_waits_for_a_thread_that_loads);
    RUN_TEST(test_the_end_does_not_wait_for_a_thread_without_the_loaders_lock);
    RUN_TEST(test_the_end_does_not_wait_for_ever);
    RUN_TEST(test_the_end_does_not_wait_for_its_own_thread);
    RUN_TEST(test_libraries_of_older_drivers_will_do);
    RUN_TEST(test_a_library_without_an_optional_name_will_do);
    RUN_TEST(test_a_library_without_a_needed_name_is_not_used);
    RUN_TEST(test_a_child_waits_for_no_thread_of_its_parent);
    return UNITY_END();
}

/* simgpu_life: initialization and shutdown of the simulated driver, fork, contexts, threads and devices.
 *
 * The test's own process never calls the driver: each test runs in a child, because a process initializes it
 * only once.
 */
#define CUDA_ENABLE_DEPRECATED /* cuCtxDetach */
#include "tests/unit/simgpu/simgpu_support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void setUp(void)
{
    sim_machine("3x1G");
}

void tearDown(void) {}

#define CHILD(function) TEST_ASSERT_EQUAL_INT(0, sim_in_child(function))

/* ---- start ---- */

static int before_init(void)
{
    const char *text;
    CUdeviceptr p;
    int value;

    MUST(3, cuDeviceGetCount(&value));
    MUST(3, cuMemAlloc(&p, 4096));
    MUST(0, cuDriverGetVersion(&value));
    MUST(13000, value);
    MUST(0, cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    MUST(0, strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"));
    MUST(0, cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    MUST(0, strcmp(text, "out of memory"));
    MUST(1, cuGetErrorName((CUresult)12345, &text));
    MUST(1, text == NULL);
    MUST(1, cuInit(1));
    MUST(0, cuInit(0));
    MUST(0, cuInit(0));
    MUST(201, cuMemAlloc(&p, 4096));
    MUST(201, cuMemAlloc(&p, 0));
    MUST(0, cuMemFree(0));
    return 0;
}

static void test_nothing_works_before_init_and_memory_needs_a_context(void)
{
    CHILD(before_init);
}

static int bad_machine(void)
{
    MUST(1, cuInit(0));
    return 0;
}

static void test_a_bad_machine_or_script_is_refused_at_init(void)
{
    setenv("GPUCAP_SIM_FAULT", "nonsense", 1);
    CHILD(bad_machine);
    unsetenv("GPUCAP_SIM_FAULT");
    setenv("GPUCAP_SIM", "many", 1);
    CHILD(bad_machine);
}

/* ---- fork ---- */

static int in_forked_child(void)
{
    CUdeviceptr p;
    int count;

    MUST(3, cuInit(0));
    MUST(3, cuMemAlloc(&p, 4096));
    MUST(3, cuDeviceGetCount(&count));
    return 0;
}

static int fork_after_init(void)
{
    size_t before, after, total;
    CUdeviceptr p;
    int status;
    pid_t pid;

    MUST(0, sim_make_current());
    MUST(0, cuMemAlloc(&p, 64 * MIB));
    MUST(0, cuMemGetInfo(&before, &total));
    pid = fork();
    if (pid == 0)
        _exit(in_forked_child());
    MUST(pid, waitpid(pid, &status, 0));
    MUST(0, status);
    MUST(0, cuMemGetInfo(&after, &total));
    MUST(1, before == after);
    MUST(0, cuMemsetD8(p, 1, 64 * MIB));
    MUST(0, cuMemFree(p));
    return 0;
}

static void test_a_fork_of_a_started_process_cannot_use_the_driver(void)
{
    CHILD(fork_after_init);
}

static int first_user(void)
{
    CUdeviceptr p;

    MUST(0, sim_make_current());
    MUST(0, cuMemAlloc(&p, 4096));
    MUST(0, cuMemFree(p));
    return 0;
}

static int fork_before_init(void)
{
    int status, version;
    pid_t pid;

    MUST(0, cuDriverGetVersion(&version));
    pid = fork();
    if (pid == 0)
        _exit(first_user());
    MUST(pid, waitpid(pid, &status, 0));
    MUST(0, status);
    return first_user();
}

static void test_a_fork_of_a_process_that_never_started_it_can(void)
{
    CHILD(fork_before_init);
}

/* ---- end ---- */

static void at_exit(void)
{
    CUdeviceptr p;

    if (cuMemAlloc(&p, 4096) != CUDA_ERROR_DEINITIALIZED || cuInit(0) != CUDA_ERROR_DEINITIALIZED)
        _exit(9);
}

static int exit_after_use(void)
{
    atexit(at_exit);
    MUST(0, sim_make_current());
    exit(0);
}

static void test_at_exit_the_driver_says_that_it_is_over(void)
{
    CHILD(exit_after_use);
}

static void forever(void *data)
{
    (void)data;
    for (;;)
        pause();
}

static int exit_with_work(void)
{
    MUST(0, sim_make_current());
    MUST(0, cuLaunchHostFunc(NULL, forever, NULL));
    exit(0);
}

static void test_running_work_does_not_keep_the_process(void)
{
    CHILD(exit_with_work);
}

/* ---- the card, between processes ---- */

static int used_by_other(void)
{
    size_t before, with, after, total;
    int pipes[2], status;
    CUdeviceptr p;
    char byte;
    pid_t pid;

    MUST(0, pipe(pipes));
    pid = fork();
    if (pid == 0) {
        close(pipes[0]);
        if (sim_make_current() || cuMemAlloc(&p, 100 * MIB) || write(pipes[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(pipes[1]);
    MUST(1, read(pipes[0], &byte, 1));
    MUST(0, sim_make_current());
    MUST(0, cuMemGetInfo(&with, &total));
    MUST(0, kill(pid, SIGKILL));
    MUST(pid, waitpid(pid, &status, 0));
    MUST(0, cuMemGetInfo(&after, &total));
    before = 1 * GIB - 64 * MIB; /* one context of ours */
    MUST(1, after == before);
    MUST(1, after - with == 100 * MIB + 64 * MIB);
    return 0;
}

static void test_a_card_is_shared_and_a_killed_process_gives_its_memory_back(void)
{
    CHILD(used_by_other);
}

static int context_costs(void)
{
    size_t bytes, total, with;
    CUcontext made;
    CUdeviceptr p;

    MUST(0, sim_make_current());
    MUST(0, cuMemGetInfo(&bytes, &total));
    MUST(1, total == 1 * GIB);
    MUST(1, bytes == total - 64 * MIB);
    MUST(0, cuCtxCreate(&made, NULL, 0, 0));
    MUST(0, cuMemGetInfo(&with, &total));
    MUST(1, bytes - with == 64 * MIB);
    MUST(0, cuMemAlloc(&p, 4 * MIB));
    MUST(0, cuCtxDestroy(made));
    MUST(0, cuMemGetInfo(&with, &total));
    MUST(1, bytes == with);
    MUST(0, cuMemAlloc(&p, 900 * MIB));
    MUST(2, cuCtxCreate(&made, NULL, 0, 0));
    MUST(0, cuMemFree(p));
    return 0;
}

static void test_a_context_takes_memory_and_its_end_returns_what_it_owned(void)
{
    CHILD(context_costs);
}

/* ---- contexts ---- */

static int current_contexts(void)
{
    CUcontext primary, made, seen;
    unsigned long long first, second;
    CUdevice device;

    MUST(0, cuInit(0));
    MUST(0, cuCtxGetCurrent(&seen));
    MUST(1, seen == NULL);
    MUST(201, cuCtxGetDevice(&device));
    MUST(201, cuCtxSynchronize());
    MUST(201, cuCtxPopCurrent(&seen));
    MUST(0, cuDevicePrimaryCtxRetain(&primary, 1));
    MUST(0, cuCtxPushCurrent(primary));
    MUST(0, cuCtxCreate(&made, NULL, 0, 2));
    MUST(0, cuCtxGetDevice(&device));
    MUST(2, device);
    MUST(0, cuCtxGetId(primary, &first));
    MUST(0, cuCtxGetId(made, &second));
    MUST(1, first != second);
    MUST(0, cuCtxPopCurrent(&seen));
    MUST(1, seen == made);
    MUST(0, cuCtxGetDevice(&device));
    MUST(1, device);
    MUST(0, cuCtxSetCurrent(made));
    MUST(0, cuCtxDestroy(made));
    MUST(201, cuCtxDestroy(made));
    MUST(201, cuCtxDestroy(primary));
    MUST(1, cuCtxDestroy(NULL));
    MUST(0, cuCtxGetCurrent(&seen));
    MUST(1, seen == NULL);
    MUST(201, cuCtxSetCurrent((CUcontext)&seen));
    return 0;
}

static void test_contexts_are_pushed_popped_and_set(void)
{
    CHILD(current_contexts);
}

static int attached_contexts(void)
{
    CUcontext primary, made, seen = NULL;
    CUdeviceptr block;

    MUST(0, cuInit(0));
    MUST(201, cuCtxAttach(&seen, 0));
    MUST(201, cuCtxDetach(NULL));
    MUST(0, cuDevicePrimaryCtxRetain(&primary, 0));
    MUST(0, cuCtxSetCurrent(primary));
    MUST(0, cuCtxDetach(primary)); /* without effect, however often */
    MUST(0, cuCtxDetach(primary));
    MUST(0, cuMemAlloc(&block, 4096));
    MUST(0, cuCtxCreate(&made, NULL, 0, 0));
    MUST(1, cuCtxAttach(&seen, 1));
    MUST(0, cuCtxAttach(&seen, 0));
    MUST(1, seen == made);
    MUST(201, cuCtxDetach(primary)); /* not current */
    MUST(0, cuCtxDetach(made));
    MUST(0, cuMemAlloc(&block, 4096));
    MUST(0, cuCtxPushCurrent(made));
    MUST(0, cuCtxDetach(made)); /* the last one ends it, and pops it once */
    MUST(0, cuCtxGetCurrent(&seen));
    MUST(1, seen == made);
    MUST(709, cuMemAlloc(&block, 4096));
    MUST(709, cuCtxDetach(made));
    MUST(0, cuCtxSetCurrent(primary));
    MUST(0, cuCtxCreate(&made, NULL, 0, 0));
    MUST(0, cuCtxAttach(&seen, 0));
    MUST(0, cuCtxDestroy(made)); /* however often it was attached */
    MUST(0, cuCtxGetCurrent(&seen));
    MUST(1, seen == primary);
    return 0;
}

static void test_contexts_that_were_attached_to_end_when_all_have_detached(void)
{
    CHILD(attached_contexts);
}

static int primary_contexts(void)
{
    unsigned int flags;
    CUcontext context, again;
    CUdeviceptr p;
    int active;

    MUST(0, cuInit(0));
    MUST(0, cuDevicePrimaryCtxGetState(0, &flags, &active));
    MUST(0, active);
    MUST(0, cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_BLOCKING_SYNC));
    MUST(0, cuDevicePrimaryCtxRetain(&context, 0));
    MUST(0, cuDevicePrimaryCtxRetain(&again, 0));
    MUST(1, context == again);
    MUST(0, cuDevicePrimaryCtxGetState(0, &flags, &active));
    MUST(1, active);
    MUST(CU_CTX_SCHED_BLOCKING_SYNC, flags);
    MUST(0, cuCtxSetCurrent(context));
    MUST(0, cuMemAlloc(&p, 4096));
    MUST(0, cuDevicePrimaryCtxReset(0));
    MUST(0, simgpu_leaks());
    MUST(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&p, 4096));
    MUST(0, cuDevicePrimaryCtxRetain(&again, 0));
    MUST(1, context == again);
    MUST(0, cuMemAlloc(&p, 4096));
    MUST(0, cuDevicePrimaryCtxRelease(0));
    MUST(0, cuDevicePrimaryCtxRelease(0));
    MUST(0, cuDevicePrimaryCtxRelease(0));
    MUST(0, simgpu_leaks());
    MUST(201, cuDevicePrimaryCtxRelease(0));
    MUST(101, cuDevicePrimaryCtxRetain(&again, 3));
    return 0;
}

static void test_primary_contexts_are_counted_and_can_be_reset(void)
{
    CHILD(primary_contexts);
}

static void *without_context(void *data)
{
    CUdeviceptr p;

    (void)data;
    return (void *)(uintptr_t)cuMemAlloc(&p, 4096);
}

static int threads(void)
{
    pthread_t thread;
    void *result;

    MUST(0, sim_make_current());
    MUST(0, pthread_create(&thread, NULL, without_context, NULL));
    MUST(0, pthread_join(thread, &result));
    MUST(201, (uintptr_t)result);
    return 0;
}

static void test_a_thread_without_a_context_is_told_so(void)
{
    CHILD(threads);
}

static int settings(void)
{
    CUfunc_cache config;
    unsigned int flags;
    size_t value;

    MUST(0, sim_make_current());
    MUST(0, cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    MUST(0, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    MUST(0, cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    MUST(4096, value);
    MUST(1, cuCtxGetLimit(&value, (CUlimit)99));
    MUST(0, cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
    MUST(0, cuCtxGetCacheConfig(&config));
    MUST(CU_FUNC_CACHE_PREFER_L1, config);
    MUST(0, cuCtxGetFlags(&flags));
    return 0;
}

static void test_a_context_keeps_its_settings(void)
{
    CHILD(settings);
}

static int peers(void)
{
    CUcontext a, b;
    CUdeviceptr p, q;
    unsigned int seen = 0;
    int can;

    MUST(0, cuInit(0));
    MUST(0, cuDeviceCanAccessPeer(&can, 0, 1));
    MUST(1, can);
    MUST(0, cuDevicePrimaryCtxRetain(&b, 1));
    MUST(0, cuCtxSetCurrent(b));
    MUST(0, cuMemAlloc(&q, 4096));
    MUST(0, cuDevicePrimaryCtxRetain(&a, 0));
    MUST(0, cuCtxSetCurrent(a));
    MUST(0, cuCtxEnablePeerAccess(b, 0));
    MUST(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(b, 0));
    MUST(0, cuMemAlloc(&p, 4096));
    MUST(0, cuMemsetD32(p, 6, 1024));
    MUST(0, cuMemcpyPeer(q, b, p, a, 4096));
    MUST(0, cuMemcpyDtoH(&seen, q + 4092, 4));
    MUST(6, seen);
    MUST(0, cuCtxDisablePeerAccess(b));
    MUST(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(b));
    MUST(0, cuMemFree(p));
    MUST(0, cuMemFree(q));
    return 0;
}

static void test_devices_reach_each_other(void)
{
    CHILD(peers);
}

/* ---- devices ---- */

static int three_devices(void)
{
    char name[64], bus[32];
    CUdevice device;
    CUuuid uuid;
    size_t total;
    int value, i;

    MUST(0, cuInit(0));
    MUST(0, cuDeviceGetCount(&value));
    MUST(3, value);
    MUST(101, cuDeviceGet(&device, 3));
    MUST(101, cuDeviceGet(&device, -1));
    for (i = 0; i < 3; i++) {
        MUST(0, cuDeviceGet(&device, i));
        MUST(0, cuDeviceGetName(name, sizeof(name), device));
        MUST(0, strcmp(name, "simgpu"));
        MUST(0, cuDeviceGetUuid(&uuid, device));
        MUST(0, cuDeviceTotalMem(&total, device));
        MUST(1, total == 1 * GIB);
        MUST(0, cuDeviceGetPCIBusId(bus, sizeof(bus), device));
        MUST(0, cuDeviceGetByPCIBusId(&value, bus));
        MUST(i, value);
    }
    MUST(0, cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    MUST(9, value);
    MUST(0, cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    MUST(1, value);
    MUST(1, cuDeviceGetAttribute(&value, (CUdevice_attribute)100000, 0));
    MUST(101, cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 3));
    return 0;
}

static void test_devices_say_what_they_are(void)
{
    CHILD(three_devices);
}

static int expected_count;
static int expected_cards[3];

static int visible(void)
{
    int count, i, bus;

    if (expected_count == 0) {
        MUST(100, cuInit(0));
        return 0;
    }
    MUST(0, cuInit(0));
    MUST(0, cuDeviceGetCount(&count));
    MUST(expected_count, count);
    for (i = 0; i < count; i++) {
        MUST(0, cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, i));
        MUST(expected_cards[i] + 1, bus);
    }
    return 0;
}

static char uuid_of_card_2[48];

static int write_uuid(void)
{
    const unsigned char *u;
    CUuuid uuid;
    FILE *out = fopen(getenv("SIM_LIFE_UUID"), "w");

    MUST(0, cuInit(0));
    MUST(0, cuDeviceGetUuid(&uuid, 2));
    u = (const unsigned char *)uuid.bytes;
    MUST(1, out != NULL);
    fprintf(out, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
            u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    fclose(out);
    return 0;
}

static void check_visible(const char *list, int count, int first, int second)
{
    setenv("CUDA_VISIBLE_DEVICES", list, 1);
    expected_count = count;
    expected_cards[0] = first;
    expected_cards[1] = second;
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, sim_in_child(visible), list);
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static void test_visible_devices_are_chosen_ordered_and_cut_at_the_first_bad_entry(void)
{
    char path[] = "/tmp/sim_life_XXXXXX", list[128];
    int fd = mkstemp(path);
    FILE *in;

    TEST_ASSERT_TRUE(fd >= 0);
    close(fd);
    setenv("SIM_LIFE_UUID", path, 1);
    CHILD(write_uuid);
    in = fopen(path, "r");
    TEST_ASSERT_NOT_NULL(in);
    TEST_ASSERT_NOT_NULL(fgets(uuid_of_card_2, sizeof(uuid_of_card_2), in));
    fclose(in);
    unlink(path);

    check_visible("2,0", 2, 2, 0);
    check_visible("1", 1, 1, 0);
    check_visible(" 1 , 2", 2, 1, 2);
    check_visible("1,7,0", 1, 1, 0);
    check_visible("0,-1,2", 1, 0, 0);
    check_visible("", 0, 0, 0);
    check_visible("-1", 0, 0, 0);
    check_visible("none", 0, 0, 0);
    snprintf(list, sizeof(list), "%s,1", uuid_of_card_2);
    check_visible(list, 2, 2, 1);
    check_visible("GPU-ffffffff-0000", 0, 0, 0);
    check_visible("GPU-", 0, 0, 0); /* three cards begin so */
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_nothing_works_before_init_and_memory_needs_a_context);
    RUN_TEST(test_a_bad_machine_or_script_is_refused_at_init);
    RUN_TEST(test_a_fork_of_a_started_process_cannot_use_the_driver);
    RUN_TEST(test_a_fork_of_a_process_that_never_started_it_can);
    RUN_TEST(test_at_exit_the_driver_says_that_it_is_over);
    RUN_TEST(test_running_work_does_not_keep_the_process);
    RUN_TEST(test_a_card_is_shared_and_a_killed_process_gives_its_memory_back);
    RUN_TEST(test_a_context_takes_memory_and_its_end_returns_what_it_owned);
    RUN_TEST(test_contexts_are_pushed_popped_and_set);
    RUN_TEST(test_contexts_that_were_attached_to_end_when_all_have_detached);
    RUN_TEST(test_primary_contexts_are_counted_and_can_be_reset);
    RUN_TEST(test_a_thread_without_a_context_is_told_so);
    RUN_TEST(test_a_context_keeps_its_settings);
    RUN_TEST(test_devices_reach_each_other);
    RUN_TEST(test_devices_say_what_they_are);
    RUN_TEST(test_visible_devices_are_chosen_ordered_and_cut_at_the_first_bad_entry);
    return UNITY_END();
}

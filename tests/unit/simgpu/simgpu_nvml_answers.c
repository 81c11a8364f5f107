/* The simulated NVML in a process that never uses CUDA: codes, layouts and what it says about other
 * processes. */
#include "tools/simgpu/engine/sim_card.h"
#include "tools/simgpu/nvml/sim_nvml_abi.h"
#include "tools/simgpu/nvml/sim_nvml_view.h"
#include "unity.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((unsigned long long)1 << 20)

void setUp(void)
{
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlInit_v2());
}

void tearDown(void)
{
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlShutdown());
}

static nvmlDevice_t device(unsigned index)
{
    nvmlDevice_t handle = NULL;
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(index, &handle));
    return handle;
}

static void test_every_call_before_init_is_uninitialized(void)
{
    unsigned count;
    nvmlMemory_t memory;
    nvmlDevice_t handle = device(0);
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlShutdown());
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_UNINITIALIZED, nvmlShutdown());
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2(&count));
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetMemoryInfo(handle, &memory));
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlInitWithFlags(0));
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_INVALID_ARGUMENT, nvmlInitWithFlags(0x80));
    TEST_ASSERT_EQUAL_STRING("Uninitialized", nvmlErrorString(NVML_ERROR_UNINITIALIZED));
    TEST_ASSERT_EQUAL_STRING("Unknown Error", nvmlErrorString((nvmlReturn_t)12345));
}

static void test_all_cards_are_seen_whatever_cuda_may_see(void)
{
    unsigned count = 0;
    nvmlDevice_t handle;
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetCount(&count));
    TEST_ASSERT_EQUAL_UINT(3, count);
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex(3, &handle));
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex(0, NULL));
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetCount(NULL));
}

static void test_a_card_is_found_by_each_of_its_names(void)
{
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE], name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
    nvmlPciInfo_t pci;
    nvmlDevice_t handle = NULL;
    unsigned index = 9;
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetUUID(device(1), uuid, sizeof(uuid)));
    TEST_ASSERT_EQUAL_STRING("GPU-73696d67-7075-4000-8000-000000000001", uuid);
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetHandleByUUID(uuid, &handle));
    TEST_ASSERT_EQUAL_PTR(device(1), handle);
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_NOT_FOUND, nvmlDeviceGetHandleByUUID("GPU-none", &handle));
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_INSUFFICIENT_SIZE, nvmlDeviceGetUUID(handle, uuid, 40));
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetName(handle, name, sizeof(name)));
    TEST_ASSERT_EQUAL_STRING("simgpu", name);
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetPciInfo_v3(handle, &pci));
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetHandleByPciBusId_v2(pci.busId, &handle));
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetHandleByPciBusId_v2(pci.busIdLegacy, &handle));
    TEST_ASSERT_EQUAL_PTR(device(1), handle);
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_NOT_FOUND, nvmlDeviceGetHandleByPciBusId_v2("0000:77:00.0", &handle));
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetHandleByPciBusId_v2("seven", &handle));
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetIndex(device(1), &index));
    TEST_ASSERT_EQUAL_UINT(1, index);
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_INVALID_ARGUMENT,
                          nvmlDeviceGetIndex((nvmlDevice_t)(void *)&index, &index));
}

/* A neighbour with a context that holds 5 MiB of card 0 until it is killed. */
static pid_t start_neighbour(void)
{
    int ready[2];
    char c = 0;
    TEST_ASSERT_EQUAL_INT(0, pipe(ready));
    pid_t pid = fork();
    TEST_ASSERT_TRUE(pid >= 0);
    if (!pid) {
        if (sim_card_open() || sim_card_charge(0, 5 * MIB))
            _exit(1);
        sim_card_enter(0);
        if (write(ready[1], &c, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    TEST_ASSERT_EQUAL_INT(1, read(ready[0], &c, 1));
    close(ready[0]);
    return pid;
}

static void check_lists(pid_t neighbour)
{
    nvmlProcessInfo_v1_t v1[2];
    nvmlProcessInfo_v2_t v2[2];
    nvmlProcessInfo_t v3[2];
    unsigned count = 0;
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_INSUFFICIENT_SIZE,
                          nvmlDeviceGetComputeRunningProcesses_v3(device(0), &count, NULL));
    TEST_ASSERT_EQUAL_UINT(1, count);
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetComputeRunningProcesses(device(0), &count, v1));
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetComputeRunningProcesses_v2(device(0), &count, v2));
    count = 2;
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetComputeRunningProcesses_v3(device(0), &count, v3));
    TEST_ASSERT_EQUAL_UINT(1, count);
    TEST_ASSERT_EQUAL_INT(neighbour, v1[0].pid);
    TEST_ASSERT_EQUAL_UINT64(5 * MIB, v1[0].usedGpuMemory);
    TEST_ASSERT_EQUAL_INT(neighbour, v2[0].pid);
    TEST_ASSERT_EQUAL_UINT64(5 * MIB, v3[0].usedGpuMemory);
    TEST_ASSERT_EQUAL_HEX32(0xFFFFFFFF, v3[0].gpuInstanceId);
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_INVALID_ARGUMENT,
                          nvmlDeviceGetComputeRunningProcesses_v3(device(0), &count, NULL));
    count = 2;
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetGraphicsRunningProcesses_v3(device(0), &count, v3));
    TEST_ASSERT_EQUAL_UINT(0, count);
}

static void test_memory_of_a_neighbour_is_seen_while_it_lives(void)
{
    nvmlMemory_t memory;
    nvmlMemory_v2_t versioned = {.version = nvmlMemory_v2};
    pid_t neighbour = start_neighbour();
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetMemoryInfo(device(0), &memory));
    TEST_ASSERT_EQUAL_UINT64(64 * MIB, memory.total);
    TEST_ASSERT_EQUAL_UINT64(5 * MIB, memory.used);
    TEST_ASSERT_EQUAL_UINT64(59 * MIB, memory.free);
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetMemoryInfo_v2(device(0), &versioned));
    TEST_ASSERT_EQUAL_UINT64(5 * MIB, versioned.used);
    versioned.version = 1;
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
                          nvmlDeviceGetMemoryInfo_v2(device(0), &versioned));
    check_lists(neighbour);
    kill(neighbour, SIGKILL);
    TEST_ASSERT_EQUAL_INT(neighbour, waitpid(neighbour, NULL, 0));
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetMemoryInfo(device(0), &memory));
    TEST_ASSERT_EQUAL_UINT64(0, memory.used);
}

static void test_a_mig_instance_has_a_uuid_of_its_own_kind(void)
{
    static const char mig[] = "MIG-73696d6d-6967-4000-8000-000000000002";
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    nvmlDevice_t handle = NULL;
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetUUID(device(2), uuid, sizeof(uuid)));
    TEST_ASSERT_EQUAL_STRING(mig, uuid);
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetHandleByUUID(mig, &handle));
    TEST_ASSERT_EQUAL_PTR(device(2), handle);
    memcpy(uuid, "GPU", 3);
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_NOT_FOUND, nvmlDeviceGetHandleByUUID(uuid, &handle));
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_NOT_FOUND,
                          nvmlDeviceGetHandleByUUID("GPU-73696d67-7075-4000-8000-000000000002", &handle));
}

/* ---- what GPUCAP_SIM_NVML hides ---- */

static nvmlReturn_t start_with(const char *view)
{
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlShutdown());
    if (view)
        setenv("GPUCAP_SIM_NVML", view, 1);
    else
        unsetenv("GPUCAP_SIM_NVML");
    return nvmlInit_v2();
}

static void start_plain(void)
{
    unsetenv("GPUCAP_SIM_NVML");
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlInit_v2());
}

static void test_absent_it_does_not_start(void)
{
    nvmlProcessInfo_t list[2];
    unsigned count = 2;
    nvmlDevice_t handle = device(0);
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_DRIVER_NOT_LOADED, start_with("absent"));
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_DRIVER_NOT_LOADED, nvmlInitWithFlags(0));
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_UNINITIALIZED,
                          nvmlDeviceGetComputeRunningProcesses_v3(handle, &count, list));
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2(&count));
    start_plain();
}

static void test_without_a_list_memory_is_still_told(void)
{
    nvmlProcessInfo_t list[2];
    unsigned count = 2;
    nvmlMemory_t memory;
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, start_with("no-list"));
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_NOT_SUPPORTED,
                          nvmlDeviceGetComputeRunningProcesses_v3(device(0), &count, list));
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetMemoryInfo(device(0), &memory));
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, start_with(NULL));
}

static void test_bytes_and_numbers_of_processes_can_be_hidden(void)
{
    nvmlProcessInfo_t list[2];
    nvmlProcessInfo_v1_t old[2];
    nvmlMemory_t memory;
    unsigned count = 2;
    pid_t neighbour = start_neighbour();
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, start_with("no-bytes,pids=100000000"));
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetComputeRunningProcesses_v3(device(0), &count, list));
    TEST_ASSERT_EQUAL_UINT(1, count);
    TEST_ASSERT_EQUAL_UINT((unsigned)neighbour + 100000000, list[0].pid);
    TEST_ASSERT_EQUAL_HEX64(UINT64_MAX, list[0].usedGpuMemory);
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetComputeRunningProcesses(device(0), &count, old));
    TEST_ASSERT_EQUAL_HEX64(UINT64_MAX, old[0].usedGpuMemory);
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetMemoryInfo(device(0), &memory));
    TEST_ASSERT_EQUAL_UINT64(5 * MIB, memory.used);
    kill(neighbour, SIGKILL);
    TEST_ASSERT_EQUAL_INT(neighbour, waitpid(neighbour, NULL, 0));
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, start_with(NULL));
}

static void test_a_context_that_takes_no_memory_is_listed(void)
{
    nvmlProcessInfo_t list[8];
    unsigned count = 8;
    TEST_ASSERT_EQUAL_INT(0, sim_card_open());
    sim_card_enter(1);
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetComputeRunningProcesses_v3(device(1), &count, list));
    TEST_ASSERT_EQUAL_UINT(1, count);
    TEST_ASSERT_EQUAL_UINT(getpid(), list[0].pid);
    TEST_ASSERT_EQUAL_UINT64(0, list[0].usedGpuMemory);
    sim_card_leave(1);
    count = 8;
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetComputeRunningProcesses_v3(device(1), &count, list));
    TEST_ASSERT_EQUAL_UINT(0, count);
}

static void test_others_can_appear_together_with_this_process(void)
{
    nvmlProcessInfo_t list[8];
    unsigned count = 8, own = (unsigned)getpid() + 5;
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, start_with("newcomers=3,pids=5"));
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetComputeRunningProcesses_v3(device(1), &count, list));
    TEST_ASSERT_EQUAL_UINT(0, count);
    TEST_ASSERT_EQUAL_INT(0, sim_card_open());
    TEST_ASSERT_EQUAL_INT(0, sim_card_charge(1, 3 * MIB));
    sim_card_enter(1);
    count = 0;
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_INSUFFICIENT_SIZE,
                          nvmlDeviceGetComputeRunningProcesses_v3(device(1), &count, NULL));
    TEST_ASSERT_EQUAL_UINT(4, count);
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, nvmlDeviceGetComputeRunningProcesses_v3(device(1), &count, list));
    for (unsigned i = 0; i < count; i++) {
        TEST_ASSERT_EQUAL_UINT64(3 * MIB, list[i].usedGpuMemory);
        TEST_ASSERT_EQUAL_INT(i == 2, list[i].pid == own);
        for (unsigned j = 0; j < i; j++)
            TEST_ASSERT_TRUE(list[i].pid != list[j].pid);
    }
    sim_card_uncharge(1, 3 * MIB);
    sim_card_leave(1);
    TEST_ASSERT_EQUAL_INT(NVML_SUCCESS, start_with(NULL));
}

static void test_a_view_that_cannot_be_read_is_refused(void)
{
    static const char *const bad[] = {"blind",
                                      "no-bytes,",
                                      ",absent",
                                      "pids=",
                                      "pids=-1",
                                      "pids=12x",
                                      "newcomers=65",
                                      "absent=1",
                                      "no-bytes,,",
                                      "pids=1000000001",
                                      "newcomers=99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct sim_nvml_view view = {.pids = 7};
        char why[96] = "";
        TEST_ASSERT_EQUAL_INT_MESSAGE(-EINVAL, sim_nvml_view_parse(bad[i], &view, why, sizeof(why)), bad[i]);
        TEST_ASSERT_TRUE_MESSAGE(why[0] && view.pids == 7, bad[i]);
    }
    TEST_ASSERT_EQUAL_INT(NVML_ERROR_DRIVER_NOT_LOADED, start_with("blind"));
    start_plain();
}

int main(void)
{
    char id[48];
    snprintf(id, sizeof(id), "nvml-test-%d", (int)getpid());
    setenv("GPUCAP_SIM_ID", id, 1);
    setenv("GPUCAP_SIM", "2x64M,64M/mig", 1);
    unsetenv("GPUCAP_SIM_NVML");
    UNITY_BEGIN();
    RUN_TEST(test_every_call_before_init_is_uninitialized);
    RUN_TEST(test_all_cards_are_seen_whatever_cuda_may_see);
    RUN_TEST(test_a_card_is_found_by_each_of_its_names);
    RUN_TEST(test_memory_of_a_neighbour_is_seen_while_it_lives);
    RUN_TEST(test_a_mig_instance_has_a_uuid_of_its_own_kind);
    RUN_TEST(test_absent_it_does_not_start);
    RUN_TEST(test_without_a_list_memory_is_still_told);
    RUN_TEST(test_bytes_and_numbers_of_processes_can_be_hidden);
    RUN_TEST(test_a_context_that_takes_no_memory_is_listed);
    RUN_TEST(test_others_can_appear_together_with_this_process);
    RUN_TEST(test_a_view_that_cannot_be_read_is_refused);
    return UNITY_END();
}

/* The runtime on a machine without a driver, and on one without a card. The test runs itself, because the
 * driver is looked for only once in a process. */
#include "tests/unit/simgpu/simgpu_cudart_support.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>

void setUp(void) {}

void tearDown(void) {}

#define HAS_DRIVER 77

/* In the new process: 0 if every call gives the code. */
static int all_fail_with(int code)
{
    if (code == cudaErrorInsufficientDriver && dlopen("libcuda.so.1", RTLD_NOW))
        return HAS_DRIVER;
    int count = 7;
    void *p;
    if (cudaGetDeviceCount(&count) != (cudaError_t)code || cudaMalloc(&p, 16) != (cudaError_t)code ||
        cudaFree(NULL) != (cudaError_t)code || cudaSetDevice(0) != (cudaError_t)code)
        return 1;
    if (code == cudaErrorNoDevice && count != 0)
        return 2;
    return cudaGetLastError() == (cudaError_t)code ? 0 : 3;
}

static int run_self(const char *code, const char *variable, const char *value)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    TEST_ASSERT_TRUE(pid >= 0);
    if (!pid) {
        setenv(variable, value, 1);
        setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* the check is slow, and for the test itself */
        execl("/proc/self/exe", "simgpu_cudart_no_device", code, (char *)NULL);
        _exit(127);
    }
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_without_a_driver_every_call_says_that_the_driver_is_insufficient(void)
{
    const int rc = run_self("35", "LD_LIBRARY_PATH", "/nonexistent");

    if (rc == HAS_DRIVER)
        TEST_IGNORE_MESSAGE("a driver is installed where every program finds it");
    TEST_ASSERT_EQUAL_INT(0, rc);
}

static void test_without_a_card_every_call_says_so(void)
{
    TEST_ASSERT_EQUAL_INT(0, run_self("100", "GPUCAP_SIM", "none"));
}

static void test_with_no_visible_card_every_call_says_so(void)
{
    TEST_ASSERT_EQUAL_INT(0, run_self("100", "CUDA_VISIBLE_DEVICES", "-1"));
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return all_fail_with(atoi(argv[1]));
    cudart_own_machine("1x128M;ctx=4M");
    UNITY_BEGIN();
    RUN_TEST(test_without_a_driver_every_call_says_that_the_driver_is_insufficient);
    RUN_TEST(test_without_a_card_every_call_says_so);
    RUN_TEST(test_with_no_visible_card_every_call_says_so);
    return UNITY_END();
}

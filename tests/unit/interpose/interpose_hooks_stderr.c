/* The hooks that replace standard error: they do what the C library does, and tell the log of a new file at
 * descriptor 2, and only of that. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/driver/real.h"
#include "interpose/settings/log.h"

static int told, saved;

void log_new_stderr(void)
{
    told++;
}

void *real_symbol(void *handle, const char *name)
{
    return dlsym(handle, name);
}

void setUp(void)
{
    saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    told = 0;
}

void tearDown(void)
{
    dup2(saved, STDERR_FILENO);
    close(saved);
}

static bool closes_on_exec(int descriptor)
{
    return fcntl(descriptor, F_GETFD) & FD_CLOEXEC;
}

static void test_a_duplicate_at_descriptor_2_is_told(void)
{
    const int file = open("/dev/null", O_WRONLY | O_CLOEXEC);

    TEST_ASSERT_EQUAL_INT(STDERR_FILENO, dup2(file, STDERR_FILENO));
    TEST_ASSERT_EQUAL_INT(1, told);
    TEST_ASSERT_EQUAL_INT(STDERR_FILENO, dup3(file, STDERR_FILENO, O_CLOEXEC));
    TEST_ASSERT_EQUAL_INT(2, told);
    TEST_ASSERT_TRUE_MESSAGE(closes_on_exec(STDERR_FILENO), "with the flags that were given");
    TEST_ASSERT_EQUAL_INT(STDERR_FILENO, dup3(file, STDERR_FILENO, 0));
    TEST_ASSERT_FALSE(closes_on_exec(STDERR_FILENO));
    TEST_ASSERT_EQUAL_INT(3, told);
    TEST_ASSERT_EQUAL_INT(STDERR_FILENO, dup2(STDERR_FILENO, STDERR_FILENO));
    TEST_ASSERT_EQUAL_INT_MESSAGE(3, told, "nothing has changed");
    TEST_ASSERT_EQUAL_INT(20, dup2(file, 20));
    TEST_ASSERT_EQUAL_INT(-1, dup2(19, STDERR_FILENO));
    TEST_ASSERT_EQUAL_INT(-1, dup3(file, STDERR_FILENO, 1 << 30));
    TEST_ASSERT_EQUAL_INT(3, told);
    close(20);
    close(file);
}

static void test_a_reopened_standard_error_is_told(void)
{
    TEST_ASSERT_EQUAL_PTR(stderr, freopen("/dev/null", "w", stderr));
    TEST_ASSERT_EQUAL_INT(1, told);
    TEST_ASSERT_EQUAL_PTR(stderr, freopen64("/dev/null", "w", stderr));
    TEST_ASSERT_EQUAL_INT(2, told);
    close(STDERR_FILENO);
    FILE *data = fopen("/dev/null", "w");
    TEST_ASSERT_EQUAL_INT(STDERR_FILENO, fileno(data));
    data = freopen("/dev/zero", "r", data);
    TEST_ASSERT_NOT_NULL(data);
    TEST_ASSERT_EQUAL_INT(STDERR_FILENO, fileno(data));
    TEST_ASSERT_EQUAL_INT_MESSAGE(2, told, "a data file is not standard error");
    fclose(data);
    TEST_ASSERT_NULL(freopen("/no/such/file", "w", stderr));
    TEST_ASSERT_EQUAL_INT(2, told);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_duplicate_at_descriptor_2_is_told);
    RUN_TEST(test_a_reopened_standard_error_is_told);
    return UNITY_END();
}

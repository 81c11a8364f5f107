/* driver: which library we bind to, and what its table holds. The dynamic loader is the test's own. Each test
 * runs in a child of its own, because we bind once. */
#include "interpose/driver/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apart.h"
#include "interpose/driver/real.h"

/* Three libraries: a driver, another driver, and one that depends on the first. */
static struct library {
    char code[16];
    char start; /* stands for cuInit; its address is in the library */
} libraries[3];
enum { FIRST, SECOND, DEPENDANT };

static struct fake {
    bool loaded; /* dlopen finds libcuda.so.1 */
    int opens, closes, looked_up;
    bool forks_while_binding;
    pid_t child;
} fake;

static int library_of(const void *address)
{
    for (int i = 0; i < 3; i++) {
        if ((uintptr_t)address - (uintptr_t)&libraries[i] < sizeof(libraries[i]))
            return i;
    }
    return -1;
}

/* What a child does that was forked while another thread was binding. */
static void run_forked_child(void)
{
    alarm(250); /* instead of waiting for ever */
    driver_after_fork();
    _exit(driver_bind(libraries[FIRST].code) && atomic_load(&driver_bound) ? 0 : 1);
}

int __wrap_dladdr(const void *address, Dl_info *info);
int __wrap_dladdr(const void *address, Dl_info *info)
{
    static const char *const names[] = {"first", "second", "dependant"};
    const int i = library_of(address);

    /* The table is filled, and not yet published. */
    if (fake.forks_while_binding && fake.looked_up > 1) {
        fake.forks_while_binding = false;
        fake.child = fork();
        if (fake.child == 0)
            run_forked_child();
    }
    if (i >= 0)
        *info = (Dl_info){.dli_fname = names[i], .dli_fbase = &libraries[i]};
    return i >= 0;
}

void *__wrap_dlopen(const char *file, int mode);
void *__wrap_dlopen(const char *file, int mode)
{
    fake.opens++;
    if (!strcmp(file, "libcuda.so.1"))
        return fake.loaded ? &libraries[FIRST] : NULL;
    TEST_ASSERT_TRUE_MESSAGE(mode & RTLD_NOLOAD, "only the driver is ever loaded");
    return !strcmp(file, "first")    ? &libraries[FIRST]
           : !strcmp(file, "second") ? &libraries[SECOND]
                                     : &libraries[DEPENDANT];
}

int __wrap_dlclose(void *handle);
int __wrap_dlclose(void *handle)
{
    TEST_ASSERT_TRUE(library_of(handle) >= 0);
    fake.closes++;
    return 0;
}

static CUresult get_count(int *count)
{
    *count = 5;
    return CUDA_SUCCESS;
}

void *real_symbol(void *handle, const char *name)
{
    const int i = library_of(handle);

    fake.looked_up++;
    if (!strcmp(name, "cuInit"))
        return &libraries[i == DEPENDANT ? FIRST : i].start;
    return !strcmp(name, "cuDeviceGetCount") ? (void *)get_count : NULL;
}

/* ---- helpers ---- */

void setUp(void)
{
    fake = (struct fake){0};
}

void tearDown(void) {}

/* ---- promises ---- */

static void test_we_bind_to_the_driver_itself_and_once(void)
{
    static int outside;

    TEST_ASSERT_FALSE(driver_bind(&outside));
    TEST_ASSERT_FALSE_MESSAGE(driver_bind(libraries[DEPENDANT].code), "it only depends on one");
    TEST_ASSERT_EQUAL_INT_MESSAGE(fake.opens, fake.closes, "such a library is not kept");
    TEST_ASSERT_FALSE(atomic_load(&driver_bound));
    TEST_ASSERT_TRUE(driver_bind(libraries[FIRST].code));
    TEST_ASSERT_TRUE(atomic_load(&driver_bound));
    TEST_ASSERT_EQUAL_PTR(&libraries[FIRST].start, (void *)driver.cuInit);
    TEST_ASSERT_EQUAL_PTR((void *)get_count, (void *)driver.cuDeviceGetCount);
    TEST_ASSERT_EQUAL_INT_MESSAGE(CUDA_ERROR_NOT_SUPPORTED, driver.cuCtxSynchronize(),
                                  "this driver does not have it");
    fake.opens = 0;
    TEST_ASSERT_TRUE(driver_bind(&outside));
    TEST_ASSERT_TRUE(driver_bind(libraries[SECOND].code));
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, fake.opens, "once for all");
    TEST_ASSERT_EQUAL_PTR(&libraries[FIRST].start, (void *)driver.cuInit);
}

static void test_without_a_driver_every_call_says_so(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_INITIALIZED, driver.cuInit(0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_INITIALIZED, driver.cuCtxSynchronize());
    TEST_ASSERT_FALSE(atomic_load(&driver_bound));
    fake.loaded = true; /* installed meanwhile */
    TEST_ASSERT_EQUAL_PTR((void *)get_count, (void *)driver.cuDeviceGetCount);
    TEST_ASSERT_TRUE(atomic_load(&driver_bound));
}

static void test_an_address_is_the_drivers_or_not(void)
{
    static int outside;

    TEST_ASSERT_TRUE_MESSAGE(driver_owns(libraries[FIRST].code), "before we are bound, too");
    TEST_ASSERT_EQUAL_INT(1, fake.opens);
    TEST_ASSERT_EQUAL_INT(1, fake.closes);
    TEST_ASSERT_TRUE(driver_bind(libraries[FIRST].code));
    fake.opens = fake.closes = 0;
    TEST_ASSERT_TRUE(driver_owns(libraries[FIRST].code));
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, fake.opens, "one that we know");
    TEST_ASSERT_TRUE_MESSAGE(driver_owns(libraries[SECOND].code), "another driver");
    TEST_ASSERT_FALSE(driver_owns(libraries[DEPENDANT].code));
    TEST_ASSERT_EQUAL_INT(2, fake.opens);
    TEST_ASSERT_EQUAL_INT(2, fake.closes);
    TEST_ASSERT_FALSE(driver_owns(&outside));
    TEST_ASSERT_FALSE(driver_owns(NULL));
}

static void test_a_child_forked_while_we_bind_can_bind_itself(void)
{
    int status = 1;

    fake.forks_while_binding = true;
    TEST_ASSERT_TRUE(driver_bind(libraries[FIRST].code));
    TEST_ASSERT_GREATER_THAN_INT(0, fake.child);
    TEST_ASSERT_EQUAL_INT(fake.child, waitpid(fake.child, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
    driver_after_fork(); /* changes nothing once we are bound */
    TEST_ASSERT_TRUE(atomic_load(&driver_bound));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_APART(test_we_bind_to_the_driver_itself_and_once);
    RUN_APART(test_without_a_driver_every_call_says_so);
    RUN_APART(test_an_address_is_the_drivers_or_not);
    RUN_APART(test_a_child_forked_while_we_bind_can_bind_itself);
    return UNITY_END();
}

/* resolve: which address a program gets for a name. The look-ups behind it, the hooks and the driver are the
 * test's own. */
#include "interpose/hook/resolve.h"

#include <string.h>
#include <unity.h>

#include "interpose/account/drivers_pools.h"
#include "interpose/account/known_kernels.h"
#include "interpose/driver/driver.h"
#include "interpose/driver/elfsym.h"
#include "interpose/driver/real.h"
#include "interpose/hook/hooks.h"
#include "interpose/pool/streams.h"

#define HANDLE ((void *)&handle_place)

atomic_bool rebind_pending;
void *(*real_dlsym)(void *handle, const char *name);
void *(*real_dlvsym)(void *handle, const char *name, const char *version);

/* Addresses. */
static char handle_place, hook, nvml_hook, drivers, nvmls, programs, in_driver, local_driver;

static struct fake {
    void *in_handle, *by_default, *next;    /* what the real look-ups find */
    void *loaded;                           /* what is found in a driver that is loaded for a library only */
    void *versioned;                        /* what they find with a version */
    struct elfsym_next after;               /* what follows the caller */
    bool driver_defines, is_driver, is_own; /* libcuda.so has the name; the address is the driver's */
    char unknown[64];
    int next_asked, errors_cleared, opened, stopped, asks_always;
    const char *opened_name;
} fake;

/* ---- the test's own library ---- */

static void *fake_dlsym(void *handle, const char *name)
{
    (void)name;
    if (handle == RTLD_DEFAULT)
        return fake.by_default;
    fake.next_asked += handle == RTLD_NEXT;
    if (handle == RTLD_NEXT)
        return fake.next;
    return handle == &local_driver ? fake.loaded : fake.in_handle;
}

static void *fake_dlvsym(void *handle, const char *name, const char *version)
{
    (void)handle, (void)name;
    TEST_ASSERT_EQUAL_STRING("V1", version);
    return fake.versioned;
}

void real_find(void)
{
    real_dlsym = fake_dlsym;
    real_dlvsym = fake_dlvsym;
}

void rebind_pending_now(void)
{
    TEST_FAIL_MESSAGE("nothing is pending");
}

void *__wrap_dlopen(const char *file, int mode);
void *__wrap_dlopen(const char *file, int mode)
{
    TEST_ASSERT_TRUE_MESSAGE(mode & RTLD_NOLOAD, "a look-up loads nothing");
    fake.opened++;
    fake.opened_name = file;
    return fake.loaded ? &local_driver : NULL;
}

char *__wrap_dlerror(void);
char *__wrap_dlerror(void)
{
    fake.errors_cleared++;
    return NULL;
}

struct elfsym_next elfsym_after(const void *start, const void *skip, const char *symbol)
{
    (void)symbol;
    TEST_ASSERT_EQUAL_PTR(&programs, start);
    TEST_ASSERT_TRUE(skip == &hook || skip == &nvml_hook);
    return fake.after;
}

bool elfsym_defines(const char *library, const char *symbol)
{
    (void)symbol;
    TEST_ASSERT_EQUAL_STRING("libcuda.so", library);
    return fake.driver_defines;
}

bool driver_bind(const void *symbol)
{
    (void)symbol;
    return fake.is_driver;
}

bool driver_owns(const void *address)
{
    return fake.is_own && address != NULL;
}

void *hooks_find(const char *name)
{
    return !strcmp(name, "cuMemAlloc_v2") ? &hook : NULL;
}

void *hooks_for(void *address)
{
    return address == &drivers ? &hook : address;
}

void *hooks_find_nvml(const char *name)
{
    return !strcmp(name, "nvmlDeviceGetMemoryInfo") ? &nvml_hook : NULL;
}

void *hooks_for_nvml(const char *name, void *address)
{
    TEST_ASSERT_EQUAL_STRING("nvmlDeviceGetMemoryInfo", name);
    return address == &nvmls ? &nvml_hook : address;
}

bool hooks_quiet(const char *name)
{
    return !strcmp(name, "cuQuiet");
}

void streams_unknown(const char *name)
{
    strcpy(fake.unknown, name);
}

void known_kernels_stop(void)
{
    fake.stopped++;
}

void drivers_pools_ask_always(void)
{
    fake.asks_always++;
}

/* ---- helpers ---- */

static struct trampoline_answer look_up(void *handle, const char *name, const char *version)
{
    fake.next_asked = fake.errors_cleared = fake.opened = 0;
    fake.unknown[0] = '\0';
    return resolve_look_up(handle, name, version, &programs);
}

static void expect_address(const void *address, struct trampoline_answer answer)
{
    TEST_ASSERT_EQUAL_UINT64(1, answer.decided);
    TEST_ASSERT_EQUAL_PTR(address, answer.address);
}

/* The real function decides, with the program as its caller. */
static void expect_passed_on(struct trampoline_answer answer)
{
    TEST_ASSERT_EQUAL_UINT64(0, answer.decided);
}

void setUp(void)
{
    fake = (struct fake){.is_driver = true, .is_own = true, .after.known = true};
}

void tearDown(void) {}

/* ---- promises ---- */

static void test_names_of_others_are_passed_on_at_once(void)
{
    fake.in_handle = fake.by_default = fake.next = &in_driver;
    expect_passed_on(look_up(HANDLE, NULL, NULL));
    expect_passed_on(look_up(HANDLE, "malloc", NULL));
    expect_passed_on(look_up(HANDLE, "curl_easy_init", NULL));
    expect_passed_on(look_up(HANDLE, "nvmlInit_v2", NULL));
    expect_passed_on(look_up(HANDLE, "nvmlUnknown", NULL));
    expect_passed_on(look_up(HANDLE, "cublasCreate_v2", NULL));
    expect_passed_on(look_up(HANDLE, "cuQuiet", NULL));
    TEST_ASSERT_EQUAL_STRING("", fake.unknown);
}

static void test_a_handle_gives_the_hook_of_the_drivers_function(void)
{
    fake.in_handle = &drivers;
    expect_address(&hook, look_up(HANDLE, "cuMemAlloc_v2", NULL));
    TEST_ASSERT_GREATER_THAN_INT_MESSAGE(0, fake.errors_cleared, "our look-ups leave no error");
    fake.in_handle = &nvmls;
    expect_address(&nvml_hook, look_up(HANDLE, "nvmlDeviceGetMemoryInfo", NULL));
}

static void test_a_library_with_a_function_of_that_name_keeps_it(void)
{
    fake.in_handle = &programs;
    fake.is_driver = false;
    expect_address(&programs, look_up(HANDLE, "cuMemAlloc_v2", NULL));
    fake.in_handle = NULL;
    expect_passed_on(look_up(HANDLE, "cuMemAlloc_v2", NULL));
}

static void test_the_handle_of_the_program_gives_what_comes_after_us(void)
{
    fake.in_handle = &hook;
    fake.next = &drivers;
    expect_address(&hook, look_up(HANDLE, "cuMemAlloc_v2", NULL));
    TEST_ASSERT_EQUAL_INT(1, fake.next_asked);
    fake.next = NULL; /* without us it would find nothing, and the failed look-up has said so */
    expect_address(NULL, look_up(HANDLE, "cuMemAlloc_v2", NULL));
    TEST_ASSERT_EQUAL_INT(0, fake.errors_cleared);
}

static void test_a_version_is_asked_for(void)
{
    fake.in_handle = &programs;
    fake.versioned = &drivers;
    expect_address(&hook, look_up(HANDLE, "cuMemAlloc_v2", "V1"));
    fake.versioned = NULL; /* the real function then says so itself */
    expect_passed_on(look_up(RTLD_NEXT, "cuMemAlloc_v2", "V1"));
}

static void test_the_default_is_ours_unless_the_program_defines_it(void)
{
    fake.by_default = &hook;
    fake.next = &drivers;
    expect_address(&hook, look_up(RTLD_DEFAULT, "cuMemAlloc_v2", NULL));
    fake.by_default = &programs;
    expect_passed_on(look_up(RTLD_DEFAULT, "cuMemAlloc_v2", NULL));
}

static void test_a_driver_loaded_for_one_library_is_found_by_that_library_alone(void)
{
    fake.by_default = &hook;
    fake.loaded = &drivers;
    fake.after.start_is_later = true;
    expect_address(&hook, look_up(RTLD_DEFAULT, "cuMemAlloc_v2", NULL));
    TEST_ASSERT_EQUAL_STRING("libcuda.so.1", fake.opened_name);
    fake.loaded = &nvmls;
    fake.by_default = &nvml_hook;
    expect_address(&nvml_hook, look_up(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo", NULL));
    TEST_ASSERT_EQUAL_STRING("libnvidia-ml.so.1", fake.opened_name);

    fake.by_default = &hook;
    fake.after.start_is_later = false; /* the program itself */
    expect_address(NULL, look_up(RTLD_DEFAULT, "cuMemAlloc_v2", NULL));
    TEST_ASSERT_EQUAL_INT(0, fake.opened);
    TEST_ASSERT_EQUAL_INT_MESSAGE(2, fake.next_asked, "asked last, so that dlerror speaks of it");
    fake.loaded = NULL;
    fake.after.start_is_later = true;
    expect_address(NULL, look_up(RTLD_DEFAULT, "cuMemAlloc_v2", NULL));
    TEST_ASSERT_EQUAL_INT(2, fake.next_asked);
}

static void test_the_next_one_is_the_callers_next(void)
{
    fake.next = &drivers;
    fake.after.address = &drivers;
    expect_address(&hook, look_up(RTLD_NEXT, "cuMemAlloc_v2", NULL));
    TEST_ASSERT_EQUAL_INT(1, fake.next_asked);

    fake.after.is_earlier = true; /* another library, before us, defines it */
    expect_passed_on(look_up(RTLD_NEXT, "cuMemAlloc_v2", NULL));
    fake.after = (struct elfsym_next){.known = false};
    expect_passed_on(look_up(RTLD_NEXT, "cuMemAlloc_v2", NULL));

    fake.after = (struct elfsym_next){.known = true, .start_is_later = true, .address = &programs};
    fake.is_driver = false;
    expect_address(&programs, look_up(RTLD_NEXT, "cuMemAlloc_v2", NULL));
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, fake.next_asked, "what comes after us may be the caller's own");
    fake.after.address = NULL;
    expect_passed_on(look_up(RTLD_NEXT, "cuMemAlloc_v2", NULL));
    fake.after.start_is_later = false;
    fake.next = NULL;
    expect_address(NULL, look_up(RTLD_NEXT, "cuMemAlloc_v2", NULL));
}

static void test_an_unknown_entry_point_counts_if_it_is_the_drivers(void)
{
    fake.in_handle = &in_driver;
    expect_address(&in_driver, look_up(HANDLE, "cuZoom", NULL));
    TEST_ASSERT_EQUAL_STRING("cuZoom", fake.unknown);
    TEST_ASSERT_GREATER_THAN_INT(0, fake.errors_cleared);
    expect_address(&in_driver, look_up(HANDLE, "cuAbsorb", NULL));
    TEST_ASSERT_EQUAL_STRING("cuAbsorb", fake.unknown);

    fake.is_own = false; /* we are bound, and the address is another library's */
    expect_address(&in_driver, look_up(HANDLE, "cuZoom", NULL));
    TEST_ASSERT_EQUAL_STRING("", fake.unknown);
    fake.is_own = true;
    fake.is_driver = false; /* we are not bound */
    expect_address(&in_driver, look_up(HANDLE, "cuZoom", NULL));
    TEST_ASSERT_EQUAL_STRING("", fake.unknown);
    fake.in_handle = NULL; /* many programs try names that do not exist */
    expect_passed_on(look_up(HANDLE, "cuZoom", NULL));
    TEST_ASSERT_EQUAL_STRING("", fake.unknown);
}

static void test_an_unknown_entry_point_is_noticed_whoever_looks_it_up(void)
{
    void *const handles[] = {RTLD_DEFAULT, RTLD_NEXT};

    for (int i = 0; i < 2; i++) {
        fake.driver_defines = false;
        expect_passed_on(look_up(handles[i], "cuZoom", NULL));
        TEST_ASSERT_EQUAL_STRING("", fake.unknown);
        fake.driver_defines = true;
        expect_passed_on(look_up(handles[i], "cuZoom", NULL));
        TEST_ASSERT_EQUAL_STRING("cuZoom", fake.unknown);
    }
    fake.unknown[0] = '\0';
    fake.stopped = fake.asks_always = 0;
    resolve_passed_on("cuQuiet");
    TEST_ASSERT_EQUAL_STRING("", fake.unknown);
    TEST_ASSERT_EQUAL_INT(0, fake.stopped + fake.asks_always);
    resolve_passed_on("cuZoom");
    TEST_ASSERT_EQUAL_STRING("cuZoom", fake.unknown);
    TEST_ASSERT_EQUAL_INT(1, fake.stopped);
    TEST_ASSERT_EQUAL_INT(1, fake.asks_always);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_names_of_others_are_passed_on_at_once);
    RUN_TEST(test_a_handle_gives_the_hook_of_the_drivers_function);
    RUN_TEST(test_a_library_with_a_function_of_that_name_keeps_it);
    RUN_TEST(test_the_handle_of_the_program_gives_what_comes_after_us);
    RUN_TEST(test_a_version_is_asked_for);
    RUN_TEST(test_the_default_is_ours_unless_the_program_defines_it);
    RUN_TEST(test_a_driver_loaded_for_one_library_is_found_by_that_library_alone);
    RUN_TEST(test_the_next_one_is_the_callers_next);
    RUN_TEST(test_an_unknown_entry_point_counts_if_it_is_the_drivers);
    RUN_TEST(test_an_unknown_entry_point_is_noticed_whoever_looks_it_up);
    return UNITY_END();
}

/* nudge: when a Python in this process is asked to empty its cache, and what counts as given. Python, torch,
 * pools and driver are the test's own. Each case is a process of its own, because Python is looked up once.
 */
#include "interpose/nudge.h"

#include <pthread.h>
#include <string.h>
#include <unity.h>

#include "apart.h"
#include "interpose/account/device.h"
#include "interpose/base/clock.h"
#include "interpose/driver/real.h"
#include "interpose/library.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pools.h"
#include "log_fake.h"

#define MIB  (UINT64_C(1) << 20)
#define GIVE (64 * MIB)
#define LONG (UINT64_C(1) << 40) /* bytes for which the call waits ten seconds */

static struct options options = {.nudge = true};
static struct device device;

static struct fake {
    const char *missing, *missing_too; /* names that this Python does not have */
    bool idles;                        /* the main thread runs no pending call */
    bool is_full;                      /* no pending call is taken */
    bool captures, torch_captures;
    int finalizing;
    uint64_t cached, free_bytes; /* by torch; on the card */
    int asked, emptied, errors, references;
} fake;

/* ---- Python and torch ---- */

typedef struct python_object object;

static char modules, torch, cuda, functions[3], truths[2];
static const char *const names[] = {"is_initialized", "is_current_stream_capturing", "empty_cache"};

static object *as_object(char *place)
{
    return (object *)(void *)place;
}

static int (*pending_call)(void *);

static void *run_pending(void *unused)
{
    pending_call(NULL);
    return unused;
}

static int add_pending(int (*call)(void *), void *argument)
{
    pthread_t thread;

    TEST_ASSERT_NULL(argument);
    fake.asked++;
    if (fake.is_full)
        return -1;
    pending_call = call;
    if (!fake.idles && pthread_create(&thread, NULL, run_pending, NULL) == 0)
        pthread_detach(thread);
    return 0;
}

static int is_initialized(void)
{
    return 1;
}

static int is_finalizing(void)
{
    return fake.finalizing;
}

static object *get_modules(void)
{
    return as_object(&modules);
}

static object *get_item(object *dictionary, const char *key)
{
    TEST_ASSERT_EQUAL_PTR(&modules, dictionary);
    return strcmp(key, "torch") ? NULL : as_object(&torch);
}

static object *get_attribute(object *of, const char *name)
{
    fake.references++;
    if (of == as_object(&torch) && !strcmp(name, "cuda"))
        return as_object(&cuda);
    for (int i = 0; i < 3; i++) {
        if (of == as_object(&cuda) && !strcmp(name, names[i]))
            return as_object(&functions[i]);
    }
    fake.references--;
    return NULL;
}

static object *call_object(object *callable, object *arguments)
{
    TEST_ASSERT_NULL(arguments);
    fake.references++;
    if (callable == as_object(&functions[1]))
        return as_object(&truths[fake.torch_captures]);
    if (callable == as_object(&functions[2])) {
        fake.emptied++;
        fake.free_bytes += fake.cached;
        fake.cached = 0;
    }
    return as_object(&truths[1]);
}

static int is_true(object *value)
{
    return value == as_object(&truths[1]);
}

static void release(object *value)
{
    (void)value;
    fake.references--;
}

static void clear_error(void)
{
    fake.errors++;
}

void *real_symbol(void *handle, const char *name)
{
    const struct {
        const char *name;
        void *function;
    } symbols[] = {
        {"Py_IsInitialized", (void *)is_initialized},
        {"Py_IsFinalizing", (void *)is_finalizing},
        {"_Py_IsFinalizing", (void *)is_finalizing},
        {"PyImport_GetModuleDict", (void *)get_modules},
        {"PyDict_GetItemString", (void *)get_item},
        {"PyObject_GetAttrString", (void *)get_attribute},
        {"PyObject_CallObject", (void *)call_object},
        {"PyObject_IsTrue", (void *)is_true},
        {"Py_DecRef", (void *)release},
        {"PyErr_Clear", (void *)clear_error},
        {"Py_AddPendingCall", (void *)add_pending},
    };
    void *found = NULL;

    (void)handle;
    for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
        if (!strcmp(name, symbols[i].name) && (!fake.missing || strcmp(name, fake.missing)) &&
            (!fake.missing_too || strcmp(name, fake.missing_too)))
            found = symbols[i].function;
    }
    return found;
}

/* ---- the rest of the library ---- */

const struct options *library_options(void)
{
    return &options;
}

static atomic_int mode = LIBRARY_ON;
_Atomic(atomic_int *) library_state = &mode;

enum library_mode library_begin(void)
{
    return LIBRARY_ON;
}

bool capture_any(void)
{
    return fake.captures;
}

struct device *device_listed(CUdevice ordinal)
{
    TEST_ASSERT_EQUAL_INT(3, ordinal);
    return &device;
}

int device_free_bytes(struct device *of, uint64_t *bytes)
{
    (void)of;
    *bytes = fake.free_bytes;
    return 0;
}

uint64_t pools_idle_on(CUdevice ordinal)
{
    (void)ordinal;
    return 0;
}

void setUp(void)
{
    fake = (struct fake){.cached = GIVE, .free_bytes = 10 * MIB};
    device.ordinal = 3;
    log_fake_clear();
}

void tearDown(void) {}

/* ---- promises ---- */

static void test_the_first_call_already_empties_the_cache_and_says_so_once(void)
{
    TEST_ASSERT_TRUE(nudge_python(3, LONG));
    TEST_ASSERT_EQUAL_INT(1, fake.emptied);
    TEST_ASSERT_NOT_NULL(strstr(log_fake_errors, "freed 64M"));
    TEST_ASSERT_EQUAL_INT(0, fake.references);
    log_fake_clear();
    fake.cached = GIVE;
    TEST_ASSERT_TRUE_MESSAGE(nudge_python(3, LONG), "no rest after a call that brought something");
    TEST_ASSERT_EQUAL_STRING("", log_fake_errors);
}

static void test_an_older_python_is_asked_too_and_not_at_its_end(void)
{
    fake.missing = "Py_IsFinalizing";
    TEST_ASSERT_TRUE(nudge_python(3, LONG));
    fake.finalizing = 1;
    TEST_ASSERT_FALSE(nudge_python(3, LONG));
    TEST_ASSERT_EQUAL_INT(1, fake.asked);
}

static void test_the_oldest_python_cannot_tell_its_end(void)
{
    fake.missing = "Py_IsFinalizing";
    fake.missing_too = "_Py_IsFinalizing";
    TEST_ASSERT_TRUE(nudge_python(3, LONG));
}

static void test_a_program_without_python_is_not_waited_for(void)
{
    const uint64_t began = clock_ms();

    fake.missing = "Py_IsInitialized";
    TEST_ASSERT_FALSE(nudge_python(3, LONG));
    TEST_ASSERT_LESS_THAN_UINT64(NUDGE_MS_PER_GIB * 1024, clock_ms() - began);
    TEST_ASSERT_EQUAL_INT(0, fake.asked);
}

static void test_nothing_is_emptied_without_the_option_or_beside_a_capture(void)
{
    options.nudge = false;
    TEST_ASSERT_FALSE(nudge_python(3, LONG));
    options.nudge = fake.captures = true;
    TEST_ASSERT_FALSE(nudge_python(3, LONG));
    TEST_ASSERT_EQUAL_INT(0, fake.asked);
    fake.captures = false;
    fake.torch_captures = true;
    TEST_ASSERT_FALSE(nudge_python(3, LONG));
    TEST_ASSERT_EQUAL_INT(1, fake.asked);
    TEST_ASSERT_EQUAL_INT(0, fake.emptied);
    TEST_ASSERT_EQUAL_INT(0, fake.references);
}

static void test_a_cache_that_held_nothing_is_left_alone_for_a_while(void)
{
    fake.cached = 0;
    TEST_ASSERT_FALSE(nudge_python(3, LONG));
    TEST_ASSERT_EQUAL_INT(1, fake.emptied);
    fake.cached = GIVE;
    TEST_ASSERT_FALSE(nudge_python(3, LONG));
    TEST_ASSERT_EQUAL_INT(1, fake.asked);
}

static void test_a_busy_python_is_asked_once_and_serves_who_waits_when_it_does(void)
{
    fake.idles = true;
    TEST_ASSERT_FALSE(nudge_python(3, 0));
    TEST_ASSERT_FALSE(nudge_python(3, 0));
    TEST_ASSERT_EQUAL_INT(1, fake.asked);
    pending_call(NULL);
    fake.idles = false;
    fake.cached = GIVE;
    TEST_ASSERT_TRUE(nudge_python(3, LONG));
    TEST_ASSERT_EQUAL_INT(2, fake.asked);
}

static void test_a_python_that_takes_no_call_is_asked_again_next_time(void)
{
    fake.is_full = true;
    TEST_ASSERT_FALSE(nudge_python(3, LONG));
    fake.is_full = false;
    TEST_ASSERT_TRUE(nudge_python(3, LONG));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_APART(test_the_first_call_already_empties_the_cache_and_says_so_once);
    RUN_APART(test_an_older_python_is_asked_too_and_not_at_its_end);
    RUN_APART(test_the_oldest_python_cannot_tell_its_end);
    RUN_APART(test_a_program_without_python_is_not_waited_for);
    RUN_APART(test_nothing_is_emptied_without_the_option_or_beside_a_capture);
    RUN_APART(test_a_cache_that_held_nothing_is_left_alone_for_a_while);
    RUN_APART(test_a_busy_python_is_asked_once_and_serves_who_waits_when_it_does);
    RUN_APART(test_a_python_that_takes_no_call_is_asked_again_next_time);
    return UNITY_END();
}

/* nudge: see nudge.h. */
#include "interpose/nudge.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "interpose/account/device.h"
#include "interpose/base/clock.h"
#include "interpose/base/sums.h"
#include "interpose/driver/real.h"
#include "interpose/library.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pools.h"
#include "interpose/settings/log.h"

#define REST_MS 1000 /* after a nudge that brought nothing */

typedef struct python_object object; /* PyObject */

/* Python's stable interface, found in the program. All that take or return objects need the interpreter's
 * lock, which a pending call has. */
static struct {
    int (*add_pending)(int (*call)(void *), void *argument);
    int (*is_initialized)(void);
    int (*is_finalizing)(void);                           /* NULL: older than 3.7 */
    object *(*modules)(void);                             /* sys.modules, borrowed */
    object *(*item)(object *dictionary, const char *key); /* borrowed, or NULL without an error */
    object *(*attribute)(object *of, const char *name);
    object *(*call)(object *callable, object *arguments);
    int (*is_true)(object *value);
    void (*release)(object *value);
    void (*clear_error)(void);
} python;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;
static unsigned finished;    /* calls that have ended; guarded by lock */
static bool pending;         /* a call has been asked for and has not ended; guarded by lock */
static uint64_t freed;       /* by the last one; guarded by lock */
static uint64_t rests_until; /* clock_ms; guarded by lock */
static atomic_int card;      /* on which memory is short */

/* Finds Python in the program. Returns false if it is not there. */
static bool find_python(void)
{
    const struct {
        void **to;
        const char *name;
    } wanted[] = {{(void **)&python.is_initialized, "Py_IsInitialized"},
                  {(void **)&python.modules, "PyImport_GetModuleDict"},
                  {(void **)&python.item, "PyDict_GetItemString"},
                  {(void **)&python.attribute, "PyObject_GetAttrString"},
                  {(void **)&python.call, "PyObject_CallObject"},
                  {(void **)&python.is_true, "PyObject_IsTrue"},
                  {(void **)&python.release, "Py_DecRef"},
                  {(void **)&python.clear_error, "PyErr_Clear"},
                  {(void **)&python.add_pending, "Py_AddPendingCall"}};

    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
        if (!(*wanted[i].to = real_symbol(RTLD_DEFAULT, wanted[i].name)))
            return false;
    }
    *(void **)&python.is_finalizing = real_symbol(RTLD_DEFAULT, "Py_IsFinalizing");
    if (!python.is_finalizing)
        *(void **)&python.is_finalizing = real_symbol(RTLD_DEFAULT, "_Py_IsFinalizing");
    return true;
}

/* Returns false if the interpreter has not started or is ending. Needs no lock of Python's. */
static bool is_running(void)
{
    return python.is_initialized() && !(python.is_finalizing && python.is_finalizing());
}

/* Calls a function of torch.cuda. Returns its truth, or -1 if it could not be called. */
static int call_torch(const char *name)
{
    object *torch = python.item(python.modules(), "torch"), *cuda = NULL, *function = NULL, *result = NULL;
    int truth = -1;

    if (torch && (cuda = python.attribute(torch, "cuda")) && (function = python.attribute(cuda, name)) &&
        (result = python.call(function, NULL)))
        truth = python.is_true(result);
    if (result)
        python.release(result);
    if (function)
        python.release(function);
    if (cuda)
        python.release(cuda);
    if (truth < 0)
        python.clear_error();
    return truth;
}

/* Returns what is free on the card or idle in our pools. */
static uint64_t spare_bytes(void)
{
    struct device *device = device_listed(atomic_load(&card));
    uint64_t bytes = 0;

    if (!device || device_free_bytes(device, &bytes))
        bytes = 0;
    return bytes + (device ? pools_idle_on(device->ordinal) : 0);
}

static void say(uint64_t bytes)
{
    char text[SIZE_TEXT];

    LOG_ERROR_ONCE(
        "nudge: another process needs memory: torch.cuda.empty_cache() was called here and freed %s "
        "(printed only once)",
        bytes ? size_format(bytes, text) : "nothing");
}

/* Runs in Python's main thread, between two instructions of the program. */
static int empty_cache(void *unused)
{
    uint64_t bytes = 0;

    (void)unused;
    if (is_running() && library_mode() == LIBRARY_ON && !capture_any() && call_torch("is_initialized") == 1 &&
        call_torch("is_current_stream_capturing") == 0) {
        const uint64_t before = spare_bytes();

        call_torch("empty_cache");
        bytes = sums_minus(spare_bytes(), before);
        say(bytes);
    }
    pthread_mutex_lock(&lock);
    freed = bytes;
    rests_until = clock_ms() + (bytes ? 0 : REST_MS);
    pending = false;
    finished++;
    pthread_cond_broadcast(&done);
    pthread_mutex_unlock(&lock);
    return 0;
}

/* Asks for a call unless one is pending, with the lock. Returns false if there is no use in waiting. */
static bool ask_python(void)
{
    if (pending)
        return true;
    if (clock_ms() < rests_until || !is_running() || python.add_pending(empty_cache, NULL))
        return false;
    pending = true;
    return true;
}

bool nudge_python(int ordinal, uint64_t bytes)
{
    const uint64_t ms = NUDGE_MS + (sums_smaller(bytes, UINT64_C(1) << 40) >> 30) * NUDGE_MS_PER_GIB;
    const struct timespec until = clock_after(ms * 1000000U);
    bool came = false;

    if (!library_options()->nudge || capture_any())
        return false;
    pthread_mutex_lock(&lock);
    atomic_store(&card, ordinal);
    const unsigned before = finished;
    if ((python.add_pending || find_python()) && ask_python()) {
        while (finished == before && pthread_cond_timedwait(&done, &lock, &until) == 0)
            ;
        came = finished != before && freed != 0;
    }
    pthread_mutex_unlock(&lock);
    return came;
}

/* nvml: see nvml.h. Owns publish_lock, held only while the table is copied. Never held while the library is
 * loaded: a constructor inside dlopen may look up one of our names, and two threads would wait for each
 * other. */
#include "interpose/driver/nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "interpose/base/clock.h"
#include "interpose/driver/real.h"

struct nvml_table nvml;

static pthread_mutex_t publish_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool opened;

/* Loading takes 15 ms (measured). A thread that takes this long is assumed to wait for the exit itself. */
#define END_WAIT_MS 3000

static atomic_int loading;     /* threads that load the library now */
static atomic_bool ended;      /* no thread may begin to load it */
static _Thread_local int mine; /* this thread's part of `loading` */
static pthread_once_t forks = PTHREAD_ONCE_INIT;

#define FIND(member, name) (table->member = (__typeof__(table->member))real_symbol(library, name))

static bool fill(struct nvml_table *table, void *library)
{
    FIND(init, "nvmlInit_v2");
    FIND(count, "nvmlDeviceGetCount_v2");
    FIND(handle_by_index, "nvmlDeviceGetHandleByIndex_v2");
    FIND(handle_by_uuid, "nvmlDeviceGetHandleByUUID");
    FIND(uuid, "nvmlDeviceGetUUID");
    FIND(index, "nvmlDeviceGetIndex");
    if (!FIND(processes, "nvmlDeviceGetComputeRunningProcesses_v3"))
        FIND(processes, "nvmlDeviceGetComputeRunningProcesses_v2"); /* the same, before driver 510 */
    FIND(memory, "nvmlDeviceGetMemoryInfo");
    FIND(memory_v2, "nvmlDeviceGetMemoryInfo_v2");
    return table->init && table->handle_by_uuid && table->uuid && table->processes && table->memory;
}

/* A child has only the thread that forked. */
static void after_fork_child(void)
{
    atomic_store(&loading, mine);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork_child);
}

/* Returns true if the dynamic loader may be called. leave_loader must follow in either case. */
static bool enter_loader(void)
{
    Dl_info unused;

    pthread_once(&forks, watch_forks);
    /* Waits for the loader's lock before it counts itself: the thread that holds the lock may be about to
     * call exit in a constructor, and must not wait for us. */
    dladdr((const void *)&nvml, &unused);
    mine++;
    atomic_fetch_add(&loading, 1);
    return !atomic_load(&ended);
}

static void leave_loader(void)
{
    atomic_fetch_sub(&loading, 1);
    mine--;
}

void nvml_end(void)
{
    const uint64_t until = clock_ms() + END_WAIT_MS;

    atomic_store(&ended, true);
    while (atomic_load(&loading) > mine && clock_ms() < until)
        clock_sleep(1000000);
}

/* Two threads may do this at the same time: both find the same library. */
static bool load(struct nvml_table *table)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);

    if (library && fill(table, library))
        return true;
    if (library)
        dlclose(library);
    return false;
}

bool nvml_open(void)
{
    struct nvml_table table;

    if (atomic_load_explicit(&opened, memory_order_acquire))
        return true;
    const bool loaded = enter_loader() && load(&table);
    leave_loader();
    if (!loaded)
        return false;
    pthread_mutex_lock(&publish_lock);
    if (!atomic_load_explicit(&opened, memory_order_relaxed)) {
        nvml = table;
        atomic_store_explicit(&opened, true, memory_order_release);
    }
    pthread_mutex_unlock(&publish_lock);
    return true;
}

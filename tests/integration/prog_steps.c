/* prog_steps: a CUDA program written on its command line: prog_steps WAY STEP... Each step is one word with
 * its arguments after colons ("alloc:100M", "array:1024:1024") and prints one line: the step, the driver's
 * answer, figures. Figures are whole MiB. WAY is how it reaches the driver (prog_driver.h). Knows nothing of
 * gpucap. */
#include "prog_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS_MAX 4096
#define ARGS_MAX   5
#define MIB        (1024 * 1024)

enum kind { LINEAR, ASYNC, HANDLE, ARRAY, MIPMAP };

static struct {
    enum kind kind;
    uint64_t value;
} blocks[BLOCKS_MAX];
static int count;

/* ---- taking and giving back ---- */

static CUresult keep(CUresult result, enum kind kind, uint64_t value)
{
    if (result == CUDA_SUCCESS && count < BLOCKS_MAX) {
        blocks[count].kind = kind;
        blocks[count++].value = value;
    }
    return result;
}

static CUresult take_array(size_t width, size_t height)
{
    CUDA_ARRAY_DESCRIPTOR d = {
        .Width = width, .Height = height, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUarray array = NULL;
    CUresult result = cu.cuArrayCreate(&array, &d);

    return keep(result, ARRAY, (uintptr_t)array);
}

static CUresult take_array3d(size_t width, size_t height, size_t depth)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {
        .Width = width, .Height = height, .Depth = depth, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUarray array = NULL;
    CUresult result = cu.cuArray3DCreate(&array, &d);

    return keep(result, ARRAY, (uintptr_t)array);
}

static CUresult take_mipmap(size_t width, size_t height, size_t levels)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {
        .Width = width, .Height = height, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUmipmappedArray array = NULL;
    CUresult result = cu.cuMipmappedArrayCreate(&array, &d, (unsigned)levels);

    return keep(result, MIPMAP, (uintptr_t)array);
}

static CUresult take_handle(size_t bytes, int device)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = cu.cuMemCreate(&handle, bytes, &properties, 0);

    return keep(result, HANDLE, handle);
}

/* One block of a kind. The arguments are those of the step. */
static CUresult take(const char *kind, const uint64_t *a)
{
    CUdeviceptr address = 0;
    size_t pitch;
    CUresult result;

    if (!strcmp(kind, "create"))
        return take_handle(a[0], (int)a[1]);
    if (!strcmp(kind, "array"))
        return take_array(a[0], a[1]);
    if (!strcmp(kind, "array3d"))
        return take_array3d(a[0], a[1], a[2]);
    if (!strcmp(kind, "mipmap"))
        return take_mipmap(a[0], a[1], a[2]);
    if (!strcmp(kind, "async")) {
        result = cu.cuMemAllocAsync(&address, a[0], NULL);
        return keep(result, ASYNC, address);
    }
    if (!strcmp(kind, "pitch"))
        result = cu.cuMemAllocPitch(&address, &pitch, a[0], a[1], 4);
    else if (!strcmp(kind, "managed"))
        result = cu.cuMemAllocManaged(&address, a[0], CU_MEM_ATTACH_GLOBAL);
    else
        result = cu.cuMemAlloc(&address, a[0]);
    return keep(result, LINEAR, address);
}

struct taking {
    CUcontext context;
    const char *kind;
    const uint64_t *a;
};

static void *take_and_die(void *argument)
{
    const struct taking *taking = argument;

    cu.cuCtxSetCurrent(taking->context);
    take(taking->kind, taking->a);
    pthread_testcancel();
    return NULL;
}

/* Takes a block in a thread of its own. Prints 1 if that thread was cancelled. */
static void step_lost(const char *name, const char *kind, const uint64_t *a)
{
    struct taking taking = {.kind = kind, .a = a};
    pthread_t thread;
    void *end = NULL;

    cu.cuCtxGetCurrent(&taking.context);
    if (pthread_create(&thread, NULL, take_and_die, &taking) == 0)
        pthread_join(thread, &end);
    printf("%s %d\n", name, end == PTHREAD_CANCELED);
}

static CUresult driver_frees(enum kind kind, uint64_t value)
{
    switch (kind) {
    case ASYNC:
        return cu.cuMemFreeAsync(value, NULL);
    case HANDLE:
        return cu.cuMemRelease(value);
    case ARRAY:
        return cu.cuArrayDestroy((CUarray)(uintptr_t)value);
    case MIPMAP:
        return cu.cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)value);
    default:
        return cu.cuMemFree(value);
    }
}

/* Frees the block that was allocated last; keeps it if the driver refuses. */
static CUresult give_back(void)
{
    CUresult result = driver_frees(blocks[count - 1].kind, blocks[count - 1].value);

    count -= result == CUDA_SUCCESS;
    return result;
}

/* ---- NVML ---- */

struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
#define MEMORY_V2 ((unsigned)sizeof(struct memory_v2) | 2u << 24) /* nvmlMemory_v2 */

static struct {
    int (*init)(void);
    int (*handle)(unsigned index, void **device);
    int (*processes)(void *device, unsigned *count, struct process *list);
    int (*memory)(void *device, struct memory *memory);
    int (*memory_v2)(void *device, struct memory_v2 *memory);
} nvml;

static int open_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);

    if (!library || nvml.memory)
        return library ? 0 : -1;
    nvml.init = (int (*)(void))dlsym(library, "nvmlInit_v2");
    nvml.handle = (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    nvml.processes = (int (*)(void *, unsigned *, struct process *))dlsym(
        library, "nvmlDeviceGetComputeRunningProcesses_v3");
    nvml.memory = (int (*)(void *, struct memory *))dlsym(library, "nvmlDeviceGetMemoryInfo");
    nvml.memory_v2 = (int (*)(void *, struct memory_v2 *))dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
    return nvml.init();
}

/* This process's bytes on a card. */
static uint64_t held_on(unsigned index)
{
    struct process list[64];
    unsigned n = 64;
    void *device;
    uint64_t bytes = 0;

    if (open_nvml() || nvml.handle(index, &device) || nvml.processes(device, &n, list))
        return UINT64_MAX;
    for (unsigned i = 0; i < n; i++)
        bytes += list[i].pid == (unsigned)getpid() ? list[i].used : 0;
    return bytes;
}

static _Atomic uint64_t peak;
static atomic_bool watching;
static pthread_t watcher;

static void look(void)
{
    uint64_t now = held_on(0), before = atomic_load(&peak);

    while (now > before && !atomic_compare_exchange_weak(&peak, &before, now))
        continue;
}

static void *watch(void *unused)
{
    while (atomic_load(&watching)) {
        look();
        sched_yield();
    }
    return unused;
}

/* ---- threads that race ---- */

struct racer {
    CUcontext context;
    unsigned seed;
    uint64_t bytes;
    int wrong; /* answers other than success and out of memory */
};

static void *race(void *argument)
{
    struct racer *r = argument;
    CUdeviceptr mine[8] = {0};

    r->wrong += cu.cuCtxSetCurrent(r->context) != CUDA_SUCCESS;
    for (int i = 0; i < 150; i++) {
        CUdeviceptr *block = &mine[rand_r(&r->seed) % 8];
        CUresult result;

        if (*block) {
            result = cu.cuMemFree(*block);
            *block = 0;
        } else {
            result = cu.cuMemAlloc(block, r->bytes * (1 + (unsigned)rand_r(&r->seed) % 4));
            if (result == CUDA_ERROR_OUT_OF_MEMORY)
                result = CUDA_SUCCESS;
        }
        r->wrong += result != CUDA_SUCCESS;
    }
    for (int i = 0; i < 8; i++)
        r->wrong += mine[i] && cu.cuMemFree(mine[i]) != CUDA_SUCCESS;
    return NULL;
}

static int race_all(uint64_t threads, uint64_t bytes)
{
    pthread_t ids[64];
    struct racer racers[64];
    CUcontext context = NULL;
    int wrong = 0;

    cu.cuCtxGetCurrent(&context);
    for (uint64_t i = 0; i < threads; i++) {
        racers[i] = (struct racer){.context = context, .seed = (unsigned)i + 1, .bytes = bytes};
        pthread_create(&ids[i], NULL, race, &racers[i]);
    }
    for (uint64_t i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        wrong += racers[i].wrong;
    }
    return wrong;
}

/* ---- steps ---- */

static unsigned long long mib(uint64_t bytes)
{
    return bytes / MIB;
}

static void step_info(const char *name)
{
    size_t free_bytes = 0, total = 0;
    int rc = cu.cuMemGetInfo(&free_bytes, &total);

    printf("%s %d free=%llu total=%llu\n", name, rc, mib(free_bytes), mib(total));
}

static void step_info_null(const char *name)
{
    size_t free_bytes = 0, total = 0;
    int a = cu.cuMemGetInfo(NULL, &total), b = cu.cuMemGetInfo(&free_bytes, NULL),
        c = cu.cuMemGetInfo(NULL, NULL);

    printf("%s %d %d %d\n", name, a, b, c);
}

static void step_nvml(const char *name, unsigned index)
{
    struct memory m = {0};
    void *device;
    int rc = open_nvml() || nvml.handle(index, &device) ? -1 : nvml.memory(device, &m);

    printf("%s %d total=%llu free=%llu used=%llu\n", name, rc, mib(m.total), mib(m.free), mib(m.used));
}

static void step_nvml_v2(const char *name, unsigned index)
{
    struct memory_v2 m = {.version = MEMORY_V2};
    void *device;
    int rc = open_nvml() || nvml.handle(index, &device) ? -1 : nvml.memory_v2(device, &m);

    printf("%s %d total=%llu reserved=%llu free=%llu used=%llu\n", name, rc, mib(m.total), mib(m.reserved),
           mib(m.free), mib(m.used));
}

static void step_greedy(const char *name)
{
    size_t free_bytes = 0, total;
    uint64_t arguments[1];

    cu.cuMemGetInfo(&free_bytes, &total);
    arguments[0] = free_bytes;
    printf("%s %d\n", name, (int)take("alloc", arguments));
}

/* Takes blocks of a kind until the driver says no. */
static void step_fill(const char *name, const char *kind, const uint64_t *arguments)
{
    const int before = count;
    CUresult result;

    while ((result = take(kind, arguments)) == CUDA_SUCCESS && count < BLOCKS_MAX)
        continue;
    printf("%s %s %d n=%d\n", name, kind, (int)result, count - before);
}

static void step_free_all(const char *name)
{
    int failed = 0, n = count;

    while (count && !failed)
        failed += give_back() != CUDA_SUCCESS;
    cu.cuCtxSynchronize();
    printf("%s n=%d failed=%d\n", name, n, failed);
}

static CUresult make_context(uint64_t device)
{
    CUcontext context = NULL;

    return cu.cuCtxCreate(&context, 0, (CUdevice)device);
}

static CUresult use_primary(uint64_t device)
{
    CUcontext context = NULL;
    CUresult result = cu.cuDevicePrimaryCtxRetain(&context, (CUdevice)device);

    if (result != CUDA_SUCCESS)
        return context ? CUDA_ERROR_UNKNOWN : result; /* a refused context leaves no handle */
    return cu.cuCtxSetCurrent(context);
}

static CUresult end_current(void)
{
    CUcontext context = NULL;

    cu.cuCtxGetCurrent(&context);
    count = 0;
    return cu.cuCtxDestroy(context);
}

static CUresult reset_primary(uint64_t device)
{
    count = 0;
    return cu.cuDevicePrimaryCtxReset((CUdevice)device);
}

static CUresult make_streams(uint64_t n)
{
    CUresult result = CUDA_SUCCESS;

    for (uint64_t i = 0; i < n && result == CUDA_SUCCESS; i++) {
        CUstream stream;

        result = cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    }
    return result;
}

static void sleep_ms(void *ms)
{
    usleep((useconds_t)(uintptr_t)ms * 1000);
}

/* The steps whose line is just the driver's answer. False: not one of them. */
static bool plain_step(const char *name, const uint64_t *a, CUresult *result)
{
    if (!strcmp(name, "init"))
        *result = cu.cuInit(0);
    else if (!strcmp(name, "ctx"))
        *result = make_context(a[0]);
    else if (!strcmp(name, "primary"))
        *result = use_primary(a[0]);
    else if (!strcmp(name, "destroy"))
        *result = end_current();
    else if (!strcmp(name, "reset"))
        *result = reset_primary(a[0]);
    else if (!strcmp(name, "release"))
        *result = cu.cuDevicePrimaryCtxRelease((CUdevice)a[0]);
    else if (!strcmp(name, "drop"))
        *result = cu.cuCtxSetCurrent(NULL);
    else if (!strcmp(name, "sync"))
        *result = cu.cuCtxSynchronize();
    else if (!strcmp(name, "stack"))
        *result = cu.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, a[0]);
    else if (!strcmp(name, "streams"))
        *result = make_streams(a[0]);
    else if (!strcmp(name, "busy"))
        *result = cu.cuLaunchHostFunc(NULL, sleep_ms, (void *)(uintptr_t)a[0]);
    else if (!strcmp(name, "free"))
        *result = count ? give_back() : CUDA_ERROR_UNKNOWN;
    else
        return false;
    return true;
}

/* The steps that print more. False: not one of them. */
static bool telling_step(const char *name, const uint64_t *a, const char *first)
{
    if (!strcmp(name, "info"))
        step_info(name);
    else if (!strcmp(name, "info-null"))
        step_info_null(name);
    else if (!strcmp(name, "nvml"))
        step_nvml(name, (unsigned)a[0]);
    else if (!strcmp(name, "nvml-v2"))
        step_nvml_v2(name, (unsigned)a[0]);
    else if (!strcmp(name, "held"))
        printf("%s %llu\n", name, mib(held_on((unsigned)a[0])));
    else if (!strcmp(name, "greedy"))
        step_greedy(name);
    else if (!strcmp(name, "fill"))
        step_fill(name, first, a + 1);
    else if (!strcmp(name, "lost"))
        step_lost(name, first, a + 1);
    else if (!strcmp(name, "free-all"))
        step_free_all(name);
    else if (!strcmp(name, "race"))
        printf("%s wrong=%d\n", name, race_all(a[0], a[1]));
    else if (!strcmp(name, "leaks"))
        printf("%s %lu\n", name, prog_driver_leaks());
    else if (!strcmp(name, "fault"))
        printf("%s %d\n", name, prog_driver_fault(first));
    else
        return false;
    return true;
}

static void step_watch(bool start)
{
    if (start) {
        open_nvml(); /* before a second thread could */
        atomic_store(&watching, true);
        pthread_create(&watcher, NULL, watch, NULL);
        return;
    }
    atomic_store(&watching, false);
    pthread_join(watcher, NULL);
    printf("peak %llu\n", mib(atomic_load(&peak) + MIB - 1));
}

static uint64_t read_size(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);

    return *end == 'G' ? value << 30 : *end == 'M' ? value << 20 : *end == 'K' ? value << 10 : value;
}

/* Cuts "step:argument:argument"; returns how many words. A fault script is one argument, with colons of its
 * own. */
static int split(char *text, char *words[ARGS_MAX + 1])
{
    const bool script = !strncmp(text, "fault:", 6);
    int n = 1;

    words[0] = text;
    for (char *colon = strchr(text, ':'); colon && n <= (script ? 1 : ARGS_MAX);
         colon = strchr(words[n - 1], ':')) {
        *colon = '\0';
        words[n++] = colon + 1;
    }
    return n;
}

static void run_step(char *text)
{
    uint64_t a[ARGS_MAX] = {0};
    char *words[ARGS_MAX + 1];
    const int n = split(text, words);
    CUresult result;
    size_t total = 0;

    for (int i = 1; i < n; i++)
        a[i - 1] = read_size(words[i]);
    if (plain_step(text, a, &result)) {
        printf("%s %d\n", text, (int)result);
    } else if (!strcmp(text, "total")) {
        result = cu.cuDeviceTotalMem(&total, (CUdevice)a[0]);
        printf("%s %d %llu\n", text, (int)result, mib(total));
    } else if (!strcmp(text, "watch") || !strcmp(text, "peak")) {
        step_watch(*text == 'w');
    } else if (!telling_step(text, a, n > 1 ? words[1] : "")) {
        printf("%s %d\n", text, (int)take(text, a));
    }
    if (atomic_load(&watching))
        look();
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc < 2 || !prog_driver_open(argv[1]))
        return 3;
    for (int i = 2; i < argc; i++)
        run_step(argv[i]);
    return 0;
}

/* prog_race: threads that allocate and free every kind of memory at once, interrupted by signals of a timer:
 * prog_race WAY THREADS ROUNDS KINDS. KINDS names what is raced: l(inear) a(sync) h(andles) t(extures)
 * s(treams). Prints how many answers were wrong, the most that NVML ever showed, and what is left at the end.
 */
#include "prog_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define MIB         (1024 * 1024)
#define THREADS_MAX 32
#define HELD        8

struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

static int (*processes)(void *device, unsigned *count, struct process *list);
static void *card;
static atomic_bool racing = true;
static _Atomic uint64_t peak;
static atomic_int wrong;
static int last_wrong;
static CUcontext context;
static const char *kinds;
static int rounds;

static bool open_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);

    if (!library)
        return false;
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*handle)(unsigned, void **) =
        (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    processes = (int (*)(void *, unsigned *, struct process *))dlsym(
        library, "nvmlDeviceGetComputeRunningProcesses_v3");
    return init && handle && processes && init() == 0 && handle(0, &card) == 0;
}

static void *watch(void *unused)
{
    while (atomic_load(&racing)) {
        struct process list[64];
        unsigned n = 64;
        uint64_t sum = 0;

        if (processes(card, &n, list))
            continue;
        for (unsigned i = 0; i < n; i++)
            sum += list[i].pid == (unsigned)getpid() ? list[i].used : 0;
        if (sum > atomic_load(&peak))
            atomic_store(&peak, sum);
    }
    return unused;
}

/* A thing that one thread holds. */
struct thing {
    char kind; /* 0: nothing */
    uint64_t value;
};

static CUresult take_handle(uint64_t *value, size_t bytes)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = cu.cuMemCreate(&handle, bytes, &properties, 0);

    *value = handle;
    return result;
}

static CUresult take_array(uint64_t *value, size_t bytes)
{
    CUDA_ARRAY_DESCRIPTOR d = {
        .Width = 1024, .Height = bytes / 16384, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUarray array = NULL;
    CUresult result = cu.cuArrayCreate(&array, &d);

    *value = (uintptr_t)array;
    return result;
}

static CUresult take(struct thing *thing, char kind, size_t bytes)
{
    CUdeviceptr address = 0;
    CUstream stream = NULL;
    CUresult result;

    switch (kind) {
    case 'a':
        result = cu.cuMemAllocAsync(&address, bytes, NULL);
        break;
    case 'h':
        result = take_handle(&thing->value, bytes);
        break;
    case 't':
        result = take_array(&thing->value, bytes);
        break;
    case 's':
        result = cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        break;
    default:
        result = cu.cuMemAlloc(&address, bytes);
        break;
    }
    if (address)
        thing->value = address;
    if (stream)
        thing->value = (uintptr_t)stream;
    thing->kind = result == CUDA_SUCCESS ? kind : 0;
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : result;
}

static CUresult give_back(struct thing *thing)
{
    const char kind = thing->kind;

    thing->kind = 0;
    switch (kind) {
    case 'a':
        return cu.cuMemFreeAsync(thing->value, NULL);
    case 'h':
        return cu.cuMemRelease(thing->value);
    case 't':
        return cu.cuArrayDestroy((CUarray)(uintptr_t)thing->value);
    case 's':
        return cu.cuStreamDestroy((CUstream)(uintptr_t)thing->value);
    default:
        return cu.cuMemFree(thing->value);
    }
}

static void check(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        last_wrong = (int)result;
        atomic_fetch_add(&wrong, 1);
    }
}

static void *race(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument + 1;
    struct thing things[HELD] = {0};

    check(cu.cuCtxSetCurrent(context));
    for (int i = 0; i < rounds; i++) {
        struct thing *thing = &things[rand_r(&seed) % HELD];

        if (thing->kind)
            check(give_back(thing));
        else
            check(take(thing, kinds[(unsigned)rand_r(&seed) % strlen(kinds)],
                       (size_t)(2 + 2 * (rand_r(&seed) % 24)) * MIB));
    }
    for (int i = 0; i < HELD; i++) {
        if (things[i].kind)
            check(give_back(&things[i]));
    }
    return NULL;
}

static void on_timer(int number)
{
    (void)number;
}

/* Without SA_RESTART, so that the signal interrupts waits. */
static void start_timer(void)
{
    struct sigaction action = {.sa_handler = on_timer};
    struct itimerval often = {{0, 500}, {0, 500}};

    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
}

static void stop_timer(void)
{
    struct itimerval never = {{0, 0}, {0, 0}};

    setitimer(ITIMER_REAL, &never, NULL);
}

int main(int argc, char **argv)
{
    pthread_t watcher, threads[THREADS_MAX];
    size_t free_bytes = 0, total = 0;

    if (argc < 5 || !prog_driver_open(argv[1]) || !open_nvml())
        return 4;
    const int count = atoi(argv[2]) < THREADS_MAX ? atoi(argv[2]) : THREADS_MAX;
    rounds = atoi(argv[3]);
    kinds = argv[4];
    if (cu.cuInit(0) || cu.cuCtxCreate(&context, 0, 0))
        return 5;
    pthread_create(&watcher, NULL, watch, NULL);
    start_timer();
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, race, (void *)(uintptr_t)i);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    stop_timer();
    cu.cuCtxSynchronize();
    atomic_store(&racing, false);
    pthread_join(watcher, NULL);
    cu.cuMemGetInfo(&free_bytes, &total);
    printf("wrong=%d last=%d\npeak=%llu\nfree=%zu leaks=%lu\n", atomic_load(&wrong), last_wrong,
           (unsigned long long)atomic_load(&peak) / MIB, free_bytes / MIB, prog_driver_leaks());
    return 0;
}

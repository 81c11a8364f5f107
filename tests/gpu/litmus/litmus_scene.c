/* litmus_scene: blocks, kernels, the gate and its guard, and the second thread of a scenario. See litmus.h.
 */
#include "litmus.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define LIST_MAX       64
#define CALL_FAILED    2
#define GRID           64
#define THREADS        256
#define TOUCHED_BYTES  ((size_t)128 << 10) /* of a larger block: a sanitizer looks at every word */
#define UNFENCED_US    200000              /* nothing waits then: only so that a mistake ends */
#define NS_PER_US      1000L
#define US_PER_S       1000000L
#define NS_PER_S       1000000000L
#define FIRST_PATTERN  0x51000000u
#define SECOND_PATTERN 0xa2000000u

/* The text of kernels.ptx, ended by a zero byte. */
__asm__(".section .rodata\n.global litmus_ptx\nlitmus_ptx:\n.incbin \"" LITMUS_PTX
        "\"\n.byte 0\n.previous\n");
extern const char litmus_ptx[];

void litmus_ok(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "litmus: %s failed: %d\n", call, (int)result);
    _exit(CALL_FAILED);
}

/* ---- blocks ---- */

/* The pool without fences: what is freed is handed out again at once. */
static struct {
    pthread_mutex_t lock;
    struct {
        CUdeviceptr address;
        size_t bytes;
        bool live;
    } blocks[LIST_MAX];
} list = {.lock = PTHREAD_MUTEX_INITIALIZER};

static CUdeviceptr list_take(size_t bytes)
{
    CUdeviceptr found = 0;
    pthread_mutex_lock(&list.lock);
    for (int i = 0; i < LIST_MAX && !found; i++) {
        if (list.blocks[i].bytes == bytes && !list.blocks[i].live) {
            list.blocks[i].live = true;
            found = list.blocks[i].address;
        }
    }
    pthread_mutex_unlock(&list.lock);
    return found;
}

static void list_add(CUdeviceptr address, size_t bytes)
{
    int i = 0;
    pthread_mutex_lock(&list.lock);
    while (i < LIST_MAX && list.blocks[i].bytes)
        i++;
    if (i < LIST_MAX) {
        list.blocks[i].address = address;
        list.blocks[i].bytes = bytes;
        list.blocks[i].live = true;
    }
    pthread_mutex_unlock(&list.lock);
    litmus_ok(i < LIST_MAX ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY, "list_add");
}

static void list_give(CUdeviceptr address)
{
    pthread_mutex_lock(&list.lock);
    for (int i = 0; i < LIST_MAX; i++) {
        if (list.blocks[i].address == address)
            list.blocks[i].live = false;
    }
    pthread_mutex_unlock(&list.lock);
}

CUdeviceptr litmus_take(struct litmus *l, size_t bytes)
{
    CUdeviceptr block = l->unfenced ? list_take(bytes) : 0;
    if (block)
        return block;
    LITMUS_OK(drv.cuMemAlloc(&block, bytes));
    if (l->unfenced)
        list_add(block, bytes);
    return block;
}

void litmus_give(struct litmus *l, CUdeviceptr block)
{
    if (l->unfenced)
        list_give(block);
    else
        LITMUS_OK(drv.cuMemFree(block));
}

/* ---- kernels ---- */

uint64_t litmus_words(const struct litmus *l)
{
    return (l->bytes < TOUCHED_BYTES ? l->bytes : TOUCHED_BYTES) / sizeof(uint32_t);
}

void litmus_fill(struct litmus *l, CUdeviceptr block, uint32_t pattern, CUstream stream)
{
    uint64_t words = litmus_words(l);
    void *args[] = {&block, &pattern, &words};
    LITMUS_OK(drv.cuLaunchKernel(l->fill_u32, GRID, 1, 1, THREADS, 1, 1, 0, stream, args, NULL));
}

void litmus_check(struct litmus *l, CUdeviceptr block, uint32_t pattern, CUstream stream)
{
    uint64_t words = litmus_words(l);
    void *args[] = {&block, &pattern, &words, &l->mismatches};
    LITMUS_OK(drv.cuLaunchKernel(l->check_u32, GRID, 1, 1, THREADS, 1, 1, 0, stream, args, NULL));
}

void litmus_wait_at_gate(struct litmus *l, CUstream stream)
{
    void *args[] = {&l->gate};
    LITMUS_OK(drv.cuLaunchKernel(l->spin_flag, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

/* ---- the gate ---- */

static void open_gate(struct litmus *l)
{
    __atomic_store_n(l->gate, 1, __ATOMIC_SEQ_CST);
}

static void wait_for(sem_t *s)
{
    while (sem_wait(s) && errno == EINTR)
        ;
}

/* False when the time was up first. */
static bool wait_a_while(sem_t *s, unsigned us)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += us / US_PER_S;
    until.tv_nsec += us % US_PER_S * NS_PER_US;
    if (until.tv_nsec >= NS_PER_S) {
        until.tv_sec++;
        until.tv_nsec -= NS_PER_S;
    }
    int rc;
    while ((rc = sem_timedwait(s, &until)) && errno == EINTR)
        ;
    return rc == 0;
}

static void *guard(void *arg)
{
    struct litmus *l = arg;
    for (;;) {
        wait_for(&l->shut);
        const bool finished = wait_a_while(&l->finish, l->unfenced ? UNFENCED_US : l->hold_us);
        open_gate(l);
        if (!finished)
            wait_for(&l->finish);
        sem_post(&l->opened);
    }
    return NULL;
}

void litmus_shut(struct litmus *l)
{
    __atomic_store_n(l->gate, 0, __ATOMIC_SEQ_CST);
    sem_post(&l->shut);
}

void litmus_finish(struct litmus *l)
{
    sem_post(&l->finish);
    wait_for(&l->opened);
    LITMUS_OK(drv.cuCtxSynchronize());
}

/* ---- the second thread ---- */

static void *second(void *arg)
{
    struct litmus *l = arg;
    LITMUS_OK(drv.cuCtxSetCurrent(l->context));
    for (;;) {
        wait_for(&l->job_given);
        l->job(l);
        sem_post(&l->job_done);
    }
    return NULL;
}

void litmus_start_job(struct litmus *l, void (*job)(struct litmus *l))
{
    l->job = job;
    sem_post(&l->job_given);
}

void litmus_end_job(struct litmus *l)
{
    wait_for(&l->job_done);
}

/* ---- life ---- */

/* Each kernel once, so that a later launch never waits for loading. */
static void warm_up(struct litmus *l)
{
    l->bytes = sizeof(uint32_t);
    open_gate(l);
    litmus_wait_at_gate(l, l->home);
    litmus_fill(l, (CUdeviceptr)l->gate, 1, l->home);
    litmus_check(l, (CUdeviceptr)l->gate, 1, l->home);
    LITMUS_OK(drv.cuCtxSynchronize());
}

static void start_threads(struct litmus *l)
{
    sem_t *const all[] = {&l->shut, &l->finish, &l->opened, &l->job_given, &l->job_done, &l->freed};
    pthread_t thread;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        sem_init(all[i], 0, 0);
    /* Both end with the process. */
    if (pthread_create(&thread, NULL, guard, l) || pthread_create(&thread, NULL, second, l))
        litmus_ok(CUDA_ERROR_UNKNOWN, "pthread_create");
}

void litmus_open(struct litmus *l)
{
    const unsigned pinned = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    CUmodule module;
    LITMUS_OK(drv.cuInit(0));
    LITMUS_OK(drv.cuDeviceGet(&l->device, 0));
    LITMUS_OK(drv.cuDevicePrimaryCtxRetain(&l->context, l->device));
    LITMUS_OK(drv.cuCtxSetCurrent(l->context));
    LITMUS_OK(drv.cuMemHostAlloc((void **)&l->gate, sizeof(*l->gate), pinned));
    LITMUS_OK(drv.cuMemHostAlloc((void **)&l->mismatches, sizeof(*l->mismatches), pinned));
    LITMUS_OK(drv.cuStreamCreate(&l->home, CU_STREAM_NON_BLOCKING));
    LITMUS_OK(drv.cuStreamCreate(&l->other, CU_STREAM_NON_BLOCKING));
    LITMUS_OK(drv.cuStreamCreate(&l->third, CU_STREAM_NON_BLOCKING));
    LITMUS_OK(drv.cuModuleLoadData(&module, litmus_ptx));
    LITMUS_OK(drv.cuModuleGetFunction(&l->spin_flag, module, "spin_flag"));
    LITMUS_OK(drv.cuModuleGetFunction(&l->fill_u32, module, "fill_u32"));
    LITMUS_OK(drv.cuModuleGetFunction(&l->check_u32, module, "check_u32"));
    warm_up(l);
    start_threads(l);
}

bool litmus_run(struct litmus *l, const struct litmus_scenario *scenario, unsigned turn)
{
    /* Less than a page of the driver's, one, and more. */
    static const size_t sizes[] = {4 << 10, 192 << 10, 2 << 20, 5 << 20};
    l->bytes = sizes[turn % (sizeof(sizes) / sizeof(sizes[0]))];
    l->mine = FIRST_PATTERN + turn;
    l->theirs = SECOND_PATTERN + turn;
    *l->mismatches = 0;
    scenario->run(l);
    return *l->mismatches != 0;
}

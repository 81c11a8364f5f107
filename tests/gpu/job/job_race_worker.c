/* job_race_worker: the processes that race. See job_race.h. They know nothing of gpucap.
 *
 * Each thread takes and gives blocks of all kinds and of random size. Four times a second a worker changes
 * its mind about how much it wants, so that memory that idles in one worker is missing in another.
 */
#include "job_race.h"

#include <cuda.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BLOCKS  6 /* of a thread, at most */
#define MOOD_NS UINT64_C(250000000)

static struct job_race_page *page;
static struct job_race_worker *own;
static unsigned self;
static CUcontext context;

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

enum kind { LINEAR, HANDLE, ASYNC, KINDS };

struct block {
    enum kind kind;
    uint64_t bytes;
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
};

static CUresult take(struct block *block)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};

    switch (block->kind) {
    case HANDLE:
        return cuMemCreate(&block->handle, block->bytes, &prop, 0);
    case ASYNC:
        return cuMemAllocAsync(&block->address, block->bytes, NULL);
    default:
        return cuMemAlloc(&block->address, block->bytes);
    }
}

static CUresult give(const struct block *block)
{
    switch (block->kind) {
    case HANDLE:
        return cuMemRelease(block->handle);
    case ASYNC: { /* it counts as held until the stream is past it */
        const CUresult result = cuMemFreeAsync(block->address, NULL);

        return result ? result : cuStreamSynchronize(NULL);
    }
    default:
        return cuMemFree(block->address);
    }
}

/* Enters `bytes` as wanted. Returns false, and takes them back, if all workers would want too much. */
static bool want(uint64_t bytes)
{
    uint64_t sum = 0;

    atomic_fetch_add(&own->wanted, bytes);
    for (unsigned i = 0; i < page->workers; i++)
        sum += atomic_load(&page->of[i].wanted);
    if (sum <= atomic_load(&page->most))
        return true;
    atomic_fetch_sub(&own->wanted, bytes);
    return false;
}

static void note(CUresult result, unsigned phase)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        atomic_fetch_add(phase % 2 && phase == atomic_load(&page->phase) ? &own->wrongly : &own->refused, 1);
    else if (result != CUDA_SUCCESS)
        atomic_fetch_add(&own->other_codes, 1);
}

/* How many blocks each thread of this worker wants now. */
static int mood(void)
{
    const uint64_t turn = now_ns() / MOOD_NS * 7 + self * UINT64_C(2654435761);

    return (int)((turn * UINT64_C(6364136223846793005) >> 40) % (BLOCKS + 1));
}

static bool grow(struct block *block, unsigned *seed)
{
    const unsigned phase = atomic_load(&page->phase);

    block->kind = (enum kind)((unsigned)rand_r(seed) % KINDS);
    block->bytes =
        (1 + (uint64_t)(unsigned)rand_r(seed) % (page->largest / (2 * JOB_RACE_MIB))) * 2 * JOB_RACE_MIB;
    if (!want(block->bytes))
        return false;
    const CUresult result = take(block);
    atomic_fetch_add(&own->asked, 1);
    note(result, phase);
    if (result)
        atomic_fetch_sub(&own->wanted, block->bytes);
    return result == CUDA_SUCCESS;
}

static void shrink(const struct block *block)
{
    const CUresult result = give(block);

    note(result, 0);
    atomic_fetch_sub(&own->wanted, block->bytes);
}

static void *race(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument ^ (unsigned)getpid() * 2654435761U;
    struct block blocks[BLOCKS];
    int count = 0;

    if (cuCtxSetCurrent(context))
        atomic_fetch_add(&own->other_codes, 1);
    while (atomic_load(&page->most)) {
        bool grown = false;

        if (count < mood() && (grown = grow(&blocks[count], &seed)))
            count++;
        /* Others have all that may be wanted, or this worker wants less: give one. */
        if (!grown && count)
            shrink(&blocks[--count]);
        if (!grown)
            usleep(200);
    }
    while (count)
        shrink(&blocks[--count]);
    return NULL;
}

int job_race_work(struct job_race_page *shared, unsigned number)
{
    pthread_t threads[JOB_RACE_WORKERS];
    CUresult result;

    page = shared;
    self = number;
    own = &page->of[number];
    if (cuInit(0))
        return 1;
    do { /* in the greedy phase the others may have all that is left */
        const unsigned phase = atomic_load(&page->phase);

        result = cuDevicePrimaryCtxRetain(&context, 0);
        note(result, phase);
    } while (result == CUDA_ERROR_OUT_OF_MEMORY && atomic_load(&page->most));
    if (result)
        return result == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 1;
    atomic_store(&own->started, true);
    for (uintptr_t i = 0; i < page->threads; i++) {
        if (pthread_create(&threads[i], NULL, race, (void *)(i + 1)))
            return 1;
    }
    for (unsigned i = 0; i < page->threads; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

int job_race_hold(struct job_race_page *shared)
{
    CUdeviceptr block;

    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    if (cuMemAlloc(&block, atomic_load(&shared->hold_bytes)))
        return 1;
    atomic_store(&shared->step, 1);
    for (;;)
        pause();
}

int job_race_take(struct job_race_page *shared)
{
    CUdeviceptr block;
    bool refused = false;

    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    atomic_store(&shared->of[0].started, true);
    while (atomic_load(&shared->step) < 2)
        usleep(1000);
    while (cuMemAlloc(&block, atomic_load(&shared->hold_bytes))) {
        refused = true;
        atomic_fetch_add(&shared->of[0].refused, 1);
    }
    atomic_store(&shared->got_at, now_ns());
    atomic_store(&shared->step, 3);
    return refused ? 0 : 2; /* 2: the holder did not fill the budget */
}

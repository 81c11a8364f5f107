/* engine_fake: a fake driver that checks the rules of the real one. See engine_fake.h. */
#include "tests/unit/interpose/engine_fake_state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct fake_state fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The engine's own table of the driver: the fake is all there is. */
atomic_bool driver_bound;
struct driver_table driver_entries;

struct driver_table *driver_bind_now(void)
{
    return &driver_entries;
}

void fake_lock(void)
{
    pthread_mutex_lock(&fake.lock);
}

void fake_unlock(void)
{
    pthread_mutex_unlock(&fake.lock);
}

bool fake_fails(enum fake_call call)
{
    fake.counts[call]++;
    if (!(fake.fail_mask >> call & 1) || fake.fail_in == 0)
        return false;
    if (--fake.fail_in > 0)
        return false;
    fake.failed++;
    if (fake.fail_more) {
        fake.fail_more--;
        fake.fail_in = 1;
    }
    return true;
}

/* ---- memory ---- */

static CUresult fake_attribute(int *value, CUdevice_attribute attribute, CUdevice ordinal)
{
    (void)attribute, (void)ordinal;
    *value = 1;
    return CUDA_SUCCESS;
}

static CUresult fake_granularity(size_t *granularity, const CUmemAllocationProp *properties,
                                 CUmemAllocationGranularity_flags option)
{
    (void)option;
    CHECK(properties->type == CU_MEM_ALLOCATION_TYPE_PINNED);
    *granularity = FAKE_PAGE;
    return CUDA_SUCCESS;
}

static CUresult fake_reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags)
{
    (void)alignment, (void)hint, (void)flags;
    fake_lock();
    const bool fail = fake_fails(FAKE_RESERVE);
    if (!fail) {
        CHECK(fake.span == 0 && bytes % FAKE_PAGE == 0);
        fake.pages = mmap(NULL, bytes / FAKE_PAGE * sizeof(*fake.pages), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(fake.pages != MAP_FAILED);
        fake.span = bytes;
        *address = FAKE_BASE;
    }
    fake_unlock();
    return fail ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult fake_address_free(CUdeviceptr address, size_t bytes)
{
    fake_lock();
    CHECK(address == FAKE_BASE && bytes == fake.span && fake.mapped == 0);
    munmap(fake.pages, bytes / FAKE_PAGE * sizeof(*fake.pages));
    fake.span = 0;
    fake_unlock();
    return CUDA_SUCCESS;
}

static CUresult fake_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *properties, unsigned long long flags)
{
    (void)flags;
    CHECK(bytes && bytes % FAKE_PAGE == 0 && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    fake_lock();
    if ((fake.plain_only &&
         (properties->requestedHandleTypes || properties->allocFlags.gpuDirectRDMACapable)) ||
        ((fake.plain_only || fake.no_decompression) && properties->allocFlags.usage)) {
        fake_unlock();
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (fake_fails(FAKE_CREATE) || fake.physical + bytes > fake.capacity) {
        fake_unlock();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint32_t i = fake.free_handle;
    if (i)
        fake.free_handle = fake.handles[i].next_free;
    else
        i = ++fake.fresh_handle;
    CHECK(i < HANDLES_MAX);
    fake.handles[i] = (struct fake_handle){.bytes = bytes};
    fake.physical += bytes;
    *handle = i;
    fake_unlock();
    return CUDA_SUCCESS;
}

static struct fake_handle *known(CUmemGenericAllocationHandle handle)
{
    CHECK(handle && handle <= fake.fresh_handle && fake.handles[handle].bytes);
    return &fake.handles[handle];
}

static CUresult fake_release(CUmemGenericAllocationHandle handle)
{
    fake_lock();
    struct fake_handle *h = known(handle);
    CHECK(!h->mapped); /* allowed by the driver, but then the memory lives on: not what the engine means */
    if (fake_fails(FAKE_RELEASE)) {
        fake_unlock();
        return CUDA_ERROR_UNKNOWN;
    }
    fake.physical -= h->bytes;
    *h = (struct fake_handle){.next_free = fake.free_handle};
    fake.free_handle = (uint32_t)handle;
    fake_unlock();
    return CUDA_SUCCESS;
}

static struct fake_page *page_of(uint64_t address)
{
    CHECK(address - FAKE_BASE < fake.span);
    return &fake.pages[(address - FAKE_BASE) / FAKE_PAGE];
}

static CUresult fake_map(CUdeviceptr address, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)flags;
    fake_lock();
    struct fake_handle *h = known(handle);
    CHECK(address % FAKE_PAGE == 0 && offset == 0 && bytes == h->bytes && h->mapped < ALIASES_MAX);
    CHECK(address >= FAKE_BASE && address + bytes <= FAKE_BASE + fake.span);
    const bool fail = fake_fails(FAKE_MAP);
    for (uint64_t i = 0; i < bytes / FAKE_PAGE && !fail; i++) {
        CHECK(page_of(address)[i].handle == 0);
        page_of(address)[i] = (struct fake_page){.base = address, .handle = (uint32_t)handle};
    }
    if (!fail) {
        fake.mapped += h->mapped ? 0 : bytes;
        h->at[h->mapped++] = address;
    }
    fake_unlock();
    return fail ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* A range of whole handles. With the lock. */
static void check_whole(uint64_t start, uint64_t bytes)
{
    const uint64_t end = start + bytes;

    CHECK(bytes && start % FAKE_PAGE == 0 && bytes % FAKE_PAGE == 0);
    for (uint64_t at = start; at < end;) {
        const struct fake_handle *h = known(page_of(at)->handle);

        CHECK(page_of(at)->base == at);
        at += h->bytes;
        CHECK(at <= end);
    }
}

static CUresult fake_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                                size_t count)
{
    CHECK(count >= 1 && access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    fake_lock();
    check_whole(address, bytes);
    const bool fail = fake_fails(FAKE_ACCESS);
    for (uint64_t i = 0; i < bytes / FAKE_PAGE && !fail; i++)
        page_of(address)[i].access = true;
    fake_unlock();
    return fail ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static bool overlap(const struct fake_use *use, uint64_t start, uint64_t bytes)
{
    return use->start < start + bytes && start < use->end + (use->start == use->end);
}

/* Whether a use touches the memory behind an address range, wherever else that is mapped. */
static bool touches(const struct fake_use *use, uint64_t start, uint64_t bytes)
{
    if (overlap(use, start, bytes))
        return true;
    for (uint64_t at = start, next; at < start + bytes; at = next) {
        if (at - FAKE_BASE >= fake.span ||
            !page_of(at)->handle) /* an address without memory, in a test of fences */
            return false;
        const struct fake_page *page = page_of(at);
        const struct fake_handle *h = known(page->handle);
        const uint64_t end = page->base + h->bytes;

        next = end < start + bytes ? end : start + bytes;
        for (uint32_t i = 0; i < h->mapped && h->mapped > 1; i++) {
            if (overlap(use, h->at[i] + (at - page->base), next - at))
                return true;
        }
    }
    return false;
}

/* `anywhere`: by another address as well. `all`: also what later work is behind. */
static bool pending(uint64_t start, uint64_t bytes, bool anywhere, bool all)
{
    for (unsigned s = 0; s < FAKE_STREAMS; s++) {
        const struct fake_stream *stream = &fake.streams[s];
        uint64_t i = stream->done;

        for (i = all || i > fake.barrier[s] ? i : fake.barrier[s]; i < stream->submitted; i++) {
            const struct fake_use *use = &stream->uses[i % WORK_MAX];

            if (anywhere ? touches(use, start, bytes) : overlap(use, start, bytes))
                return true;
        }
    }
    return false;
}

static void forget_mapping(struct fake_handle *h, uint64_t address)
{
    uint32_t i = 0;

    while (h->at[i] != address)
        i++;
    h->at[i] = h->at[--h->mapped];
    fake.mapped -= h->mapped ? 0 : h->bytes;
}

static CUresult fake_unmap(CUdeviceptr address, size_t bytes)
{
    fake_lock();
    check_whole(address, bytes);
    CHECK(!pending(address, bytes, false, true));
    const bool fail = fake_fails(FAKE_UNMAP);
    for (uint64_t i = 0; i < bytes / FAKE_PAGE && !fail; i++) {
        struct fake_page *page = &page_of(address)[i];

        if (page->base == address + i * FAKE_PAGE)
            forget_mapping(&fake.handles[page->handle], page->base);
        *page = (struct fake_page){0};
    }
    fake_unlock();
    return fail ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

uint64_t fake_physical(void)
{
    fake_lock();
    const uint64_t bytes = fake.physical;
    fake_unlock();
    return bytes;
}

uint64_t fake_mapped(void)
{
    fake_lock();
    const uint64_t bytes = fake.mapped;
    fake_unlock();
    return bytes;
}

bool fake_usable(uint64_t start, uint64_t bytes)
{
    bool usable = true;

    fake_lock();
    for (uint64_t at = start / FAKE_PAGE * FAKE_PAGE; at < start + bytes && usable; at += FAKE_PAGE)
        usable = page_of(at)->handle && page_of(at)->access;
    fake_unlock();
    return usable;
}

/* ---- work ---- */

/* A stream's work ends up to a place, and before it what it is behind. What a piece of work is behind was
 * there before it, so this comes to an end. */
void fake_finish(unsigned stream, uint64_t upto)
{
    struct fake_stream *own = &fake.streams[stream];

    while (own->done < upto) {
        const struct fake_use *use = &own->uses[own->done % WORK_MAX];

        for (unsigned s = 0; s < FAKE_STREAMS; s++) {
            if (s != stream)
                fake_finish(s, use->behind[s]);
        }
        own->done++;
    }
}

void fake_work(unsigned stream, uint64_t start, uint64_t bytes, uint64_t block)
{
    CHECK(bytes == 0 || fake_usable(start, bytes));
    fake_lock();
    for (unsigned s = 0; s < FAKE_STREAMS; s++) {
        const struct fake_stream *other = &fake.streams[s];

        uint64_t i = s == stream ? other->submitted : other->done;
        for (i = i < fake.barrier[s] ? fake.barrier[s] : i; i < other->submitted; i++) {
            const struct fake_use *use = &other->uses[i % WORK_MAX];

            CHECK(use->block == block || bytes == 0 || !touches(use, start, bytes));
        }
    }
    struct fake_stream *own = &fake.streams[stream];
    if (own->submitted - own->done == WORK_MAX)
        fake_finish(stream, own->done + 1);
    struct fake_use *use = &own->uses[own->submitted++ % WORK_MAX];
    *use = (struct fake_use){.start = start, .end = start + bytes, .block = block};
    memcpy(use->behind, fake.barrier, sizeof(use->behind));
    fake_unlock();
}

bool fake_progress(unsigned stream)
{
    struct fake_stream *own = &fake.streams[stream];

    fake_lock();
    const bool any = own->done < own->submitted;
    fake_finish(stream, own->done + any);
    fake_unlock();
    return any;
}

uint64_t fake_backlog(unsigned stream)
{
    fake_lock();
    const uint64_t count = fake.streams[stream].submitted - fake.streams[stream].done;
    fake_unlock();
    return count;
}

bool fake_pending(uint64_t start, uint64_t bytes)
{
    fake_lock();
    const bool any = pending(start, bytes, true, true);
    fake_unlock();
    return any;
}

bool fake_in_the_way(uint64_t start, uint64_t bytes)
{
    fake_lock();
    const bool any = pending(start, bytes, true, false);
    fake_unlock();
    return any;
}

void fake_set_capturing(bool capturing)
{
    fake_lock();
    fake.capturing = capturing;
    fake_unlock();
}

_Thread_local bool fake_elsewhere;
static _Thread_local int pushed; /* contexts, above the thread's own */

static CUresult fake_current(CUcontext *context)
{
    *context = fake_elsewhere && pushed == 0 ? FAKE_ELSEWHERE : FAKE_CONTEXT;
    return CUDA_SUCCESS;
}

static CUresult fake_push(CUcontext context)
{
    CHECK(context == FAKE_CONTEXT);
    pushed++;
    return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *context)
{
    CHECK(pushed-- > 0);
    *context = FAKE_CONTEXT;
    return CUDA_SUCCESS;
}

static CUresult fake_missing(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- the whole ---- */

static const struct driver_table entries = {
    .cuDeviceGetAttribute = fake_attribute,
    .cuMemGetAllocationGranularity = fake_granularity,
    .cuMemAddressReserve = fake_reserve,
    .cuMemAddressFree = fake_address_free,
    .cuMemCreate = fake_create,
    .cuMemRelease = fake_release,
    .cuMemMap = fake_map,
    .cuMemSetAccess = fake_set_access,
    .cuMemUnmap = fake_unmap,
    .cuCtxGetCurrent = fake_current,
    .cuCtxPushCurrent_v2 = fake_push,
    .cuCtxPopCurrent_v2 = fake_pop,
};

void fake_start(uint64_t capacity)
{
    void *const *from = (void *const *)&entries;
    void **to = (void **)&driver_entries;

    for (size_t i = 0; i < sizeof(driver_entries) / sizeof(*to); i++)
        to[i] = from[i] ? from[i] : (void *)fake_missing;
    fake_events_enter(&driver_entries);
    atomic_store(&driver_bound, true);
    if (!fake.handles)
        fake.handles = mmap(NULL, HANDLES_MAX * sizeof(*fake.handles), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(fake.handles != MAP_FAILED);
    fake.capacity = capacity;
    memset(fake.counts, 0, sizeof(fake.counts));
    fake_fail(0, 0, 0);
}

void fake_full_of_others(void)
{
    fake_lock();
    fake.no_plain = true;
    fake_unlock();
}

void fake_no_decompression(void)
{
    fake_lock();
    fake.no_decompression = true;
    fake_unlock();
}

void fake_plain_only(void)
{
    fake_lock();
    fake.plain_only = true;
    fake_unlock();
}

void fake_end(void)
{
    fake_lock();
    CHECK(fake.physical == 0 && fake.mapped == 0 && fake.span == 0 && pushed == 0);
    unsigned kept = 0; /* streams.c keeps one, which ends with the context */
    for (unsigned i = 0; i < EVENTS_MAX; i++) {
        CHECK(!fake.events[i].exists || fake.events[i].waited_for || fake.events[i].failed);
        kept += fake.events[i].exists;
    }
    CHECK(kept <= 1);
    fake_unlock();
}

void fake_fail(unsigned mask, uint64_t nth, uint64_t more)
{
    fake_lock();
    fake.fail_mask = mask;
    fake.fail_in = nth;
    fake.fail_more = more;
    fake.failed = 0;
    fake_unlock();
}

uint64_t fake_failed(void)
{
    fake_lock();
    const uint64_t count = fake.failed;
    fake_unlock();
    return count;
}

uint64_t fake_count(enum fake_call call)
{
    fake_lock();
    const uint64_t count = fake.counts[call];
    fake_unlock();
    return count;
}

bool fake_child(void (*run)(void))
{
    int status = 0;

    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        run();
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

uint64_t fake_random(struct fake_random *random)
{
    /* xorshift64*: enough for a test, and the same everywhere */
    uint64_t x = random->state ? random->state : 88172645463325252U;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    random->state = x;
    return x * UINT64_C(0x2545f4914f6cdd1d);
}

uint64_t fake_below(struct fake_random *random, uint64_t limit)
{
    return (fake_random(random) >> 11) % limit;
}

uint64_t fake_number(const char *variable, uint64_t standard)
{
    const char *text = getenv(variable);

    return text && *text ? strtoull(text, NULL, 0) : standard;
}

/* ---- the clock ---- */

atomic_bool fake_clock_stands;

/* In place of libc's. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    const int result = (int)syscall(SYS_clock_gettime, clock, now);

    if (atomic_load(&fake_clock_stands))
        *now = (struct timespec){.tv_sec = 1};
    return result;
}

/* pools: see pools.h. */
#include "interpose/pool/pools.h"

#include <errno.h>

#include "interpose/account/device.h"
#include "interpose/account/drivers_pools.h"
#include "interpose/see/events.h"
#include "interpose/settings/log.h"

static struct lock registry_lock = LOCK_INITIALIZER(LOCK_REGISTRY);
/* Address space of each pool; written under registry_lock, read without it. */
static struct {
    _Atomic(CUcontext) context; /* NULL: unused */
    _Atomic uint64_t base, span;
} places[POOLS_MAX];
static int ending[POOLS_MAX];  /* calls under way that may end its context; guarded by registry_lock */
static int waiting[POOLS_MAX]; /* pools_each_waiting visits in progress; guarded by registry_lock */
static pthread_cond_t waited = PTHREAD_COND_INITIALIZER;
static atomic_int registered;  /* places in use, or once in use */
static atomic_uint generation; /* counts ended contexts; invalidates `last` of all threads */
static struct pool storage[POOLS_MAX];
static const struct options *settings;
static atomic_bool green_made; /* or is about to be */
static atomic_flag said_unsupported = ATOMIC_FLAG_INIT;

/* The result of this thread's last look_up. */
static _Thread_local struct {
    CUcontext context;
    struct pool *pool;
    unsigned generation;
} last;

void pools_setup(const struct options *options)
{
    settings = options;
    /* A strict free asks the driver and relies on nothing that the hooks saw. With zero = on our own stream
     * clears a block: all work on it must be done before it is handed out, not just ordered behind another
     * stream's. (The same holds with fill = on, which makes every free strict.) */
    if (options->zero || !options->deferred) {
        streams_distrust();
        fence_forbid_joins();
    }
}

static void settle(struct pool *pool, void *unused)
{
    (void)unused;
    pool_wait_all(pool);
}

void pools_distrust(void)
{
    fence_forbid_joins();
    streams_distrust(); /* all contexts' default streams have the same handle */
    pools_each_waiting(settle, NULL);
}

static void close_epoch(struct pool *pool, void *unused)
{
    (void)unused;
    fence_poll(&pool->fence);
}

void pools_before_flag(void)
{
    if (!settings)
        return;
    fence_forbid_joins();
    fence_expect_flags();
    streams_distrust();
    pools_each(close_epoch, NULL);
}

/* ---- the limit, as a pool sees it ---- */

/* True if other threads' requests in flight contributed to a refusal since this thread last waited for them;
 * not only at its last request, which may have been for less. */
static _Thread_local bool busy;

static bool try_take(struct device *device, uint64_t bytes)
{
    bool in_the_way;
    const bool taken = account_try(&device->account, bytes, &in_the_way);

    busy = busy || in_the_way;
    return taken;
}

bool pools_await(const struct pool *pool)
{
    struct device *device = pool->budget.owner;

    if (!busy || !device)
        return false;
    busy = false;
    account_await(&device->account);
    return true;
}

/* Returns what this process, which has no limit, leaves free for other jobs; at most `free_bytes`. */
static uint64_t kept_from_us(uint64_t free_bytes)
{
    const struct device *device = device_guarded_current();
    const uint64_t kept = device ? ledger_kept(device->ledger) : 0;

    return kept < free_bytes ? kept : free_bytes;
}

static bool budget_fits(void *owner, uint64_t bytes)
{
    struct device *device = owner;
    size_t free_bytes, total;

    if (driver.cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS &&
        (bytes > free_bytes || (!device && bytes > free_bytes - kept_from_us(free_bytes))))
        return false;
    if (!device)
        return true;
    if (!try_take(device, bytes))
        return false;
    account_settle(&device->account, bytes, false, false);
    return true;
}

static uint64_t budget_room(void *owner)
{
    struct device *device = owner;
    size_t free_bytes, total;
    uint64_t room = device ? account_room(&device->account) : UINT64_MAX;

    if (driver.cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS && free_bytes < room)
        room = device ? free_bytes : free_bytes - kept_from_us(free_bytes);
    return room;
}

/* The card on which this thread's request without a limit was admitted; NULL: none needed to be. */
static _Thread_local struct device *admitted_on;

static bool budget_take(void *owner, uint64_t bytes)
{
    struct device *device = owner;

    if (device)
        return try_take(device, bytes);
    admitted_on = device_guarded_current();
    return !admitted_on || device_admit(admitted_on, bytes);
}

static void budget_settle(void *owner, uint64_t bytes, bool success)
{
    struct device *device = owner;

    if (device)
        account_settle(&device->account, bytes, success, false);
    else if (admitted_on)
        device_end_admission(admitted_on, bytes);
}

static void budget_give(void *owner, uint64_t bytes)
{
    struct device *device = owner;

    if (device)
        account_give(&device->account, bytes, false);
}

/* ---- by context ---- */

static struct pool *find(CUcontext context)
{
    const int count = atomic_load_explicit(&registered, memory_order_acquire);

    for (int i = 0; i < count; i++) {
        if (atomic_load_explicit(&places[i].context, memory_order_acquire) == context)
            return &storage[i];
    }
    return NULL;
}

CUcontext pools_owner(CUcontext context)
{
    CUcontext primary = NULL;
    CUgreenCtx green = NULL;

    return driver.cuStreamGetCtx_v2(NULL, &primary, &green) == CUDA_SUCCESS && green ? primary : context;
}

CUcontext pools_owner_if_green(CUcontext context)
{
    return atomic_load(&green_made) ? pools_owner(context) : context;
}

void pools_expect_green(void)
{
    atomic_store(&green_made, true);
    streams_distrust(); /* its default streams have the same handles as the primary context's */
}

/* Opens the pool of the current context. Returns NULL if it gets none. */
static struct pool *open_pool(CUcontext context)
{
    struct pool_budget budget = {.fits = budget_fits,
                                 .room = budget_room,
                                 .take = budget_take,
                                 .settle = budget_settle,
                                 .give = budget_give};
    CUdevice ordinal;
    struct device *device;
    int place = 0;

    lock_assert_held(&registry_lock);
    while (place < POOLS_MAX && atomic_load(&places[place].context))
        place++;
    /* An ended context may still be current: the driver allocates nothing in it. */
    if (place == POOLS_MAX || driver.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS ||
        driver_may_allocate() != CUDA_SUCCESS || device_find(ordinal, &device))
        return NULL;
    budget.owner = device;
    const int rc = pool_open(&storage[place], context, ordinal, &budget, settings->slack.permille);
    if (rc) {
        if (log_first(&said_unsupported))
            log_info("device %d cannot pool memory (%s): its memory is only counted", ordinal,
                     rc == -ENOTSUP ? "no virtual memory management" : "no address space");
        return NULL;
    }
    if (settings->guard)
        pool_guard(&storage[place]);
    atomic_store(&places[place].base, storage[place].vmm.base);
    atomic_store(&places[place].span, storage[place].vmm.span);
    atomic_store(&places[place].context, context);
    if (place >= atomic_load(&registered))
        atomic_store_explicit(&registered, place + 1, memory_order_release);
    return &storage[place];
}

/* Not inlined: pools_current would save more registers each time. */
__attribute__((noinline)) static struct pool *look_up(CUcontext context)
{
    const unsigned before = atomic_load(&generation); /* a context that ends meanwhile makes `last` invalid */
    CUcontext owner = pools_owner(context);
    struct pool *pool = find(owner);

    /* Makes the owner current to open its pool: a green context cannot be used for that. */
    if (!pool && (owner == context || driver.cuCtxPushCurrent_v2(owner) == CUDA_SUCCESS)) {
        lock_take(&registry_lock);
        pool = find(owner);
        if (!pool)
            pool = open_pool(owner);
        lock_release(&registry_lock);
        if (owner != context)
            driver.cuCtxPopCurrent_v2(&owner);
    }
    /* Streams of another context are different streams even if their handles are equal. */
    if (atomic_load(&registered) > 1) {
        fence_forbid_joins();
        streams_distrust();
    }
    last.context = context;
    last.pool = pool;
    last.generation = before;
    return pool;
}

struct pool *pools_current(void)
{
    CUcontext context = NULL;

    if (!settings->pool || driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context)
        return NULL;
    if (__builtin_expect(last.context == context && last.generation == atomic_load(&generation), 1))
        return last.pool;
    return look_up(context);
}

struct pool *pools_current_if_open(void)
{
    CUcontext context = NULL;

    return driver.cuCtxGetCurrent(&context) == CUDA_SUCCESS && context ? find(context) : NULL;
}

struct pools_wait pools_before_wait(CUcontext context)
{
    struct pool *pool = NULL;

    if (atomic_load(&registered))
        pool = context ? find(context) : pools_current_if_open();
    if (pool)
        lock_disable_cancel(); /* until pools_after_wait, or the epoch would never be known to be done */
    return (struct pools_wait){pool, pool ? fence_wait_begin(&pool->fence) : 0};
}

void pools_after_wait(const struct pools_wait *wait, bool success)
{
    if (!wait->pool)
        return;
    fence_wait_end(&wait->pool->fence, wait->epoch, success);
    lock_restore_cancel();
    if (success && settings->decay == 0)
        pool_trim(wait->pool, UINT64_MAX); /* what earlier frees could not release yet */
}

void pools_context_end_begin(CUcontext context)
{
    streams_context_end_begin(context);
    lock_take(&registry_lock);
    for (int i = 0; i < POOLS_MAX; i++) {
        if (atomic_load(&places[i].context) != context)
            continue;
        ending[i]++;
        while (waiting[i])
            lock_wait(&registry_lock, &waited);
    }
    lock_release(&registry_lock);
}

void pools_context_end_abort(CUcontext context)
{
    streams_context_end_abort(context);
    lock_take(&registry_lock);
    for (int i = 0; i < POOLS_MAX; i++) {
        if (atomic_load(&places[i].context) == context && ending[i] > 0)
            ending[i]--;
    }
    lock_release(&registry_lock);
}

void pools_context_end(CUcontext context)
{
    lock_take(&registry_lock);
    for (int i = 0; context && i < POOLS_MAX; i++) {
        if (atomic_load(&places[i].context) == context) {
            atomic_store(&places[i].span, 0);
            atomic_store(&places[i].context, NULL);
            ending[i] = 0;
            events_note_gone(storage[i].ordinal, storage[i].vmm.base, storage[i].vmm.span);
            pool_close(&storage[i], false);
        }
    }
    atomic_fetch_add(&generation, 1);
    lock_release(&registry_lock);
}

void pools_forget_green(void)
{
    atomic_fetch_add(&generation, 1);
}

void pools_after_fork(void)
{
    lock_init(&registry_lock, LOCK_REGISTRY);
    pthread_cond_init(&waited, NULL);
    for (int i = 0; i < POOLS_MAX; i++)
        atomic_store(&places[i].context, NULL);
}

/* ---- by address, by card ---- */

struct pool *pools_of(uint64_t address)
{
    const int count = atomic_load_explicit(&registered, memory_order_acquire);

    for (int i = 0; i < count; i++) {
        const uint64_t span = atomic_load_explicit(&places[i].span, memory_order_acquire);

        if (address - atomic_load_explicit(&places[i].base, memory_order_acquire) < span)
            return &storage[i];
    }
    return NULL;
}

void pools_each(void (*visit)(struct pool *pool, void *argument), void *argument)
{
    lock_take(&registry_lock);
    for (int i = 0; i < POOLS_MAX; i++) {
        if (atomic_load(&places[i].context) && !ending[i])
            visit(&storage[i], argument);
    }
    lock_release(&registry_lock);
}

void pools_each_waiting(void (*visit)(struct pool *pool, void *argument), void *argument)
{
    lock_take(&registry_lock);
    for (int i = 0; i < atomic_load(&registered); i++) {
        if (!atomic_load(&places[i].context) || ending[i])
            continue;
        waiting[i]++;
        lock_release(&registry_lock);
        visit(&storage[i], argument);
        lock_take(&registry_lock);
        waiting[i]--;
        pthread_cond_broadcast(&waited);
    }
    lock_release(&registry_lock);
}

/* A sum over the pools of a card. */
struct sum {
    CUdevice ordinal;
    uint64_t (*of)(struct pool *pool, uint64_t missing);
    uint64_t wanted, bytes;
};

static void add(struct pool *pool, void *argument)
{
    struct sum *sum = argument;

    if (pool->ordinal == sum->ordinal && sum->bytes < sum->wanted)
        sum->bytes += sum->of(pool, sum->wanted - sum->bytes);
}

uint64_t pools_sum(CUdevice ordinal, uint64_t wanted, uint64_t (*of)(struct pool *, uint64_t missing))
{
    struct sum sum = {ordinal, of, wanted, 0};

    pools_each(add, &sum);
    return sum.bytes;
}

uint64_t pools_trim(CUdevice ordinal, uint64_t bytes)
{
    return pools_sum(ordinal, bytes, pool_trim);
}

static uint64_t reclaimable(struct pool *pool, uint64_t missing)
{
    (void)missing;
    return pool_reclaimable(pool);
}

uint64_t pools_reclaimable(CUdevice ordinal)
{
    return pools_sum(ordinal, UINT64_MAX, reclaimable);
}

static uint64_t not_live(struct pool *pool, uint64_t missing)
{
    const struct pool_stats s = pool_stats(pool);

    (void)missing;
    return s.physical - s.live;
}

uint64_t pools_idle_on(CUdevice ordinal)
{
    return pools_sum(ordinal, UINT64_MAX, not_live) + drivers_pools_idle_on(ordinal);
}

static void report(struct pool *pool)
{
    struct pool_stats s;
    char live[SIZE_TEXT], physical[SIZE_TEXT];

    if (!pool_stats_at_exit(pool, &s))
        return;
    log_info(
        "pool of device %d: peak live %s, peak held %s, %llu hits, %llu stitches of %llu chunks, %llu grows, "
        "%llu joins, %llu waits, %llu driver calls, %llu ms making room, %llu of it waiting, one stream %s",
        pool->ordinal, size_format(s.peak_live, live), size_format(s.peak_physical, physical),
        (unsigned long long)s.hits, (unsigned long long)s.stitches, (unsigned long long)s.stitched_chunks,
        (unsigned long long)s.grows, (unsigned long long)s.joins, (unsigned long long)s.waits,
        (unsigned long long)s.driver_calls, (unsigned long long)(s.room_ns / 1000000),
        (unsigned long long)(s.wait_ns / 1000000), streams_in_order() ? "yes" : "no");
}

void pools_report(void)
{
    if (settings->log < OPTIONS_LOG_INFO || !lock_take_at_exit(&registry_lock))
        return;
    for (int i = 0; i < POOLS_MAX; i++) {
        if (atomic_load(&places[i].context) && !ending[i])
            report(&storage[i]);
    }
    lock_release(&registry_lock);
}

/* drivers_pools: see drivers_pools.h. */
#include "interpose/account/drivers_pools.h"

#include <pthread.h>
#include <stdatomic.h>

#include "interpose/base/lock.h"
#include "interpose/base/sums.h"

#define POOLS_MAX 1024 /* a program has one or two; a request of a pool beyond these is refused */
#define CARDS     64   /* whose current pool, and what destroyed pools left, is kept */

struct drivers_pool {
    _Atomic(CUmemoryPool) pool; /* NULL: unused; written under lock */
    CUdevice ordinal;
    _Atomic uint64_t reserved; /* at the last look at its growth */
    /* By cuMemFree: the driver gives a block's memory to the pool, but goes on counting it as used (measured,
     * 580.159.04). */
    _Atomic uint64_t freed_at_once;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Shared while pools of the table are asked or trimmed; exclusive while one is destroyed. */
static pthread_rwlock_t visits = PTHREAD_RWLOCK_INITIALIZER;
static struct drivers_pool pools[POOLS_MAX];
static atomic_int count; /* places in use or used before */

/* What destroyed pools still hold on a card: the driver keeps a pool's memory until its last block is freed,
 * and does not tell how much that is. So all that they held counts until none of their blocks is left. */
static struct left {
    _Atomic uint64_t held;
    _Atomic uint64_t used; /* by blocks that are not freed; both are written under lock */
} left[CARDS];
static struct leaving { /* of the pool that is being destroyed, guarded by visits */
    CUdevice ordinal;
    uint64_t held, used;
    uint64_t freed_at_once; /* as the driver counts it */
} leaving;
static atomic_bool any_left; /* on any card */

/* The current pool of each card as the driver last named it: its place in the table, plus POOLS_MAX times
 * `changes` before the driver was asked. Valid while `changes` is the same. */
static _Atomic uint64_t kept_current[CARDS];
static _Atomic uint64_t changes = 1;
static atomic_bool asks_always;

static struct left *left_on(CUdevice ordinal)
{
    return &left[ordinal % CARDS];
}

/* Only while no capture can be open. */
static uint64_t ask(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value = 0;

    return driver.cuMemPoolGetAttribute(pool, which, &value) == CUDA_SUCCESS ? value : 0;
}

/* Relaxes the capture mode: otherwise a question about a pool would end an open capture. */
static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which)
{
    const CUstreamCaptureMode mode = driver_relax();
    const uint64_t value = ask(pool, which);

    driver_restore(mode);
    return value;
}

static uint64_t reserved_by(CUmemoryPool pool)
{
    return attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
}

static CUmemoryPool handle_of(const struct drivers_pool *pool)
{
    return atomic_load(&pool->pool);
}

/* Returns the live bytes of a pool. `freed_at_once`: bytes of its blocks that cuMemFree has freed, which the
 * driver goes on counting as used. */
static uint64_t live_in(CUmemoryPool pool, uint64_t freed_at_once)
{
    return sums_minus(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), freed_at_once);
}

uint64_t drivers_pools_reserved(const struct drivers_pool *pool)
{
    return reserved_by(handle_of(pool));
}

uint64_t drivers_pools_idle(const struct drivers_pool *pool)
{
    const uint64_t held = drivers_pools_reserved(pool); /* first: what is freed meanwhile is not idle yet */

    return sums_minus(held, live_in(handle_of(pool), atomic_load(&pool->freed_at_once)));
}

static struct drivers_pool *find(CUmemoryPool pool)
{
    const int known = atomic_load_explicit(&count, memory_order_acquire);

    for (int i = 0; i < known; i++) {
        if (atomic_load_explicit(&pools[i].pool, memory_order_acquire) == pool)
            return &pools[i];
    }
    return NULL;
}

/* Adds a pool. Growth counts from here on: what it held before was there at the account's last measurement,
 * or the next one finds it. */
static struct drivers_pool *add(CUmemoryPool pool, CUdevice ordinal)
{
    struct drivers_pool *place = find(NULL);

    if (!place && atomic_load(&count) < POOLS_MAX)
        place = &pools[atomic_load(&count)];
    if (!place)
        return NULL;
    place->ordinal = ordinal;
    atomic_store(&place->reserved, reserved_by(pool));
    atomic_store(&place->freed_at_once, 0);
    atomic_store_explicit(&place->pool, pool, memory_order_release);
    if (place == &pools[atomic_load(&count)])
        atomic_fetch_add(&count, 1);
    return place;
}

struct drivers_pool *drivers_pools_find(CUmemoryPool pool, CUdevice ordinal)
{
    struct drivers_pool *found = find(pool);

    if (__builtin_expect(found != NULL, 1))
        return found;
    lock_mutex_take(&lock);
    found = find(pool);
    if (!found)
        found = add(pool, ordinal);
    lock_mutex_release(&lock);
    return found;
}

static void begin_visit(void)
{
    lock_disable_cancel();
    pthread_rwlock_rdlock(&visits);
}

static void end_visit(void)
{
    pthread_rwlock_unlock(&visits);
    lock_restore_cancel();
}

/* Returns the handle of the card's current pool, or NULL. */
static CUmemoryPool current_of(CUdevice ordinal)
{
    CUmemoryPool current = NULL;

    if (driver.cuDeviceGetMemPool(&current, ordinal) == CUDA_SUCCESS ||
        driver.cuDeviceGetMemPool(&current, ordinal) == CUDA_SUCCESS) /* again: a failure may pass */
        return current;
    return NULL;
}

void drivers_pools_current_changes(void)
{
    atomic_fetch_add(&changes, 1);
}

void drivers_pools_ask_always(void)
{
    atomic_store(&asks_always, true);
    drivers_pools_current_changes();
}

static struct drivers_pool *kept(CUdevice ordinal)
{
    const uint64_t word = atomic_load(&kept_current[ordinal % CARDS]);

    return word / POOLS_MAX == atomic_load(&changes) ? &pools[word % POOLS_MAX] : NULL;
}

/* During a visit, because a pool may be destroyed right after the driver has named it, but not then. */
struct drivers_pool *drivers_pools_current(CUdevice ordinal)
{
    struct drivers_pool *found = kept(ordinal);

    if (__builtin_expect(found && found->ordinal == ordinal, 1))
        return found;
    begin_visit();
    const uint64_t before = atomic_load(&changes);
    CUmemoryPool current = current_of(ordinal);
    found = current ? drivers_pools_find(current, ordinal) : NULL;
    if (found && !atomic_load(&asks_always))
        atomic_store(&kept_current[ordinal % CARDS], before * POOLS_MAX + (uint64_t)(found - pools));
    end_visit();
    return found;
}

CUdevice drivers_pools_card(CUmemoryPool pool)
{
    const struct drivers_pool *found = find(pool);

    return pool && found ? found->ordinal : DRIVERS_POOLS_UNKNOWN;
}

uint64_t drivers_pools_growth(struct drivers_pool *pool, bool no_capture)
{
    CUmemoryPool asked = atomic_load_explicit(&pool->pool, memory_order_relaxed);
    const uint64_t now = no_capture ? ask(asked, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) : reserved_by(asked);
    const uint64_t before = atomic_load_explicit(&pool->reserved, memory_order_relaxed);

    if (now == before)
        return 0;
    const uint64_t last = atomic_exchange(&pool->reserved, now);
    return sums_minus(now, last);
}

void drivers_pools_look_again(CUdevice ordinal)
{
    begin_visit();
    for (int i = 0; i < atomic_load(&count); i++) {
        CUmemoryPool pool = atomic_load(&pools[i].pool);

        if (!pool || pools[i].ordinal != ordinal)
            continue;
        const uint64_t now = reserved_by(pool);
        uint64_t before = atomic_load(&pools[i].reserved);
        while (now < before && !atomic_compare_exchange_weak(&pools[i].reserved, &before, now)) {
        }
    }
    end_visit();
}

/* Calls `visit` for each pool of a card, its current one included, and adds up what it returns. */
static uint64_t sum_over(CUdevice ordinal, uint64_t (*visit)(const struct drivers_pool *pool))
{
    uint64_t sum = 0;

    begin_visit();
    CUmemoryPool current = current_of(ordinal);
    if (current)
        drivers_pools_find(current, ordinal);
    for (int i = 0; i < atomic_load(&count); i++) {
        if (handle_of(&pools[i]) && pools[i].ordinal == ordinal)
            sum += visit(&pools[i]);
    }
    end_visit();
    return sum;
}

/* Relaxes the capture mode, as attribute() does. */
static bool trim_relaxed(CUmemoryPool pool)
{
    const CUstreamCaptureMode mode = driver_relax();
    const bool trimmed = driver.cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS;

    driver_restore(mode);
    return trimmed;
}

static uint64_t trim(const struct drivers_pool *pool)
{
    return drivers_pools_idle(pool) && trim_relaxed(handle_of(pool));
}

static uint64_t give(const struct drivers_pool *pool)
{
    const uint64_t before = drivers_pools_reserved(pool), idle = drivers_pools_idle(pool);
    const uint64_t given = trim(pool) ? sums_minus(before, drivers_pools_reserved(pool)) : 0;

    return sums_smaller(given, idle);
}

uint64_t drivers_pools_give(CUdevice ordinal)
{
    return sum_over(ordinal, give);
}

bool drivers_pools_trim(CUdevice ordinal)
{
    return sum_over(ordinal, trim) != 0;
}

uint64_t drivers_pools_idle_on(CUdevice ordinal)
{
    return sum_over(ordinal, drivers_pools_idle);
}

uint64_t drivers_pools_held(CUdevice ordinal)
{
    const uint64_t graphs = driver_graph_memory(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
    const uint64_t known = sum_over(ordinal, drivers_pools_reserved) + graphs;

    return known + atomic_load(&left_on(ordinal)->held); /* last: a pool may be destroyed meanwhile */
}

/* Asks the driver for the pool, card and size of a block. bytes 0: it is in no pool on a card. */
static struct drivers_pools_block block_at(CUdeviceptr address)
{
    struct drivers_pools_block block = {.bytes = 0};
    int ordinal = -1;
    size_t bytes = 0; /* as asked for; the pool counts them so (measured) */

    if (driver.cuPointerGetAttribute(&block.pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address) ==
            CUDA_SUCCESS &&
        block.pool &&
        driver.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) ==
            CUDA_SUCCESS &&
        driver.cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) == CUDA_SUCCESS &&
        ordinal >= 0) {
        block.ordinal = ordinal;
        block.bytes = bytes;
    }
    return block;
}

struct drivers_pools_block drivers_pools_free_begin(CUdeviceptr address)
{
    if (__builtin_expect(!atomic_load_explicit(&any_left, memory_order_relaxed), 1))
        return (struct drivers_pools_block){.bytes = 0};
    struct drivers_pools_block block = block_at(address);
    if (drivers_pools_card(block.pool) != DRIVERS_POOLS_UNKNOWN)
        block.bytes = 0;
    block.pool = NULL; /* another pool may get its handle */
    return block;
}

struct drivers_pools_block drivers_pools_free_at_once_begin(CUdeviceptr address)
{
    return atomic_load(&count) > 0 ? block_at(address) : (struct drivers_pools_block){.bytes = 0};
}

/* Takes `bytes` from what blocks of destroyed pools use on a card. The caller holds the lock. */
static void take_from_left(struct left *on, uint64_t bytes)
{
    const uint64_t used = sums_minus(atomic_load(&on->used), bytes);

    atomic_store(&on->used, used);
    if (used == 0)
        atomic_store(&on->held, 0);
}

static void note_any_left(void)
{
    bool any = false;

    for (int i = 0; i < CARDS; i++)
        any |= atomic_load(&left[i].used) != 0;
    atomic_store(&any_left, any);
}

/* During a visit, because then each pool is either in the table or counted in `left`, not half destroyed. */
void drivers_pools_free_end(const struct drivers_pools_block *block)
{
    begin_visit();
    pthread_mutex_lock(&lock);
    struct drivers_pool *found = block->pool ? find(block->pool) : NULL;
    if (found) {
        atomic_fetch_add(&found->freed_at_once, block->bytes);
    } else {
        take_from_left(left_on(block->ordinal), block->bytes);
        note_any_left();
    }
    pthread_mutex_unlock(&lock);
    end_visit();
}

/* Takes the pool out of the table before the driver's call: right after it another may get its handle. */
CUdevice drivers_pools_destroy_begin(CUmemoryPool pool)
{
    lock_disable_cancel();
    pthread_rwlock_wrlock(&visits);
    pthread_mutex_lock(&lock);
    struct drivers_pool *found = pool ? find(pool) : NULL;
    leaving = (struct leaving){.ordinal = DRIVERS_POOLS_UNKNOWN};
    if (found) {
        leaving.ordinal = found->ordinal;
        leaving.freed_at_once = atomic_load(&found->freed_at_once);
        atomic_store(&found->pool, NULL);
    }
    drivers_pools_current_changes(); /* the driver makes the card's default pool the current one */
    pthread_mutex_unlock(&lock);
    if (leaving.ordinal >= 0)
        leaving.used = live_in(pool, leaving.freed_at_once);
    if (leaving.used) {
        if (reserved_by(pool) > leaving.used)
            trim_relaxed(pool);
        leaving.held = reserved_by(pool);
    }
    return leaving.ordinal;
}

static void end_destroy(void)
{
    leaving.used = 0;
    pthread_rwlock_unlock(&visits);
    lock_restore_cancel();
}

void drivers_pools_destroy_end(void)
{
    if (leaving.used) { /* if only frees are pending, its memory goes back by itself */
        struct left *on = left_on(leaving.ordinal);

        pthread_mutex_lock(&lock);
        atomic_fetch_add(&on->held, leaving.held);
        atomic_fetch_add(&on->used, leaving.used);
        atomic_store(&any_left, true);
        pthread_mutex_unlock(&lock);
    }
    end_destroy();
}

void drivers_pools_destroy_abort(CUmemoryPool pool, CUdevice ordinal)
{
    struct drivers_pool *back = ordinal != DRIVERS_POOLS_UNKNOWN ? drivers_pools_find(pool, ordinal) : NULL;

    if (back)
        atomic_fetch_add(&back->freed_at_once, leaving.freed_at_once);
    end_destroy();
}

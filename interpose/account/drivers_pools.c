/* drivers_pools: see drivers_pools.h. */
#include "interpose/account/drivers_pools.h"

#include <pthread.h>
#include <stdatomic.h>

#include "interpose/base/lock.h"
#include "interpose/base/sums.h"

#define POOLS_MAX  1024 /* a program has one or two; a request of a pool beyond these is refused */
#define LEFT_CARDS 64
#define LEFT_UNIT  512 /* a block of a pool takes a multiple of this */

struct drivers_pool {
    _Atomic(CUmemoryPool) pool; /* NULL: unused; written under lock */
    CUdevice ordinal;
    _Atomic uint64_t reserved; /* at the last look at its growth */
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
} left[LEFT_CARDS];
static struct leaving { /* of the pool that is being destroyed, guarded by visits */
    CUdevice ordinal;
    uint64_t held, used;
} leaving;
static atomic_bool any_left; /* on any card */

/* The program has freed a block with cuMemFree. The driver gives its memory to the pool, but goes on counting
 * the block as used (measured, 580.159.04): what is idle is not known any more. */
static atomic_bool freed_at_once;

static struct left *left_on(CUdevice ordinal)
{
    return &left[ordinal % LEFT_CARDS];
}

/* The driver takes questions about a pool for unsafe: beside a capture they end it. */
static uint64_t ask(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value = 0;

    return driver.cuMemPoolGetAttribute(pool, which, &value) == CUDA_SUCCESS ? value : 0;
}

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

static uint64_t used_in(CUmemoryPool pool)
{
    return attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
}

static uint64_t idle_in(CUmemoryPool pool)
{
    const uint64_t held = reserved_by(pool); /* first: what is freed meanwhile is not idle yet */

    return sums_minus(held, used_in(pool));
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

/* A pool that is not in the table may be destroyed right after the driver has named it: it is named once more
 * while none can be. */
struct drivers_pool *drivers_pools_current(CUdevice ordinal)
{
    CUmemoryPool current = current_of(ordinal);
    struct drivers_pool *found = current ? find(current) : NULL;

    if (__builtin_expect(found != NULL, 1))
        return found;
    begin_visit();
    current = current_of(ordinal);
    found = current ? drivers_pools_find(current, ordinal) : NULL;
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

uint64_t drivers_pools_reserved(struct drivers_pool *pool)
{
    return reserved_by(atomic_load(&pool->pool));
}

uint64_t drivers_pools_idle(struct drivers_pool *pool)
{
    return idle_in(atomic_load(&pool->pool));
}

/* Calls `visit` for each pool of a card, its current one included, and adds up what it returns. */
static uint64_t sum_over(CUdevice ordinal, uint64_t (*visit)(CUmemoryPool pool))
{
    uint64_t sum = 0;

    begin_visit();
    CUmemoryPool current = current_of(ordinal);
    if (current)
        drivers_pools_find(current, ordinal);
    for (int i = 0; i < atomic_load(&count); i++) {
        CUmemoryPool pool = atomic_load(&pools[i].pool);

        if (pool && pools[i].ordinal == ordinal)
            sum += visit(pool);
    }
    end_visit();
    return sum;
}

/* Relaxed for the same reason. */
static bool trim_relaxed(CUmemoryPool pool)
{
    const CUstreamCaptureMode mode = driver_relax();
    const bool trimmed = driver.cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS;

    driver_restore(mode);
    return trimmed;
}

/* Returns how much of a pool may be idle. */
static uint64_t perhaps_idle_in(CUmemoryPool pool)
{
    return atomic_load(&freed_at_once) ? reserved_by(pool) : idle_in(pool);
}

static uint64_t trim(CUmemoryPool pool)
{
    return perhaps_idle_in(pool) && trim_relaxed(pool);
}

static uint64_t give(CUmemoryPool pool)
{
    const uint64_t before = reserved_by(pool), idle = perhaps_idle_in(pool);
    const uint64_t given = trim(pool) ? sums_minus(before, reserved_by(pool)) : 0;

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
    return sum_over(ordinal, idle_in);
}

uint64_t drivers_pools_held(CUdevice ordinal)
{
    const uint64_t graphs = driver_graph_memory(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
    const uint64_t known = sum_over(ordinal, reserved_by) + graphs;

    return known + atomic_load(&left_on(ordinal)->held); /* last: a pool may be destroyed meanwhile */
}

void drivers_pools_note_free_at_once(void)
{
    if (!atomic_load_explicit(&freed_at_once, memory_order_relaxed) && atomic_load(&count) > 0)
        atomic_store(&freed_at_once, true);
}

struct drivers_pools_left drivers_pools_left_begin(CUdeviceptr address)
{
    struct drivers_pools_left block = {.bytes = 0};
    CUmemoryPool pool = NULL;
    int ordinal = 0;
    size_t bytes = 0;

    if (__builtin_expect(atomic_load_explicit(&any_left, memory_order_relaxed), 0) &&
        driver.cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address) == CUDA_SUCCESS &&
        pool && drivers_pools_card(pool) == DRIVERS_POOLS_UNKNOWN &&
        driver.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) ==
            CUDA_SUCCESS &&
        driver.cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) == CUDA_SUCCESS)
        block = (struct drivers_pools_left){ordinal, (bytes + LEFT_UNIT - 1) / LEFT_UNIT * LEFT_UNIT};
    return block;
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

    for (int i = 0; i < LEFT_CARDS; i++)
        any |= atomic_load(&left[i].used) != 0;
    atomic_store(&any_left, any);
}

void drivers_pools_left_end(const struct drivers_pools_left *block)
{
    lock_mutex_take(&lock);
    take_from_left(left_on(block->ordinal), block->bytes);
    note_any_left();
    lock_mutex_release(&lock);
}

/* Takes the pool out of the table before the driver's call: right after it another may get its handle. */
CUdevice drivers_pools_destroy_begin(CUmemoryPool pool)
{
    lock_disable_cancel();
    pthread_rwlock_wrlock(&visits);
    pthread_mutex_lock(&lock);
    struct drivers_pool *found = pool ? find(pool) : NULL;
    const CUdevice ordinal = found ? found->ordinal : DRIVERS_POOLS_UNKNOWN;
    if (found)
        atomic_store(&found->pool, NULL);
    pthread_mutex_unlock(&lock);
    leaving = (struct leaving){.ordinal = ordinal, .used = ordinal >= 0 ? used_in(pool) : 0};
    if (leaving.used) {
        trim(pool);
        leaving.held = reserved_by(pool);
        leaving.used = sums_smaller(leaving.used, leaving.held);
    }
    return ordinal;
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
    if (ordinal != DRIVERS_POOLS_UNKNOWN)
        drivers_pools_find(pool, ordinal);
    end_destroy();
}

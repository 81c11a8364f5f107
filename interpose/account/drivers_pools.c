/* drivers_pools: see drivers_pools.h. */
#include "interpose/account/drivers_pools.h"

#include <pthread.h>
#include <stdatomic.h>

#include "interpose/base/lock.h"
#include "interpose/base/sums.h"

#define POOLS_MAX 1024 /* a program has one or two; a request of a pool beyond these is refused */

struct drivers_pool {
    _Atomic(CUmemoryPool) pool; /* NULL: unused; written under lock */
    CUdevice ordinal;
    _Atomic uint64_t reserved; /* at the last look at its growth */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Shared while pools of the table are asked or trimmed, whichever thread uses them; exclusive while one is
 * destroyed. */
static pthread_rwlock_t visits = PTHREAD_RWLOCK_INITIALIZER;
static struct drivers_pool pools[POOLS_MAX];
static atomic_int count; /* places in use or used before */

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value = 0;

    return driver.cuMemPoolGetAttribute(pool, which, &value) == CUDA_SUCCESS ? value : 0;
}

static uint64_t reserved_by(CUmemoryPool pool)
{
    return attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
}

static uint64_t idle_in(CUmemoryPool pool)
{
    const uint64_t held = reserved_by(pool), used = attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);

    return sums_minus(held, used);
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

uint64_t drivers_pools_growth(struct drivers_pool *pool)
{
    const uint64_t now = reserved_by(atomic_load_explicit(&pool->pool, memory_order_relaxed));
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

/* Relaxes the thread's capture mode meanwhile: beside another thread's global capture the driver may refuse
 * such a call otherwise, and end the capture. */
static bool trim_relaxed(CUmemoryPool pool)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    driver.cuThreadExchangeStreamCaptureMode(&mode);
    const bool trimmed = driver.cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS;
    driver.cuThreadExchangeStreamCaptureMode(&mode);
    return trimmed;
}

static uint64_t trim(CUmemoryPool pool)
{
    return idle_in(pool) && trim_relaxed(pool);
}

static uint64_t give(CUmemoryPool pool)
{
    const uint64_t before = reserved_by(pool), idle = idle_in(pool);
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
    cuuint64_t graphs = 0;

    if (driver.cuDeviceGetGraphMemAttribute(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &graphs) !=
        CUDA_SUCCESS)
        graphs = 0;
    return sum_over(ordinal, reserved_by) + graphs;
}

/* Takes the pool out of the table before the driver's call: right after it another pool may get its handle.
 */
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
    return ordinal;
}

void drivers_pools_destroy_end(void)
{
    pthread_rwlock_unlock(&visits);
    lock_restore_cancel();
}

void drivers_pools_destroy_abort(CUmemoryPool pool, CUdevice ordinal)
{
    if (ordinal != DRIVERS_POOLS_UNKNOWN)
        drivers_pools_find(pool, ordinal);
    drivers_pools_destroy_end();
}

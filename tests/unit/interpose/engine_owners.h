/* engine_owners: for tests with threads: records, without a lock, which block owns each unit of a pool's
 * address space, so that two owners of one byte are noticed. Also lets two threads meet at a point. */
#ifndef GPUCAP_TESTS_ENGINE_OWNERS_H
#define GPUCAP_TESTS_ENGINE_OWNERS_H

#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "tests/unit/interpose/engine_fake.h"
#include "interpose/pool/pool.h"
#include "interpose/pool/ranges.h"

#define OWNERS_SPAN (4 * GIB) /* of each zone's address space, that a test may reach */

struct owners {
    const struct ranges *ranges;
    _Atomic uint8_t *units;
};

static inline void owners_open(struct owners *owners, const struct pool *pool)
{
    owners->ranges = &pool->ranges;
    owners->units = mmap(NULL, RANGES_ZONES * OWNERS_SPAN / RANGES_UNIT, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(owners->units != MAP_FAILED);
}

static inline void owners_close(struct owners *owners)
{
    munmap((void *)owners->units, RANGES_ZONES * OWNERS_SPAN / RANGES_UNIT);
}

static inline void owners_set(struct owners *owners, uint64_t start, uint64_t bytes, bool taken)
{
    const bool large = start >= owners->ranges->border;
    const uint64_t offset = start - (large ? owners->ranges->border : owners->ranges->base);

    CHECK(start % RANGES_UNIT == 0 && offset + bytes <= OWNERS_SPAN);
    for (uint64_t at = offset + (large ? OWNERS_SPAN : 0), end = at + bytes; at < end; at += RANGES_UNIT)
        CHECK(atomic_exchange_explicit(&owners->units[at / RANGES_UNIT], taken, memory_order_relaxed) ==
              !taken);
}

/* Waits until two threads are here for the `turn`-th time, from 1. */
static inline void owners_meet(atomic_uint *here, unsigned turn)
{
    atomic_fetch_add(here, 1);
    for (unsigned i = 1; atomic_load(here) < 2 * turn; i++) {
        if (i % 256 == 0)
            sched_yield();
    }
}

/* A budget of so many bytes that threads may use. */
struct owners_budget {
    _Atomic uint64_t used, limit;
};

static inline bool owners_fits(void *owner, uint64_t bytes)
{
    struct owners_budget *budget = owner;

    return atomic_load(&budget->used) + bytes <= atomic_load(&budget->limit);
}

static inline uint64_t owners_room(void *owner)
{
    struct owners_budget *budget = owner;
    const uint64_t used = atomic_load(&budget->used), limit = atomic_load(&budget->limit);

    return used < limit ? limit - used : 0;
}

static inline bool owners_take(void *owner, uint64_t bytes)
{
    struct owners_budget *budget = owner;

    if (atomic_fetch_add(&budget->used, bytes) + bytes <= atomic_load(&budget->limit))
        return true;
    atomic_fetch_sub(&budget->used, bytes);
    return false;
}

static inline void owners_settle(void *owner, uint64_t bytes, bool success)
{
    struct owners_budget *budget = owner;

    if (!success)
        atomic_fetch_sub(&budget->used, bytes);
}

static inline void owners_give(void *owner, uint64_t bytes)
{
    struct owners_budget *budget = owner;

    CHECK(atomic_fetch_sub(&budget->used, bytes) >= bytes);
}

/* Opens a pool that may hold so much. */
static inline void owners_open_pool(struct pool *pool, struct owners_budget *budget, uint64_t limit)
{
    const struct pool_budget calls = {.owner = budget,
                                      .fits = owners_fits,
                                      .room = owners_room,
                                      .take = owners_take,
                                      .settle = owners_settle,
                                      .give = owners_give};

    atomic_store(&budget->limit, limit);
    CHECK(pool_open(pool, FAKE_CONTEXT, 0, &calls, 20) == 0);
}

#endif

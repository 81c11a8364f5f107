/* The pool when the host is out of memory: any mmap of the pool and its heap may fail. An allocation may then
 * be refused, but a free never is, nothing is lost, and nothing that work still uses is unmapped. Linked with
 * --wrap=mmap. Each case is a process of its own. */
#include "tests/unit/interpose/apart.h"
#include "tests/unit/interpose/engine_owners.h"

#include <errno.h>
#include <unity.h>

#include "interpose/pool/cache.h"
#include "interpose/pool/capture.h"

#define LIMIT   (128 * MIB)
#define BLOCKS  600
#define THREADS 96 /* more than the caches that are made at once */
#define STREAM  0x10000
#define ALWAYS  UINT64_MAX

static struct pool pool;
static struct owners_budget budget;
static uint64_t blocks[BLOCKS], sizes[BLOCKS];
static atomic_uint_fast64_t fail_at, failed, calls; /* the n-th call fails; 0: none; ALWAYS: every one */
static atomic_uint_fast64_t mapped;                 /* bytes */

void setUp(void) {}

void tearDown(void) {}

/* ---- mmap ---- */

void *__real_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);

void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    const uint64_t at = atomic_load(&fail_at), call = atomic_fetch_add(&calls, 1) + 1;

    if (at && (at == ALWAYS || call == at)) {
        atomic_fetch_add(&failed, 1);
        errno = ENOMEM;
        return MAP_FAILED;
    }
    atomic_fetch_add(&mapped, bytes);
    return __real_mmap(address, bytes, protection, flags, fd, offset);
}

int __real_munmap(void *address, size_t bytes);
int __wrap_munmap(void *address, size_t bytes);

int __wrap_munmap(void *address, size_t bytes)
{
    atomic_fetch_sub(&mapped, bytes);
    return __real_munmap(address, bytes);
}

static void fail(uint64_t nth)
{
    atomic_store(&calls, 0);
    atomic_store(&failed, 0);
    atomic_store(&fail_at, nth);
}

/* ---- life ---- */

static void begin(void)
{
    fail(0);
    fake_start(LIMIT);
    owners_open_pool(&pool, &budget, LIMIT);
}

static void end_empty(void)
{
    fail(0);
    while (fake_progress(0))
        ;
    const struct pool_stats s = pool_stats(&pool);
    CHECK(pool_check(&pool) == NULL && s.live == 0 && s.live_count == 0);
    pool_trim(&pool, UINT64_MAX);
    CHECK(fake_physical() == 0 && atomic_load(&budget.used) == 0);
    pool_close(&pool, true);
    fake_end();
}

/* Behind work of one stream, so that what is free is still at work. */
static void free_one(unsigned i)
{
    streams_submit_begin(STREAM);
    fake_work(0, blocks[i], sizes[i], i + 1);
    CHECK(pool_free(&pool, blocks[i], false) == 0);
    CHECK(pool_free(&pool, blocks[i], false) == -EINVAL);
    blocks[i] = 0;
}

/* Blocks of all kinds, a third of them freed, more in their place, then all freed; between, trims. */
static void busy_life(void)
{
    struct fake_random random = {.state = 3};

    for (unsigned i = 0; i < BLOCKS; i++) {
        sizes[i] = 1 + fake_below(&random, UINT64_C(1) << (6 + fake_below(&random, 16)));
        const int rc = pool_alloc(&pool, sizes[i], &blocks[i]);

        CHECK(rc == 0 || rc == -ENOMEM);
        if (rc)
            blocks[i] = 0;
        else
            CHECK(fake_usable(blocks[i], sizes[i]));
        if (i % 3 == 2 && blocks[i - 1])
            free_one(i - 1);
        if (i % 50 == 49)
            pool_trim(&pool, 4 * MIB);
        if (i % 7 == 6)
            fake_progress(0);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (blocks[i])
            free_one(i);
    }
}

/* ---- promises ---- */

static void test_any_mmap_may_fail(void)
{
    bool any = true;

    for (uint64_t nth = 1; any; nth++) {
        begin();
        fail(nth);
        busy_life();
        any = atomic_load(&failed) > 0;
        end_empty();
    }
    begin();
    busy_life(); /* the ground is prepared */
    fail(ALWAYS);
    busy_life();
    end_empty();
}

static void test_without_any_host_memory_requests_are_refused_and_nothing_breaks(void)
{
    begin();
    fail(ALWAYS);
    busy_life();
    CHECK(atomic_load(&failed) > 0);
    end_empty();
}

/* A capture that begins asks every fence that there is. */
static void test_a_pool_for_which_there_is_no_host_memory_leaves_nothing(void)
{
    const struct pool_budget counted = {
        .owner = &budget, .take = owners_take, .settle = owners_settle, .give = owners_give};
    int rc = -1;

    fake_start(LIMIT);
    atomic_store(&budget.limit, LIMIT);
    for (uint64_t nth = 2; rc; nth++) { /* the first call is of the fake driver */
        const uint64_t before = atomic_load(&mapped);

        fail(nth);
        rc = pool_open(&pool, FAKE_CONTEXT, 0, &counted, 20);
        CHECK(rc == 0 || (atomic_load(&failed) > 0 && atomic_load(&mapped) == before));
        CHECK(fake_physical() == 0 && atomic_load(&budget.used) == 0);
    }
    fail(0);
    capture_begin(FAKE_CAPTURE, streams_thread_key(), FAKE_CONTEXT);
    capture_end(FAKE_CAPTURE, streams_thread_key());
    pool_close(&pool, true);
    fake_end();
}

static pthread_barrier_t all_here;

/* More than a thread keeps by itself, so that the heap is asked. */
static void take_and_free(void)
{
    uint64_t own[2 * CACHE_HEAP];
    unsigned count = 0;

    while (count < 2 * CACHE_HEAP && pool_alloc(&pool, 700, &own[count]) == 0)
        count++;
    while (count)
        CHECK(pool_free(&pool, own[--count], true) == 0);
}

static void *free_mine(void *index)
{
    const uintptr_t i = (uintptr_t)index;

    CHECK(pool_free(&pool, blocks[i], true) == 0);
    CHECK(pool_free(&pool, blocks[i], true) == -EINVAL);
    pthread_barrier_wait(&all_here);
    take_and_free();
    pthread_barrier_wait(&all_here); /* no thread ends before the last has freed */
    return NULL;
}

/* Threads that cannot have a cache of their own free what another has taken, and what they may still take;
 * then they end. */
static void test_a_thread_that_can_have_no_cache_can_free(void)
{
    pthread_t threads[THREADS];

    begin();
    CHECK(pthread_barrier_init(&all_here, NULL, THREADS) == 0);
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pool_alloc(&pool, i % 2 ? 700 : 70000, &blocks[i]) == 0);
    fail(ALWAYS);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, free_mine, (void *)i) == 0);
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(atomic_load(&failed) > 0);
    end_empty();
}

int main(void)
{
    UNITY_BEGIN();
    RUN_APART(test_a_pool_for_which_there_is_no_host_memory_leaves_nothing);
    RUN_APART(test_any_mmap_may_fail);
    RUN_APART(test_without_any_host_memory_requests_are_refused_and_nothing_breaks);
    RUN_APART(test_a_thread_that_can_have_no_cache_can_free);
    return UNITY_END();
}

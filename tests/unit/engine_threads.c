/* pool under several threads: the same promises, kept by a list of live blocks that all threads share. */
#include <errno.h>
#include <string.h>
#include <unity.h>

#include "engine_fake.h"
#include "pool.h"

#define THREADS    4
#define PER_THREAD 64
#define SLOTS      (THREADS * PER_THREAD)
#define LIMIT      (512 * MIB)

void setUp(void) {}

void tearDown(void) {}

static struct pool pool;
static atomic_uint_fast64_t held, granted;

static struct {
    pthread_mutex_t lock;
    uint64_t start[SLOTS], end[SLOTS];
} live = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool budget_take(void *owner, uint64_t bytes)
{
    (void)owner;
    if (atomic_fetch_add(&granted, bytes) + bytes <= LIMIT)
        return true;
    atomic_fetch_sub(&granted, bytes);
    return false;
}

static void budget_settle(void *owner, uint64_t bytes, bool success)
{
    (void)owner;
    if (success)
        atomic_fetch_add(&held, bytes);
    else
        atomic_fetch_sub(&granted, bytes);
}

static void budget_give(void *owner, uint64_t bytes)
{
    (void)owner;
    atomic_fetch_sub(&held, bytes);
    atomic_fetch_sub(&granted, bytes);
}

static void enter(unsigned slot, uint64_t start, uint64_t bytes)
{
    pthread_mutex_lock(&live.lock);
    for (unsigned i = 0; i < SLOTS; i++)
        CHECK(live.end[i] <= start || start + bytes <= live.start[i]);
    live.start[slot] = start;
    live.end[slot] = start + bytes;
    pthread_mutex_unlock(&live.lock);
}

static void leave(unsigned slot)
{
    pthread_mutex_lock(&live.lock);
    live.start[slot] = live.end[slot] = 0;
    pthread_mutex_unlock(&live.lock);
}

struct thread {
    pthread_t id;
    unsigned number;
    bool deferred;
    uint64_t steps, refusals;
};

static void take_one(struct thread *thread, unsigned slot, struct fake_random *random, uint64_t *name)
{
    const uint64_t bytes = 1 + fake_below(random, UINT64_C(1) << fake_below(random, 25));
    uint64_t address;

    const int rc = pool_alloc(&pool, bytes, &address);
    if (rc) {
        CHECK(rc == -ENOMEM);
        thread->refusals++;
        return;
    }
    CHECK(fake_usable(address, bytes));
    enter(slot, address, bytes);
    if (thread->deferred) {
        const bool guest = fence_work(0x10000 + 0x100 * (uintptr_t)thread->number);

        fake_work(thread->number, address, bytes, ++*name);
        if (guest)
            fence_worked();
    }
}

static void *run(void *argument)
{
    struct thread *thread = argument;
    struct fake_random random = {.state = 1000003 * (thread->number + 1)};
    uint64_t name = (uint64_t)thread->number << 32;

    for (uint64_t i = 0; i < thread->steps; i++) {
        const unsigned slot = thread->number * PER_THREAD + (unsigned)fake_below(&random, PER_THREAD);
        const uint64_t start = live.start[slot]; /* this thread's own */

        if (start) {
            leave(slot);
            CHECK(pool_free(&pool, start, !thread->deferred) == 0);
        } else {
            take_one(thread, slot, &random, &name);
        }
        if (i % 3 == 0)
            fake_progress(thread->number);
        if (i % 97 == 0)
            pool_trim(&pool, fake_below(&random, 64 * MIB));
        if (i % 251 == 0)
            CHECK(pool_check(&pool) == 0);
    }
    return NULL;
}

static void run_threads(bool deferred)
{
    const struct pool_budget budget = {.take = budget_take, .settle = budget_settle, .give = budget_give};
    struct thread threads[THREADS];

    fake_start(LIMIT);
    CHECK(pool_open(&pool, FAKE_CONTEXT, 0, &budget, 100) == 0);
    for (unsigned i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){
            .number = i, .deferred = deferred, .steps = 30000 * fake_number("GPUCAP_TEST_TIMES", 1)};
        CHECK(pthread_create(&threads[i].id, NULL, run, &threads[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i].id, NULL);
    CHECK(pool_check(&pool) == 0);
    CHECK(pool_stats(&pool).physical == fake_physical() && atomic_load(&held) == fake_physical());
    CHECK(atomic_load(&granted) == atomic_load(&held));
    for (unsigned s = 0; s < THREADS; s++) {
        while (fake_progress(s))
            ;
    }
    pool_close(&pool, true);
    CHECK(atomic_load(&held) == 0);
    fake_end();
}

static void strict(void)
{
    run_threads(false);
}

static void deferred(void)
{
    run_threads(true);
}

static void test_threads_never_share_bytes(void)
{
    TEST_ASSERT_TRUE(fake_child(strict));
}

static void test_threads_never_get_bytes_that_another_threads_stream_works_on(void)
{
    TEST_ASSERT_TRUE(fake_child(deferred));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_threads_never_share_bytes);
    RUN_TEST(test_threads_never_get_bytes_that_another_threads_stream_works_on);
    return UNITY_END();
}

/* The pool under several threads: the same promises, checked with a list of live blocks that all threads
 * share. */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unity.h>

#include "interpose/pool/capture.h"
#include "tests/unit/interpose/engine_disturb.h"
#include "tests/unit/interpose/engine_fake.h"
#include "interpose/pool/pool.h"

#define THREADS    4
#define PER_THREAD 64
#ifdef __SANITIZE_THREAD__ /* it also sees accesses that do not meet by chance, and is slow */
#define TIMES 1
#else
#define TIMES 3
#endif
#define STEPS       (TIMES * 10000) /* of a thread */
#define SHORT_LIVES 100             /* generations of threads */
#define SHORT_STEPS 100             /* of a thread of these */
#define SLOTS       (THREADS * PER_THREAD)
#define LIMIT       (512 * MIB)

void setUp(void) {}

void tearDown(void) {}

static struct pool pool;
static atomic_uint_fast64_t held, granted;
static bool disturbed;

/* Runs once undisturbed, which does most steps, and once with constant interruptions. */
static bool holds(void (*run)(void))
{
    disturbed = false;
    if (!fake_child(run))
        return false;
    disturbed = true;
    return fake_child(run);
}

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
    for (unsigned i = 0; i < SLOTS; i++) {
        const bool apart = live.end[i] <= start || start + bytes <= live.start[i];

        if (!apart)
            fprintf(stderr, "%#lx + %lu in slot %u and %#lx + %lu in slot %u\n", start, bytes, slot,
                    live.start[i], live.end[i] - live.start[i], i);
        CHECK(apart);
    }
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
    unsigned number, round;
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
        const bool foreign = streams_submit_begin(0x10000 + 0x100 * (uintptr_t)thread->number);

        fake_work(thread->number, address, bytes, ++*name);
        if (foreign)
            streams_submit_end();
    }
}

static void *run(void *argument)
{
    struct thread *thread = argument;
    struct fake_random random = {.state = 1000003 * (thread->number + 1) + 7919 * thread->round};
    uint64_t name = (uint64_t)thread->round << 40 | (uint64_t)thread->number << 32;

    disturb_me();
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
            CHECK(pool_check(&pool) == NULL);
    }
    disturb_me_no_more();
    return NULL;
}

/* One generation of threads; what they leave the next one frees. */
static void run_round(bool deferred, unsigned round, uint64_t steps)
{
    struct thread threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){.number = i, .round = round, .deferred = deferred, .steps = steps};
        CHECK(pthread_create(&threads[i].id, NULL, run, &threads[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i].id, NULL);
}

static void run_threads(bool deferred, uint64_t rounds, uint64_t steps)
{
    const struct pool_budget budget = {.take = budget_take, .settle = budget_settle, .give = budget_give};

    disturb_start(disturbed);
    fake_start(LIMIT);
    CHECK(pool_open(&pool, FAKE_CONTEXT, 0, &budget, 100) == 0);
    for (unsigned i = 0; i < rounds; i++)
        run_round(deferred, i, steps);
    disturb_stop();
    CHECK(pool_check(&pool) == NULL);
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
    run_threads(false, 1, STEPS * fake_number("GPUCAP_TEST_TIMES", 1));
}

static void deferred(void)
{
    run_threads(true, 1, STEPS * fake_number("GPUCAP_TEST_TIMES", 1));
}

static void strict_short(void)
{
    run_threads(false, SHORT_LIVES * fake_number("GPUCAP_TEST_TIMES", 1), SHORT_STEPS);
}

static void deferred_short(void)
{
    run_threads(true, SHORT_LIVES * fake_number("GPUCAP_TEST_TIMES", 1), SHORT_STEPS);
}

static void test_threads_never_share_bytes(void)
{
    TEST_ASSERT_TRUE(holds(strict));
}

static void test_threads_never_get_bytes_that_another_threads_stream_works_on(void)
{
    TEST_ASSERT_TRUE(holds(deferred));
}

/* What a thread does for the first time, while others trim, happens in every round. */
static void test_threads_that_come_and_go_never_share_bytes(void)
{
    TEST_ASSERT_TRUE(holds(strict_short));
    TEST_ASSERT_TRUE(holds(deferred_short));
}

/* ---- blocks that pass between threads at work ---- */

#define PLACES     64
#define ROAM_STEPS (TIMES * 7000)
#define FAULTS     (1U << FAKE_RECORD | 1U << FAKE_EVENT_CREATE | 1U << FAKE_WAIT | 1U << FAKE_SYNCHRONIZE)

static struct {
    pthread_mutex_t lock; /* a thread that takes the block from here sees what was submitted before */
    uint64_t address, bytes, name;
} places[PLACES];

static atomic_uint_fast64_t names;

struct worker {
    pthread_t id;
    unsigned number, streams;
    bool deferred;
    unsigned faults; /* calls that fail now and then */
};

static void submit(struct worker *worker, struct fake_random *random, unsigned place)
{
    unsigned stream = worker->number % worker->streams;

    if (fake_below(random, 16) == 0)
        stream = (unsigned)fake_below(random, worker->streams);
    const bool foreign = streams_submit_begin(0x10000 + 0x100 * (uintptr_t)stream);
    fake_work(stream, places[place].address, places[place].bytes, places[place].name);
    if (foreign)
        streams_submit_end();
}

/* As route does it. False: the driver did not let it wait. */
static bool release(const struct worker *worker, unsigned place)
{
    const uint64_t address = places[place].address, bytes = places[place].bytes;

    if (!worker->deferred && fence_pass(&pool.fence, NULL) != CUDA_SUCCESS)
        return false;
    CHECK(worker->deferred || !fake_pending(address, bytes));
    CHECK(pool_free(&pool, address, !worker->deferred) == 0);
    places[place].address = 0;
    return true;
}

static void take(unsigned place, struct fake_random *random)
{
    const uint64_t bytes = 1 + fake_below(random, UINT64_C(1) << (9 + fake_below(random, 14)));
    uint64_t address;

    if (pool_alloc(&pool, bytes, &address))
        return;
    places[place].address = address;
    places[place].bytes = bytes;
    places[place].name = atomic_fetch_add(&names, 1) + 1;
}

/* Captures work, which does not run now. */
static void capture(uintptr_t stream)
{
    capture_begin(stream, streams_thread_key(), FAKE_CONTEXT);
    const bool foreign = streams_submit_begin(stream);
    fake_set_capturing(true);
    if (foreign)
        streams_submit_end();
    sched_yield();
    fake_set_capturing(false);
    capture_end(stream, streams_thread_key());
}

static void *roam(void *argument)
{
    struct worker *worker = argument;
    struct fake_random random = {.state = 7368787 * (worker->number + 1)};
    const uint64_t steps = ROAM_STEPS * fake_number("GPUCAP_TEST_TIMES", 1);

    disturb_me();
    for (uint64_t i = 0; i < steps; i++) {
        const unsigned place = (unsigned)fake_below(&random, PLACES);

        pthread_mutex_lock(&places[place].lock);
        if (!places[place].address)
            take(place, &random);
        else if (fake_below(&random, 4) == 0 && i / 256 % 2) /* sometimes no stream works for a while */
            submit(worker, &random, place);
        else
            release(worker, place);
        pthread_mutex_unlock(&places[place].lock);
        if (fake_below(&random, 64) == 0)
            fence_wait_all(&pool.fence);
        if (fake_below(&random, 64) == 0)
            fence_poll(&pool.fence);
        if (fake_below(&random, 3) == 0)
            fake_progress((unsigned)fake_below(&random, worker->streams));
        if (worker->faults && worker->number == 0 && i % 64 == 0)
            fake_fail(worker->faults, 1 + fake_below(&random, 4), fake_below(&random, 4));
        if (worker->faults && worker->number == 1 && i % 512 == 0)
            capture(0x10000);
    }
    disturb_me_no_more();
    return NULL;
}

static void run_workers(struct worker kind)
{
    const struct pool_budget budget = {.take = budget_take, .settle = budget_settle, .give = budget_give};
    struct worker workers[THREADS];

    disturb_start(disturbed);
    fake_start(LIMIT);
    CHECK(pool_open(&pool, FAKE_CONTEXT, 0, &budget, 100) == 0);
    for (unsigned i = 0; i < PLACES; i++)
        pthread_mutex_init(&places[i].lock, NULL);
    if (!kind.deferred)
        streams_distrust(); /* as pools_setup does it */
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = kind;
        workers[i].number = i;
        CHECK(pthread_create(&workers[i].id, NULL, roam, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(workers[i].id, NULL);
    disturb_stop();
    fake_fail(0, 0, 0);
    for (unsigned i = 0; i < PLACES; i++)
        CHECK(!places[i].address || release(&workers[0], i));
    CHECK(pool_check(&pool) == NULL && pool_stats(&pool).live == 0);
    /* A context does no more work when it ends. */
    CHECK(fence_wait_all(&pool.fence) == 0);
    pool_close(&pool, true);
    fake_end();
}

static void passed_strict(void)
{
    run_workers((struct worker){.streams = 3});
}

static void passed_strict_one(void)
{
    run_workers((struct worker){.streams = 1});
}

static void test_a_strict_free_has_waited_for_all_work_on_its_block(void)
{
    TEST_ASSERT_TRUE(holds(passed_strict));
    TEST_ASSERT_TRUE(holds(passed_strict_one));
}

static void passed_deferred(void)
{
    run_workers((struct worker){.streams = 3, .deferred = true});
}

static void passed_deferred_one(void)
{
    run_workers((struct worker){.streams = 1, .deferred = true});
}

static void test_blocks_passed_between_threads_at_work_are_not_used_again_too_early(void)
{
    TEST_ASSERT_TRUE(holds(passed_deferred));
    TEST_ASSERT_TRUE(holds(passed_deferred_one));
}

static void failing_strict(void)
{
    run_workers((struct worker){.streams = 3, .faults = FAULTS});
}

static void failing_deferred(void)
{
    run_workers((struct worker){.streams = 3, .faults = FAULTS, .deferred = true});
}

static void test_blocks_are_not_used_too_early_because_a_call_failed_or_a_capture_was_open(void)
{
    TEST_ASSERT_TRUE(holds(failing_strict));
    TEST_ASSERT_TRUE(holds(failing_deferred));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_threads_never_share_bytes);
    RUN_TEST(test_threads_never_get_bytes_that_another_threads_stream_works_on);
    RUN_TEST(test_threads_that_come_and_go_never_share_bytes);
    RUN_TEST(test_a_strict_free_has_waited_for_all_work_on_its_block);
    RUN_TEST(test_blocks_passed_between_threads_at_work_are_not_used_again_too_early);
    RUN_TEST(test_blocks_are_not_used_too_early_because_a_call_failed_or_a_capture_was_open);
    return UNITY_END();
}

/* The pool under many threads that hand blocks to one another: no byte is in two blocks, no free fails, the
 * figures stay within the budget, and at the end nothing is left. Each case is a process of its own. */
#include "tests/unit/interpose/apart.h"
#include "tests/unit/interpose/engine_owners.h"

#include <errno.h>
#include <unity.h>

#define THREADS 4
#define PLACES  1024 /* where blocks lie that any thread may free */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STEPS 100000
#else
#define STEPS 400000
#endif

static struct pool pool;
static struct owners_budget budget;
static struct owners owners;

struct block {
    uint64_t address, bytes;
};

static struct {
    pthread_mutex_t lock; /* one for a few places: handing over is an order between threads */
    struct block block;
} places[PLACES];

static atomic_bool stop;
static atomic_uint_fast64_t refusals;

void setUp(void) {}

void tearDown(void) {}

struct thread {
    pthread_t id;
    unsigned number, bits; /* of the largest size */
    uint64_t steps;
    bool pins;
};

static void give(const struct block *block)
{
    owners_set(&owners, block->address, block->bytes, false);
    CHECK(pool_free(&pool, block->address, true) == 0);
}

static bool take(struct thread *thread, struct fake_random *random, struct block *block)
{
    block->bytes = 1 + fake_below(random, UINT64_C(1) << (4 + fake_below(random, thread->bits - 3)));
    const int rc = pool_alloc(&pool, block->bytes, &block->address);

    if (rc) {
        CHECK(rc == -ENOMEM);
        atomic_fetch_add(&refusals, 1);
        *block = (struct block){0};
        return false;
    }
    owners_set(&owners, block->address, block->bytes, true);
    return true;
}

/* The block in a place for another, either of which may be none. */
static struct block exchange(unsigned i, struct block block)
{
    pthread_mutex_lock(&places[i].lock);
    const struct block before = places[i].block;
    places[i].block = block;
    pthread_mutex_unlock(&places[i].lock);
    return before;
}

/* Pins it for a moment, or for as long as it lies there. */
static void pin(const struct block *block, struct fake_random *random)
{
    struct pool_block known;

    if (fake_below(random, 64))
        return;
    CHECK(pool_pin(&pool, block->address) == 0);
    CHECK(pool_block(&pool, block->address + block->bytes - 1, true, &known) == 0);
    CHECK(known.address == block->address && known.asked == block->bytes && known.pins);
    CHECK(pool_unpin(&pool, block->address) == 0);
}

static void *run(void *argument)
{
    struct thread *thread = argument;
    struct fake_random random = {.state = 7919 * (thread->number + 1)};

    for (uint64_t i = 0; i < thread->steps; i++) {
        struct block block = {0};

        if (fake_below(&random, 2) && take(thread, &random, &block) && thread->pins)
            pin(&block, &random);
        block = exchange((unsigned)fake_below(&random, PLACES), block);
        if (block.bytes)
            give(&block);
        if (i % 5000 == 4999)
            pool_trim(&pool, fake_below(&random, 4 * MIB));
    }
    return NULL;
}

/* Looks at the figures while the others work. */
static void *watch(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop)) {
        const struct pool_stats s = pool_stats(&pool);

        CHECK(s.live <= s.physical && s.cached <= s.physical && s.pending <= s.physical);
        CHECK(s.peak_live <= s.peak_physical && s.live_count < UINT32_MAX && s.stranded <= s.physical);
        CHECK(pool_check(&pool) == NULL);
        sched_yield();
    }
    return NULL;
}

static void start(uint64_t limit)
{
    fake_start(limit);
    owners_open_pool(&pool, &budget, limit);
    owners_open(&owners, &pool);
    for (unsigned i = 0; i < PLACES; i++)
        pthread_mutex_init(&places[i].lock, NULL);
}

/* All threads have ended; the blocks that lie about are freed here. */
static void finish(void)
{
    for (unsigned i = 0; i < PLACES; i++) {
        if (places[i].block.bytes)
            give(&places[i].block);
    }
    const struct pool_stats s = pool_stats(&pool);
    CHECK(pool_check(&pool) == NULL && s.live == 0 && s.live_count == 0 && s.cached == s.physical);
    pool_trim(&pool, UINT64_MAX);
    CHECK(fake_physical() == 0 && atomic_load(&budget.used) == 0);
    pool_close(&pool, true);
    owners_close(&owners);
    fake_end();
}

static void swarm(struct thread kind, bool watched)
{
    struct thread threads[THREADS];
    pthread_t watcher;

    if (watched)
        CHECK(pthread_create(&watcher, NULL, watch, NULL) == 0);
    for (unsigned i = 0; i < THREADS; i++) {
        threads[i] = kind;
        threads[i].number = i;
        threads[i].steps *= fake_number("GPUCAP_TEST_TIMES", 1);
        CHECK(pthread_create(&threads[i].id, NULL, run, &threads[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i].id, NULL) == 0);
    atomic_store(&stop, true);
    if (watched)
        CHECK(pthread_join(watcher, NULL) == 0);
}

static void test_small_blocks_of_many_threads_never_overlap(void)
{
    start(GIB);
    swarm((struct thread){.bits = 13, .steps = STEPS}, false);
    CHECK(atomic_load(&refusals) == 0);
    finish();
}

static void test_blocks_of_all_kinds_pass_from_thread_to_thread(void)
{
    start(GIB);
    swarm((struct thread){.bits = 17, .steps = STEPS / 4, .pins = true}, false);
    CHECK(atomic_load(&refusals) == 0);
    finish();
}

/* About what lives at a time: refusals, stolen blocks, extents that come and go. */
static void test_a_swarm_at_its_limit_loses_nothing(void)
{
    start(4 * MIB);
    swarm((struct thread){.bits = 17, .steps = STEPS / 8}, false);
    CHECK(atomic_load(&refusals) > 0);
    finish();
}

static void test_figures_stay_within_what_is_there_while_blocks_pass_between_threads(void)
{
    start(GIB);
    swarm((struct thread){.bits = 16, .steps = STEPS / 4}, true);
    finish();
}

/* ---- pins ---- */

#define TURNS 20000

static atomic_uint here;
static uint64_t pinned;

static void *unpin_each(void *unused)
{
    (void)unused;
    for (unsigned turn = 1; turn <= TURNS; turn++) {
        owners_meet(&here, 2 * turn - 1);
        CHECK(pool_unpin(&pool, pinned) == 0);
        owners_meet(&here, 2 * turn);
    }
    return NULL;
}

/* One thread frees, another takes the pin away: the free succeeds, and nothing is lost. */
static void test_a_free_succeeds_while_a_pin_is_taken_away(void)
{
    pthread_t other;

    start(GIB);
    CHECK(pthread_create(&other, NULL, unpin_each, NULL) == 0);
    for (unsigned turn = 1; turn <= TURNS; turn++) {
        CHECK(pool_alloc(&pool, turn % 2 ? 512 : 50000, &pinned) == 0);
        CHECK(pool_pin(&pool, pinned) == 0);
        owners_meet(&here, 2 * turn - 1);
        CHECK(pool_free(&pool, pinned, true) == 0);
        owners_meet(&here, 2 * turn);
    }
    CHECK(pthread_join(other, NULL) == 0);
    finish();
}

int main(void)
{
    UNITY_BEGIN();
    RUN_APART(test_small_blocks_of_many_threads_never_overlap);
    RUN_APART(test_blocks_of_all_kinds_pass_from_thread_to_thread);
    RUN_APART(test_a_swarm_at_its_limit_loses_nothing);
    RUN_APART(test_figures_stay_within_what_is_there_while_blocks_pass_between_threads);
    RUN_APART(test_a_free_succeeds_while_a_pin_is_taken_away);
    return UNITY_END();
}

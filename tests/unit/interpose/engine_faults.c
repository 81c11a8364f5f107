/* The pool when driver calls or the limit fail: in each scene every driver call fails in turn, then every
 * call from it on. The answer must be "out of memory", nothing may be lost or leaked, and afterwards
 * everything must work as before. */
#include "tests/unit/interpose/apart.h"
#include "tests/unit/interpose/engine_model.h"

#include <errno.h>
#include <unity.h>

#define NEVER (UINT64_C(1) << 60)

static struct model model;

void setUp(void) {}

void tearDown(void) {}

/* Leaves 2 and 4 MiB holes between live blocks, the chunks of a large block, and some blocks with pending
 * work. */
static void build(bool busy)
{
    model_open(&model, GIB, GIB);
    for (int i = 0; i < 40; i++)
        CHECK(model_alloc(&model, (i % 2 ? 2 : 4) * MIB) == 0);
    CHECK(model_alloc(&model, 600 * MIB) == 0);
    if (busy) {
        for (size_t i = 0; i < model.count; i += 4)
            model_work(&model, i % 8 == 0, &model.blocks[i]);
    }
    model_free(&model, model.count - 1, !busy);
    for (size_t i = 0; i < 20; i++)
        model_free(&model, i, !busy);
    model_check(&model);
}

/* Stitches and grows at once: more than what is free, less than what the card has. */
static int scene_alloc(void)
{
    return model_alloc(&model, 800 * MIB);
}

static int scene_trim(void)
{
    pool_trim(&model.pool, UINT64_MAX);
    return 0;
}

struct scene {
    int (*run)(void);
    unsigned mask;
    uint64_t more; /* calls that fail after the first */
    bool busy;
};

/* Returns whether any call failed at all. */
static bool fail_at(const struct scene *scene, uint64_t nth)
{
    build(scene->busy);
    const size_t blocks = model.count;
    fake_fail(scene->mask, nth, scene->more);
    const int rc = scene->run();
    const bool failed = fake_failed() > 0;
    CHECK(rc == 0 || rc == -ENOMEM);
    CHECK(rc == 0 || (failed && model.count == blocks));
    fake_fail(0, 0, 0);
    model_check(&model);
    if (rc)
        CHECK(scene->run() == 0);
    model_check(&model);
    while (model.count)
        model_free(&model, 0, true);
    for (unsigned s = 0; s < FAKE_STREAMS; s++) {
        while (fake_progress(s))
            ;
    }
    pool_trim(&model.pool, UINT64_MAX);
    pool_trim(&model.pool, UINT64_MAX);
    CHECK(fake_physical() == 0 && model.held == 0);
    model_close(&model);
    return failed;
}

static const struct scene *playing;

static void play(void)
{
    uint64_t nth = 1;

    while (fail_at(playing, nth))
        nth++;
    CHECK(nth > 1);
}

static void play_all(const struct scene *scenes, size_t count)
{
    for (playing = scenes; playing < scenes + count; playing++) {
        char text[64];

        snprintf(text, sizeof(text), "scene %d", (int)(playing - scenes));
        TEST_ASSERT_TRUE_MESSAGE(fake_child(play), text);
    }
}

static void test_any_one_call_may_fail(void)
{
    const unsigned all = (1 << FAKE_CALLS) - 1;
    const struct scene scenes[] = {
        {scene_alloc, all, 0, false},
        {scene_alloc, all, 0, true},
        {scene_trim, all, 0, false},
        {scene_trim, all, 0, true},
    };

    play_all(scenes, sizeof(scenes) / sizeof(*scenes));
}

/* The way back fails too. What can be neither used nor unmapped is held until it can be. */
static void test_all_calls_from_one_on_may_fail(void)
{
    const unsigned all = (1 << FAKE_CALLS) - 1, most = all & ~(1U << FAKE_UNMAP);
    const unsigned mapping = 1 << FAKE_MAP | 1 << FAKE_ACCESS | 1 << FAKE_UNMAP;
    const struct scene scenes[] = {
        {scene_alloc, most, NEVER, false},
        {scene_alloc, most, NEVER, true},
        {scene_alloc, 1 << FAKE_CREATE, NEVER, false},
        {scene_alloc, 1 << FAKE_MAP, NEVER, false},
        {scene_alloc, 1 << FAKE_ACCESS, NEVER, false},
        {scene_alloc, 1 << FAKE_MAP | 1 << FAKE_ACCESS, 1, true},
        {scene_trim, 1 << FAKE_UNMAP, NEVER, false},
        {scene_alloc, all, NEVER, false},
        {scene_alloc, all, NEVER, true},
        {scene_alloc, mapping, NEVER, false},
        {scene_alloc, mapping, 1, false}, /* unmapping all at once fails */
        {scene_alloc, mapping, 2, true},  /* and the last of them */
        {scene_alloc, mapping, 4, false},
    };

    play_all(scenes, sizeof(scenes) / sizeof(*scenes));
}

static uint64_t charged;

static bool charge(void *owner, uint64_t bytes)
{
    (void)owner;
    charged += bytes;
    return true;
}

static void settle_charge(void *owner, uint64_t bytes, bool success)
{
    (void)owner;
    charged -= success ? 0 : bytes;
}

static void give_charge(void *owner, uint64_t bytes)
{
    (void)owner;
    charged -= bytes;
}

/* A pool that cannot be opened leaves nothing behind, also on the account. */
static void test_a_pool_that_cannot_be_opened_leaves_nothing(void)
{
    const struct pool_budget any = {.take = charge, .settle = settle_charge, .give = give_charge};
    struct pool pool;

    for (uint64_t nth = 1;; nth++) {
        fake_start(GIB);
        fake_fail((1 << FAKE_CALLS) - 1, nth, 0);
        const int rc = pool_open(&pool, FAKE_CONTEXT, 0, &any, 0);
        const bool failed = fake_failed() > 0;
        CHECK(rc == 0 || failed);
        CHECK(charged == fake_physical());
        if (rc == 0)
            pool_close(&pool, true);
        fake_end();
        CHECK(charged == 0);
        if (!failed)
            break;
    }
    fake_fail(1 << FAKE_RESERVE, 1, NEVER);
    CHECK(pool_open(&pool, FAKE_CONTEXT, 0, &any, 0) == -ENOMEM);
    fake_end();
}

/* A chunk is split into smaller ones, which cannot be used and at first not be unmapped either. */
static void test_pieces_of_a_chunk_that_get_stuck_go_back_later(void)
{
    model_open(&model, 4 * GIB, 4 * GIB);
    CHECK(model_alloc(&model, GIB) == 0);
    model_free(&model, 0, true);
    fake_fail(1U << FAKE_ACCESS | 1U << FAKE_UNMAP, 2, 2); /* the first call unmaps the chunk */
    CHECK(model_alloc(&model, 16 * MIB) == 0 && fake_failed() == 3);
    fake_fail(0, 0, 0);
    model_check(&model);
    model_free(&model, 0, true);
    pool_trim(&model.pool, UINT64_MAX);
    CHECK(fake_physical() == 0 && model.held == 0);
    /* The next sweep is enough for them. */
    CHECK(model_alloc(&model, GIB) == 0);
    model_free(&model, 0, true);
    fake_fail(1U << FAKE_ACCESS | 1U << FAKE_UNMAP, 2, 2);
    CHECK(model_alloc(&model, 16 * MIB) == 0);
    fake_fail(0, 0, 0);
    CHECK(model.pool.stuck_bytes > 0);
    pool_sweep(&model.pool);
    CHECK(model.pool.stuck_bytes == 0);
    model_check(&model);
    /* And so is a request that needs their memory. */
    model_free(&model, 0, true);
    CHECK(model_alloc(&model, GIB) == 0);
    model_free(&model, 0, true);
    fake_fail(1U << FAKE_ACCESS | 1U << FAKE_UNMAP, 2, 2);
    CHECK(model_alloc(&model, 16 * MIB) == 0);
    fake_fail(0, 0, 0);
    CHECK(model.pool.stuck_bytes > 0);
    model_free(&model, 0, true);
    model.allowed = fake_physical();
    CHECK(model_alloc(&model, model.allowed) == 0 && model.pool.stuck_bytes == 0);
    model.allowed = 4 * GIB;
    model_free(&model, 0, true);
    pool_trim(&model.pool, UINT64_MAX);
    /* One that the block covers is not split. */
    CHECK(model_alloc(&model, GIB) == 0);
    model_free(&model, 0, true);
    const uint64_t created = fake_count(FAKE_CREATE);
    CHECK(model_alloc(&model, GIB / 4) == 0 && fake_count(FAKE_CREATE) == created);
    model_free(&model, 0, true);
    model_close(&model);
}

/* The helper thread trims only where memory is idle, and afterwards none may be. */
static void test_the_next_sweep_releases_chunks_that_could_not_be_released(void)
{
    model_open(&model, 4 * GIB, 4 * GIB);
    CHECK(model_alloc(&model, GIB) == 0);
    model_free(&model, 0, true);
    fake_fail(1U << FAKE_RELEASE, 1, NEVER);
    pool_trim(&model.pool, UINT64_MAX);
    fake_fail(0, 0, 0);
    CHECK(fake_physical() == GIB && pool_idle_bytes(&model.pool) == 0);
    pool_sweep(&model.pool);
    CHECK(fake_physical() == 0 && model.held == 0);
    model_close(&model);
}

/* ---- the limit ---- */

/* A pool tries out what the card can do, within the limit too. */
static void test_opening_a_pool_does_not_pass_the_limit(void)
{
    model_open(&model, GIB, 0);
    CHECK(fake_count(FAKE_CREATE) == 0);
    CHECK(model_alloc(&model, 1) == -ENOMEM);
    model.allowed = 2 * MIB;
    CHECK(model_alloc(&model, 2 * MIB) == 0);
    model_close(&model);
    model_open(&model, GIB, 2 * MIB);
    CHECK(fake_count(FAKE_CREATE) == 1 && model.granted == 0 && model.held == 0);
    model_close(&model);
}

static void test_the_limit_is_never_passed_and_a_refusal_costs_nothing(void)
{
    model_open(&model, GIB, 64 * MIB);
    const uint64_t made = fake_count(FAKE_CREATE);
    CHECK(model_alloc(&model, 65 * MIB) == -ENOMEM);
    CHECK(fake_physical() == 0 && fake_count(FAKE_CREATE) == made); /* nothing is taken towards it */
    for (int i = 0; i < 3; i++)
        CHECK(model_alloc(&model, 16 * MIB) == 0);
    model_free(&model, 1, true);
    const uint64_t held = fake_count(FAKE_CREATE);
    CHECK(model_alloc(&model, 40 * MIB) == -ENOMEM && fake_count(FAKE_CREATE) == held);
    model_free(&model, 1, true);
    model_free(&model, 0, true);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 48 * MIB);
    CHECK(model_alloc(&model, 64 * MIB) == 0);
    CHECK(model_alloc(&model, 1) == -ENOMEM);
    model_check(&model);
    model_free(&model, 0, true);
    model.allowed = 16 * MIB; /* lowered below what is held */
    CHECK(model_alloc(&model, 64 * MIB) == 0);
    CHECK(model_alloc(&model, 2 * MIB) == -ENOMEM);
    model_free(&model, 0, true);
    CHECK(pool_trim(&model.pool, 48 * MIB) == 48 * MIB);
    model_check(&model);
    model_close(&model);
}

/* ---- waiting instead ---- */

/* All memory is behind pending work of two streams. */
static void three_rounds(void)
{
    for (int round = 0; round < 3; round++) {
        CHECK(model_alloc(&model, 32 * MIB) == 0 && model_alloc(&model, 32 * MIB) == 0);
        model_work(&model, 0, &model.blocks[0]);
        model_work(&model, 1, &model.blocks[1]);
        model_free(&model, 0, false);
        model_free(&model, 0, false);
        CHECK(pool_stats(&model.pool).pending == 64 * MIB);
        CHECK(model_alloc(&model, 64 * MIB) == 0);
        model_free(&model, 0, false);
    }
}

/* Other threads use the pool while one waits. */
static void lock_is_free(void)
{
    CHECK(pthread_mutex_trylock(&model.pool.lock.mutex) == 0);
    pthread_mutex_unlock(&model.pool.lock.mutex);
}

static void test_a_request_waits_for_work_rather_than_fail(void)
{
    model_open(&model, 64 * MIB, 64 * MIB);
    fence_forbid_joins();
    fake_on_synchronize = lock_is_free;
    three_rounds();
    fake_on_synchronize = NULL;
    const struct pool_stats s = pool_stats(&model.pool);
    CHECK(s.waits >= 3 && s.wait_ns && s.wait_ns <= s.room_ns && s.joins == 0);
    model_close(&model);
}

/* The work of the second stream came after a drain, so only the later rounds have anything to be behind. */
static void test_a_request_is_met_in_the_devices_own_order_where_that_is_enough(void)
{
    model_open(&model, 64 * MIB, 64 * MIB);
    three_rounds();
    const struct pool_stats s = pool_stats(&model.pool);
    CHECK(s.joins >= 3 && s.waits == 0);
    CHECK(fake_backlog(0) + fake_backlog(1) > 0); /* the pool has not waited for it */
    model_close(&model);
}

static void test_a_request_waits_where_the_driver_refuses_to_order(void)
{
    model_open(&model, 64 * MIB, 64 * MIB);
    fake_fail(1 << FAKE_WAIT, 1, NEVER);
    three_rounds();
    const struct pool_stats s = pool_stats(&model.pool);
    CHECK(s.joins == 0 && s.waits >= 3 && fake_failed() >= 3);
    model_close(&model);
}

/* 64 MiB are free, apart from another block whose work is not done. */
static uint64_t beside_a_large_range(uint64_t bytes)
{
    model_open(&model, GIB, GIB);
    CHECK(model_alloc(&model, bytes) == 0 && model_alloc(&model, 2 * MIB) == 0 &&
          model_alloc(&model, 64 * MIB) == 0);
    const uint64_t large = model.blocks[2].address;
    for (unsigned stream = 0; stream < 3; stream++)
        model_work(&model, stream % 2, &model.blocks[0]);
    model_free(&model, 2, true);
    model_free(&model, 0, false);
    CHECK(pool_stats(&model.pool).pending == bytes && model.count == 1);
    return large;
}

static void no_large_range_is_broken(void)
{
    const uint64_t large = beside_a_large_range(16 * MIB);

    CHECK(model_alloc(&model, 16 * MIB) == 0);
    CHECK(model.blocks[0].bytes == 16 * MIB && model.blocks[0].address < large);
    CHECK(model_alloc(&model, 64 * MIB) == 0 && model.blocks[2].address == large);
    const struct pool_stats s = pool_stats(&model.pool);
    CHECK(s.joins == 1 && s.waits == 0 && s.stitches == 0 && s.physical == 82 * MIB);
    model_close(&model);
}

static void a_good_fit_needs_no_order(void)
{
    const uint64_t large = beside_a_large_range(60 * MIB);

    CHECK(model_alloc(&model, 60 * MIB) == 0 && model.blocks[1].address == large);
    CHECK(pool_stats(&model.pool).joins == 0 && pool_stats(&model.pool).pending == 60 * MIB);
    model_close(&model);
}

static void test_streams_are_joined_rather_than_a_range_broken(void)
{
    TEST_ASSERT_TRUE(fake_child(no_large_range_is_broken));
    TEST_ASSERT_TRUE(fake_child(a_good_fit_needs_no_order));
}

/* At the limit a chunk that is too large has to be given up for a smaller one. What is only in order may be
 * used again, but its work must have ended before it is unmapped. */
static void test_what_is_only_in_order_is_not_given_up_before_its_work_is_done(void)
{
    model_open(&model, 64 * GIB, 64 * GIB);
    for (int i = 0; i < 32; i++)
        CHECK(model_alloc(&model, 8 * MIB) == 0); /* a chunk each */
    model.allowed = model.held;
    for (unsigned stream = 0; stream < 3; stream++)
        model_work(&model, stream % 2, &model.blocks[20 - 10 * (stream % 2)]);
    model_free(&model, 20, false);
    model_free(&model, 10, false);
    CHECK(model_alloc(&model, 12 * MIB) == 0); /* from one of the chunks, and half of the other's bytes */
    const struct pool_stats s = pool_stats(&model.pool);
    CHECK(s.joins == 1 && s.waits == 1 && s.physical == 252 * MIB);
    model_close(&model);
}

/* The program has waited itself; what was freed before must be found without an event. */
static void test_what_was_freed_before_the_programs_own_wait_is_found(void)
{
    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(model_alloc(&model, 32 * MIB) == 0 && model_alloc(&model, 32 * MIB) == 0);
    model_work(&model, 0, &model.blocks[0]);
    model_work(&model, 1, &model.blocks[1]);
    model_free(&model, 0, false);
    model_free(&model, 0, false);
    const uint64_t epoch = fence_wait_begin(&model.pool.fence);
    CHECK(driver.cuCtxSynchronize() == CUDA_SUCCESS);
    fence_wait_end(&model.pool.fence, epoch, true);
    fake_fail(1 << FAKE_RECORD | 1 << FAKE_EVENT_CREATE, 1, NEVER);
    CHECK(model_alloc(&model, 64 * MIB) == 0);
    model_close(&model);
}

/* While one thread waits, another takes the memory and frees it behind new work: that must be waited for as
 * well. */
static int thefts;

static void *steal(void *unused)
{
    uint64_t address;

    (void)unused;
    CHECK(driver.cuCtxSynchronize() == CUDA_SUCCESS);
    fence_poll(&model.pool.fence);
    if (pool_alloc(&model.pool, 48 * MIB, &address) == 0) {
        const bool foreign = streams_submit_begin(model_stream(2));
        fake_work(2, address, 48 * MIB, NEVER);
        if (foreign)
            streams_submit_end();
        CHECK(pool_free(&model.pool, address, false) == 0);
    }
    return NULL;
}

static void let_steal(void)
{
    pthread_t thief;

    if (thefts == 0)
        return;
    thefts--;
    fake_on_synchronize = NULL;
    CHECK(pthread_create(&thief, NULL, steal, NULL) == 0 && pthread_join(thief, NULL) == 0);
    fake_on_synchronize = let_steal;
}

static void test_a_request_waits_again_if_others_took_what_came_free(void)
{
    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(model_alloc(&model, 64 * MIB) == 0);
    model_work(&model, 0, &model.blocks[0]);
    model_work(&model, 1, &model.blocks[0]);
    model_free(&model, 0, false);
    fence_forbid_joins();
    thefts = 3;
    fake_on_synchronize = let_steal;
    CHECK(model_alloc(&model, 64 * MIB) == 0);
    CHECK(thefts == 0);
    model_close(&model);
}

static void take_and_keep(void)
{
    uint64_t address;

    fake_on_synchronize = NULL;
    CHECK(driver.cuCtxSynchronize() == CUDA_SUCCESS);
    fence_poll(&model.pool.fence);
    CHECK(pool_alloc(&model.pool, 48 * MIB, &address) == 0 && pool_free(&model.pool, address, true) == 0);
}

/* While a request waits, a thread takes the memory and frees it again, and keeps it for its next request. */
static void test_a_request_finds_what_a_thread_has_kept_meanwhile(void)
{
    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(model_alloc(&model, 64 * MIB) == 0);
    model_work(&model, 0, &model.blocks[0]);
    model_work(&model, 1, &model.blocks[0]);
    model_free(&model, 0, false);
    fence_forbid_joins();
    fake_on_synchronize = take_and_keep;
    CHECK(model_alloc(&model, 64 * MIB) == 0 && !fake_on_synchronize);
    model_close(&model);
}

static void test_memory_is_plain_where_the_platform_refuses_more(void)
{
    struct vmm vmm;

    fake_start(GIB);
    CHECK(vmm_open(&vmm, 0) == 0 && vmm_try(&vmm) == 0);
    CHECK(vmm.properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CHECK(vmm_decompresses(&vmm));
    vmm_close(&vmm);
    fake_no_decompression();
    CHECK(vmm_open(&vmm, 0) == 0 && vmm_try(&vmm) == 0);
    CHECK(vmm.properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CHECK(!vmm_decompresses(&vmm));
    vmm_close(&vmm);
    fake_plain_only();
    CHECK(vmm_open(&vmm, 0) == 0 && vmm_try(&vmm) == 0);
    CHECK(vmm.properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE);
    CHECK(!vmm_decompresses(&vmm)); /* the card could, and that is not said of this memory */
    vmm_close(&vmm);
    fake_end();
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_any_one_call_may_fail);
    RUN_TEST(test_all_calls_from_one_on_may_fail);
    RUN_APART(test_a_pool_that_cannot_be_opened_leaves_nothing);
    RUN_APART(test_pieces_of_a_chunk_that_get_stuck_go_back_later);
    RUN_APART(test_the_next_sweep_releases_chunks_that_could_not_be_released);
    RUN_APART(test_opening_a_pool_does_not_pass_the_limit);
    RUN_APART(test_the_limit_is_never_passed_and_a_refusal_costs_nothing);
    RUN_APART(test_a_request_waits_for_work_rather_than_fail);
    RUN_APART(test_a_request_is_met_in_the_devices_own_order_where_that_is_enough);
    RUN_APART(test_a_request_waits_where_the_driver_refuses_to_order);
    RUN_TEST(test_streams_are_joined_rather_than_a_range_broken);
    RUN_APART(test_what_is_only_in_order_is_not_given_up_before_its_work_is_done);
    RUN_APART(test_what_was_freed_before_the_programs_own_wait_is_found);
    RUN_APART(test_a_request_waits_again_if_others_took_what_came_free);
    RUN_APART(test_a_request_finds_what_a_thread_has_kept_meanwhile);
    RUN_APART(test_memory_is_plain_where_the_platform_refuses_more);
    return UNITY_END();
}

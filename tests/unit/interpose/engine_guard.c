/* pool_guard: each block in pages of its own, over the fake driver. Each case is a process of its own,
 * because the fence remembers which streams have worked. */
#include "tests/unit/interpose/apart.h"
#include "tests/unit/interpose/engine_model.h"

#include <errno.h>
#include <stdlib.h>
#include <unity.h>

#define ALLOWED (128 * MIB)

static struct model model;

void setUp(void) {}

void tearDown(void) {}

static void open_guarded(void)
{
    model_open(&model, 2 * ALLOWED, ALLOWED);
    pool_guard(&model.pool);
}

/* The block ends where its pages end, and the pages before and behind are unmapped. */
static void check_guards(const struct model_block *block)
{
    const uint64_t end = (block->address + block->bytes + 511) / 512 * 512;
    const uint64_t pages = (block->bytes + RANGES_PAGE - 1) / RANGES_PAGE * RANGES_PAGE;

    CHECK(block->address % 512 == 0 && end % RANGES_PAGE == 0);
    CHECK(fake_usable(block->address, block->bytes));
    CHECK(!fake_usable(end, 1) && !fake_usable(end + RANGES_PAGE - 1, 1));
    CHECK(!fake_usable(end - pages - 1, 1) && !fake_usable(end - pages - RANGES_PAGE, 1));
}

/* Addresses inside, and only those, are the block's. */
static void check_found(const struct model_block *block)
{
    struct pool_block found;

    CHECK(pool_block(&model.pool, block->address, false, &found) == 0 && found.asked == block->bytes);
    CHECK(pool_block(&model.pool, block->address + block->bytes - 1, true, &found) == 0);
    CHECK(found.address == block->address);
    CHECK(pool_block(&model.pool, block->address + block->bytes, true, &found) == -EINVAL);
    CHECK(pool_block(&model.pool, block->address - 1, true, &found) == -EINVAL);
}

static void check_all(void)
{
    model_check(&model);
    for (size_t i = 0; i < model.count; i++) {
        check_guards(&model.blocks[i]);
        check_found(&model.blocks[i]);
    }
}

static void free_one(size_t i, bool done)
{
    model_free(&model, i, done);
    pool_trim(&model.pool, UINT64_MAX);
}

static void end_all_work(void)
{
    for (unsigned s = 0; s < FAKE_STREAMS; s++) {
        while (fake_progress(s))
            ;
    }
}

static void close_guarded(void)
{
    end_all_work();
    while (model.count)
        free_one(model.count - 1, false);
    CHECK(pool_stats(&model.pool).physical == 0 && fake_mapped() == 0);
    CHECK(pool_stats(&model.pool).hits == 0); /* each block was mapped for itself */
    model_close(&model);
}

/* ---- random life ---- */

static void step(bool strict)
{
    const uint64_t what = fake_below(&model.random, 10);

    if (what < 4) {
        const uint64_t bytes = model_size(&model, 25);

        /* A refusal is right only if pages for it are not there, even without what waits for work. */
        if (model_alloc(&model, bytes))
            CHECK(model.live + bytes + RANGES_PAGE > ALLOWED);
    } else if (what < 8 && model.count) {
        free_one(fake_below(&model.random, model.count), strict);
    } else if (!strict && model.count) {
        model_work(&model, (unsigned)fake_below(&model.random, FAKE_STREAMS),
                   &model.blocks[fake_below(&model.random, model.count)]);
    } else if (!strict) {
        fake_progress((unsigned)fake_below(&model.random, FAKE_STREAMS));
    }
    if (strict)
        CHECK(pool_stats(&model.pool).cached == 0 && fake_mapped() == model.live);
}

static void live(bool strict)
{
    open_guarded();
    for (int i = 0; i < 3000; i++) {
        step(strict);
        if (i % 50 == 0)
            check_all();
    }
    close_guarded();
}

static void test_every_block_has_unmapped_pages_on_both_sides(void)
{
    live(true);
}

static void test_the_same_behind_work_of_many_streams(void)
{
    live(false);
}

/* ---- frees ---- */

static void test_a_freed_block_is_unmapped_when_its_work_is_done(void)
{
    open_guarded();
    CHECK(model_alloc(&model, 1000) == 0 && model_alloc(&model, 5 * MIB) == 0);
    const struct model_block first = model.blocks[0], second = model.blocks[1];
    model_work(&model, 1, &first);
    free_one(0, false);
    free_one(0, true);
    CHECK(fake_usable(first.address, first.bytes)); /* its work is not done */
    CHECK(!fake_usable(second.address, 1) && !fake_usable(second.address + second.bytes - 1, 1));
    end_all_work();
    pool_trim(&model.pool, UINT64_MAX);
    CHECK(!fake_usable(first.address, 1));
    close_guarded();
}

static void go_on(void)
{
    uint64_t last = 0;

    open_guarded();
    for (int i = 0; i < 1000; i++) {
        CHECK(model_alloc(&model, 1 + (uint64_t)i * 4096) == 0);
        CHECK(model.blocks[0].address > last + RANGES_PAGE);
        last = model.blocks[0].address + model.blocks[0].bytes;
        free_one(0, true);
    }
    close_guarded();
}

/* Nor by the thread that freed them, before any trim. */
static void free_untrimmed(void)
{
    static const uint64_t sizes[] = {1000, 100000, 4 * MIB};

    open_guarded();
    for (int i = 0; i < 3; i++) {
        CHECK(model_alloc(&model, sizes[i]) == 0);
        const uint64_t address = model.blocks[0].address;
        model_free(&model, 0, true);
        CHECK(model_alloc(&model, sizes[i]) == 0 && model.blocks[0].address != address);
        CHECK(!fake_usable(address, 1));
        free_one(0, true);
    }
    close_guarded();
}

static void test_addresses_are_not_used_again_soon(void)
{
    TEST_ASSERT_TRUE(fake_child(go_on));
    TEST_ASSERT_TRUE(fake_child(free_untrimmed));
}

static void test_the_search_begins_again_at_the_end_of_the_address_space(void)
{
    open_guarded();
    const uint64_t end = model.pool.vmm.base + model.pool.vmm.span;
    CHECK(model_alloc(&model, MIB) == 0);
    for (uint64_t pages = 1; pages < 6; pages++) { /* with and without room before the end */
        model.pool.guard_next = end - pages * RANGES_PAGE;
        CHECK(model_alloc(&model, 2 * MIB) == 0 && model_alloc(&model, 3 * MIB) == 0);
        check_all();
    }
    CHECK(model.count == 11);
    close_guarded();
}

/* ---- at the limit ---- */

static void test_at_the_limit_freed_memory_is_waited_for_only_if_it_is_enough(void)
{
    open_guarded();
    while (model_alloc(&model, 1000) == 0)
        ;
    CHECK(model.count == ALLOWED / RANGES_PAGE && model.held == ALLOWED);
    model_work(&model, 2, &model.blocks[7]);
    model_free(&model, 7, false);
    CHECK(model_alloc(&model, 3 * MIB) == -ENOMEM); /* the freed page is not enough: no wait */
    CHECK(fake_backlog(2) == 1);
    CHECK(model_alloc(&model, 2 * MIB) == 0); /* waits for the work */
    CHECK(fake_backlog(2) == 0 && pool_stats(&model.pool).waits == 1);
    check_all();
    close_guarded();
}

static void test_what_others_hold_stays_mapped_until_they_are_done(void)
{
    struct vmm_chunk *chunks;
    uint64_t count, offset;

    open_guarded();
    CHECK(model_alloc(&model, 1000) == 0);
    const struct model_block block = model.blocks[0];
    CHECK(pool_pin(&model.pool, block.address) == 0);
    CHECK(pool_backing(&model.pool, block.address, &chunks, &count, &offset) == 0);
    CHECK(count == 1 && chunks[0].bytes == RANGES_PAGE && offset == RANGES_PAGE - 1024);
    free(chunks);
    free_one(0, true);
    CHECK(fake_usable(block.address, block.bytes)); /* others hold it */
    CHECK(pool_unpin(&model.pool, block.address) == 0);
    pool_trim(&model.pool, UINT64_MAX);
    CHECK(!fake_usable(block.address, 1));
    close_guarded();
}

/* ---- a driver that fails ---- */

static void test_a_call_that_fails_leaves_all_as_it_was(void)
{
    const unsigned all =
        1 << FAKE_CREATE | 1 << FAKE_MAP | 1 << FAKE_ACCESS | 1 << FAKE_UNMAP | 1 << FAKE_RELEASE;

    open_guarded();
    CHECK(model_alloc(&model, 100) == 0);
    for (uint64_t more = 0; more < 3; more++) {
        for (uint64_t nth = 1; nth < 8; nth++) {
            const size_t before = model.count;

            fake_fail(all, nth, more);
            model_alloc(&model, 3 * MIB);
            while (model.count > before)
                free_one(model.count - 1, true);
            fake_fail(all, 0, 0);
            pool_trim(&model.pool, UINT64_MAX);
            pool_trim(&model.pool, UINT64_MAX);
            CHECK(fake_physical() == RANGES_PAGE && model.held == RANGES_PAGE);
            check_all();
        }
    }
    close_guarded();
}

int main(void)
{
    UNITY_BEGIN();
    RUN_APART(test_every_block_has_unmapped_pages_on_both_sides);
    RUN_APART(test_the_same_behind_work_of_many_streams);
    RUN_APART(test_a_freed_block_is_unmapped_when_its_work_is_done);
    RUN_TEST(test_addresses_are_not_used_again_soon);
    RUN_APART(test_the_search_begins_again_at_the_end_of_the_address_space);
    RUN_APART(test_at_the_limit_freed_memory_is_waited_for_only_if_it_is_enough);
    RUN_APART(test_what_others_hold_stays_mapped_until_they_are_done);
    RUN_APART(test_a_call_that_fails_leaves_all_as_it_was);
    return UNITY_END();
}

/* ipc_exports: the table of exported blocks, by id and by address. Pools are the test's own. */
#include "interpose/share/ipc_exports.h"

#include <errno.h>
#include <stdlib.h>
#include <unity.h>

#include "interpose/pool/pool_blocks.h"
#include "interpose/share/ipc_page.h"

static struct pool pools[2];
static struct pool_block live; /* the block at any address */
static int live_rc;
static int visited;
static uint64_t visited_ids[4];

int pool_block(struct pool *pool, uint64_t address, bool inside, struct pool_block *block)
{
    (void)pool, (void)address;
    TEST_ASSERT_FALSE_MESSAGE(inside, "a block is known by its first byte");
    *block = live;
    return live_rc;
}

static struct ipc_exported *add(int pool, uint64_t address)
{
    struct ipc_exported *e = calloc(1, sizeof(*e));

    TEST_ASSERT_NOT_NULL(e);
    e->pool = &pools[pool];
    e->address = address;
    e->chunks = malloc(8);
    TEST_ASSERT_EQUAL_INT(0, ipc_exports_add(e));
    return e;
}

static void note_visit(struct ipc_exported *e, void *argument)
{
    TEST_ASSERT_EQUAL_PTR(&visited, argument);
    if (visited < 4)
        visited_ids[visited] = e->id;
    visited++;
}

static int count_all(void)
{
    visited = 0;
    ipc_exports_each(note_visit, &visited);
    return visited;
}

void setUp(void)
{
    live_rc = 0;
}

void tearDown(void)
{
    ipc_exports_after_fork();
    TEST_ASSERT_EQUAL_INT(0, count_all());
}

static void test_an_export_is_found_by_its_id_and_by_its_block(void)
{
    struct ipc_exported *a = add(0, 0x1000), *b = add(1, 0x1000), *c = add(0, 0x2000);

    TEST_ASSERT_EQUAL_PTR(a, ipc_exports_find(a->id));
    TEST_ASSERT_EQUAL_PTR(b, ipc_exports_find(b->id));
    TEST_ASSERT_NULL_MESSAGE(ipc_exports_find(a->id + IPC_SLOTS), "another id of the same slot");
    TEST_ASSERT_NULL(ipc_exports_find(c->id + 1));
    TEST_ASSERT_EQUAL_PTR(a, ipc_exports_find_block(&pools[0], 0x1000));
    TEST_ASSERT_EQUAL_PTR_MESSAGE(b, ipc_exports_find_block(&pools[1], 0x1000), "of the other pool");
    TEST_ASSERT_NULL(ipc_exports_find_block(&pools[1], 0x2000));
    TEST_ASSERT_EQUAL_INT(3, count_all());
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(c->id, visited_ids[0], "the newest first");
    TEST_ASSERT_EQUAL_UINT64(a->id, visited_ids[2]);
}

static void test_a_removed_export_is_gone_and_no_other(void)
{
    struct ipc_exported *a = add(0, 0x1000), *b = add(1, 0x1000); /* of one hash */
    const uint64_t id = a->id;

    ipc_exports_remove(a);
    TEST_ASSERT_NULL(ipc_exports_find(id));
    TEST_ASSERT_NULL(ipc_exports_find_block(&pools[0], 0x1000));
    TEST_ASSERT_EQUAL_PTR(b, ipc_exports_find_block(&pools[1], 0x1000));
    a = add(0, 0x1000);
    TEST_ASSERT_GREATER_THAN_UINT64_MESSAGE(b->id, a->id, "no id is given twice");
    ipc_exports_remove(b);
    TEST_ASSERT_EQUAL_PTR(a, ipc_exports_find_block(&pools[0], 0x1000));
    TEST_ASSERT_EQUAL_INT(1, count_all());
}

static void test_an_export_is_live_while_its_own_block_is(void)
{
    struct ipc_exported *a = add(0, 0x1000);

    a->block_id = 5;
    live.id = 5;
    TEST_ASSERT_TRUE(ipc_exports_is_live(a));
    live.id = 6;
    TEST_ASSERT_FALSE_MESSAGE(ipc_exports_is_live(a), "another block lies there now");
    live.id = 5;
    live_rc = -EINVAL;
    TEST_ASSERT_FALSE(ipc_exports_is_live(a));
}

static void test_a_full_table_is_told(void)
{
    struct ipc_exported one_more = {.pool = &pools[0], .address = 1};
    struct ipc_exported *first = add(0, 512), *second = add(0, 1024);

    for (uint64_t i = 2; i < IPC_SLOTS; i++)
        add(0, 512 * (i + 1));
    TEST_ASSERT_EQUAL_INT(-ENOSPC, ipc_exports_add(&one_more));
    const uint64_t free_slot = second->id % IPC_SLOTS;
    ipc_exports_remove(second);
    const struct ipc_exported *last = add(0, 1024);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(free_slot, last->id % IPC_SLOTS, "the only slot that is free");
    TEST_ASSERT_EQUAL_PTR(first, ipc_exports_find_block(&pools[0], 512));
    TEST_ASSERT_EQUAL_INT(IPC_SLOTS, count_all());
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_an_export_is_found_by_its_id_and_by_its_block);
    RUN_TEST(test_a_removed_export_is_gone_and_no_other);
    RUN_TEST(test_an_export_is_live_while_its_own_block_is);
    RUN_TEST(test_a_full_table_is_told);
    return UNITY_END();
}

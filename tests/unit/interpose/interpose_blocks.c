/* blocks: random operations against a plain array that cannot be wrong, then several threads at once.
 * mappings: how long a released handle that is mapped stays in the account. */
#include "interpose/account/blocks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unity.h>

#include "interpose/account/mappings.h"

#define KEYS       20000
#define OPERATIONS 300000
#define CONTEXTS   5
#define THREADS    8

struct model {
    bool live;
    struct block block;
};
static struct model model[KEYS];
static uint64_t live;

static _Thread_local int locks; /* that this thread holds */
static _Atomic int64_t mapped;  /* bytes */

int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    locks++;
    return __real_pthread_mutex_lock(lock);
}

int __real_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock)
{
    locks--;
    return __real_pthread_mutex_unlock(lock);
}

void *__real_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    atomic_fetch_add(&mapped, (int64_t)length);
    return __real_mmap(address, length, protection, flags, fd, offset);
}

int __real_munmap(void *address, size_t length);
int __wrap_munmap(void *address, size_t length);
int __wrap_munmap(void *address, size_t length)
{
    atomic_fetch_sub(&mapped, (int64_t)length);
    return __real_munmap(address, length);
}

void setUp(void)
{
    blocks_clear();
    memset(model, 0, sizeof(model));
    live = 0;
}

void tearDown(void)
{
    blocks_clear();
}

/* Addresses as a driver gives them, handles that count up from one, and the ends of the range. */
static uint64_t key_of(unsigned index)
{
    switch (index % 4) {
    case 0:
        return UINT64_C(0x7f0000000000) + (uint64_t)index * (2 << 20);
    case 1:
        return UINT64_C(0x300000000) + (uint64_t)index * 512;
    case 2:
        return 1 + index;
    default:
        return UINT64_MAX - index;
    }
}

/* The same index has always the same kind, so that one index is one thing. */
static enum blocks_kind kind_of(unsigned index)
{
    static const enum blocks_kind kinds[] = {BLOCKS_LINEAR, BLOCKS_MANAGED, BLOCKS_HANDLE,
                                             BLOCKS_ARRAY,  BLOCKS_MIPMAP,  BLOCKS_ASYNC};

    return kinds[index / 4 % 6];
}

static struct block block_of(unsigned index, unsigned salt)
{
    return (struct block){
        .key = key_of(index),
        .bytes = (uint64_t)salt << 12 | 1,
        .context = salt % CONTEXTS ? (void *)(uintptr_t)(0x1000 * (salt % CONTEXTS)) : NULL,
        .device = (int)(salt % 16),
        .kind = kind_of(index),
    };
}

static bool same(const struct block *a, const struct block *b)
{
    return a->key == b->key && a->bytes == b->bytes && a->context == b->context && a->device == b->device &&
           a->kind == b->kind;
}

static void add(unsigned index, unsigned salt)
{
    struct block block = block_of(index, salt);

    TEST_ASSERT_EQUAL_INT(0, blocks_reserve());
    blocks_add(&block);
    model[index] = (struct model){true, block};
    live++;
}

/* Taken for good, or taken and put back as after a free that the driver refused. */
static void take(unsigned index, bool put_back)
{
    struct block block;
    const bool found = blocks_take(kind_of(index), key_of(index), &block);

    TEST_ASSERT_EQUAL_INT(model[index].live, found);
    if (!found)
        return;
    TEST_ASSERT_TRUE(same(&model[index].block, &block));
    if (put_back) {
        blocks_add(&block);
        return;
    }
    blocks_cancel();
    model[index].live = false;
    live--;
}

static int index_of(const struct block *block)
{
    for (int i = 0; i < KEYS; i++) {
        if (model[i].live && same(&model[i].block, block))
            return i;
    }
    return -1;
}

static void end_context(void *context)
{
    struct block block;

    while (blocks_take_of_context(context, &block)) {
        int index = index_of(&block);

        TEST_ASSERT_TRUE_MESSAGE(index >= 0, "a block that was never added");
        TEST_ASSERT_EQUAL_PTR(context, block.context);
        model[index].live = false;
        live--;
    }
    for (int i = 0; i < KEYS; i++)
        TEST_ASSERT_FALSE_MESSAGE(model[i].live && model[i].block.context == context, "a block was left");
}

static void test_any_sequence_gives_what_a_plain_array_gives(void)
{
    unsigned seed = 12345;

    for (int i = 0; i < OPERATIONS; i++) {
        unsigned r = (unsigned)rand_r(&seed), index = (unsigned)rand_r(&seed) % KEYS;

        /* Waves: the table fills, empties and fills again. */
        if (r % 100 < (i / 30000 % 2 ? 35u : 65u)) {
            if (!model[index].live)
                add(index, r);
        } else {
            take(index, r % 7 == 0);
        }
        if (r % 50000 == 0)
            end_context((void *)(uintptr_t)(0x1000 * (1 + r % (CONTEXTS - 1))));
        if (i % 2500 == 0)
            TEST_ASSERT_EQUAL_STRING(NULL, blocks_check());
        TEST_ASSERT_EQUAL_UINT64(live, blocks_count());
    }
    for (unsigned i = 0; i < KEYS; i++)
        take(i, false);
    TEST_ASSERT_EQUAL_UINT64(0, blocks_count());
    TEST_ASSERT_EQUAL_STRING(NULL, blocks_check());
}

static void test_one_number_may_be_an_address_and_several_handles(void)
{
    static const enum blocks_kind kinds[] = {BLOCKS_LINEAR, BLOCKS_HANDLE, BLOCKS_ARRAY, BLOCKS_MIPMAP};
    struct block out;

    for (int i = 0; i < 4; i++) {
        TEST_ASSERT_EQUAL_INT(0, blocks_reserve());
        blocks_add(&(struct block){.key = 4096, .bytes = (uint64_t)i + 1, .kind = kinds[i]});
    }
    for (int i = 3; i >= 0; i--) {
        TEST_ASSERT_TRUE(blocks_take(kinds[i], 4096, &out));
        TEST_ASSERT_EQUAL_UINT64((uint64_t)i + 1, out.bytes);
        blocks_cancel();
        TEST_ASSERT_FALSE(blocks_take(kinds[i], 4096, &out));
    }
}

static void test_any_free_finds_any_address(void)
{
    static const enum blocks_kind kinds[] = {BLOCKS_LINEAR, BLOCKS_MANAGED, BLOCKS_ASYNC};
    struct block out;

    for (int i = 0; i < 9; i++) {
        TEST_ASSERT_EQUAL_INT(0, blocks_reserve());
        blocks_add(&(struct block){.key = 4096, .bytes = 1, .kind = kinds[i / 3]});
        TEST_ASSERT_TRUE(blocks_take(kinds[i % 3], 4096, &out));
        TEST_ASSERT_EQUAL_INT(kinds[i / 3], out.kind);
        blocks_cancel();
    }
}

static void test_memory_without_a_context_outlives_every_context(void)
{
    struct block out;

    TEST_ASSERT_FALSE(blocks_take_of_context(NULL, &out));
    add(2, 0);
    TEST_ASSERT_NULL(model[2].block.context);
    TEST_ASSERT_FALSE(blocks_take_of_context(NULL, &out));
    TEST_ASSERT_FALSE(blocks_take_of_context((void *)0x1000, &out));
    take(2, false);
}

static void add_unique(unsigned i)
{
    TEST_ASSERT_EQUAL_INT(0, blocks_reserve());
    blocks_add(&(struct block){.key = key_of(4 * i), .kind = BLOCKS_LINEAR, .bytes = 1});
}

static void test_what_is_reserved_has_room_however_late_it_comes(void)
{
    for (unsigned i = 0; i < 5000; i++)
        TEST_ASSERT_EQUAL_INT(0, blocks_reserve());
    TEST_ASSERT_NULL(blocks_check());
    for (unsigned i = 0; i < 5000; i++)
        blocks_add(&(struct block){.key = key_of(4 * i), .kind = BLOCKS_LINEAR, .bytes = i});
    TEST_ASSERT_NULL(blocks_check());
    TEST_ASSERT_EQUAL_UINT64(5000, blocks_count());
}

static void test_a_table_that_grows_leaves_no_memory_behind(void)
{
    blocks_clear();
    const int64_t before = atomic_load(&mapped);
    for (unsigned i = 0; i < 5000; i++)
        add_unique(i);
    TEST_ASSERT_GREATER_THAN_INT64(before, atomic_load(&mapped));
    blocks_clear();
    TEST_ASSERT_EQUAL_INT64(before, atomic_load(&mapped));
}

static void look(const struct block *block, void *seen)
{
    TEST_ASSERT_EQUAL_UINT64(1, block->bytes);
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, locks, "another thread could change the table");
    ++*(unsigned *)seen;
}

static void test_blocks_are_listed_under_the_lock(void)
{
    unsigned seen = 0;

    for (unsigned i = 0; i < 5; i++)
        add_unique(i);
    blocks_each(look, &seen);
    TEST_ASSERT_EQUAL_UINT(5, seen);
    TEST_ASSERT_EQUAL_INT(0, locks);
}

static void test_an_empty_table_knows_nothing(void)
{
    struct block out;

    TEST_ASSERT_FALSE(blocks_take(BLOCKS_LINEAR, 4096, &out));
    TEST_ASSERT_FALSE(blocks_take_of_context((void *)0x1000, &out));
    TEST_ASSERT_EQUAL_STRING(NULL, blocks_check());
    TEST_ASSERT_EQUAL_INT(0, blocks_reserve());
    blocks_cancel();
    TEST_ASSERT_EQUAL_UINT64(0, blocks_count());
}

/* The test's own time limit is the assertion: a walk from the start for each block would take minutes. */
static void test_the_end_of_a_context_with_many_blocks_is_quick(void)
{
    const unsigned many = 200000;
    struct block out;
    uint64_t found = 0;

    for (unsigned i = 0; i < many; i++) {
        TEST_ASSERT_EQUAL_INT(0, blocks_reserve());
        blocks_add(&(struct block){.key = (uint64_t)i << 21,
                                   .bytes = 1,
                                   .context = (void *)(uintptr_t)(i % 2 ? 0x1000 : 0x2000),
                                   .kind = BLOCKS_LINEAR});
    }
    while (blocks_take_of_context((void *)0x1000, &out))
        found++;
    TEST_ASSERT_EQUAL_UINT64(many / 2, found);
    TEST_ASSERT_EQUAL_UINT64(many / 2, blocks_count());
    TEST_ASSERT_EQUAL_STRING(NULL, blocks_check());
}

/* Each thread has its own keys, so it knows what it must find; the table is common to all. */
static void *work(void *argument)
{
    const uint64_t base = (uint64_t)(uintptr_t)argument << 32;
    unsigned seed = (unsigned)(uintptr_t)argument;
    bool mine[512] = {false};
    uintptr_t wrong = 0;

    for (int i = 0; i < 20000; i++) {
        unsigned slot = (unsigned)rand_r(&seed) % 512;
        struct block block = {.key = base + slot, .bytes = base + slot, .kind = BLOCKS_LINEAR};

        if (mine[slot]) {
            wrong += !blocks_take(BLOCKS_LINEAR, base + slot, &block) || block.bytes != base + slot;
            blocks_cancel();
        } else {
            wrong += blocks_take(BLOCKS_LINEAR, base + slot, &block) || blocks_reserve();
            blocks_add(&block);
        }
        mine[slot] = !mine[slot];
    }
    for (unsigned slot = 0; slot < 512; slot++) {
        struct block block;

        if (mine[slot]) {
            wrong += !blocks_take(BLOCKS_LINEAR, base + slot, &block);
            blocks_cancel();
        }
    }
    return (void *)wrong;
}

static void test_threads_find_their_own_blocks_and_no_others(void)
{
    pthread_t threads[THREADS];

    for (uintptr_t i = 0; i < THREADS; i++)
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[i], NULL, work, (void *)(i + 1)));
    for (int i = 0; i < THREADS; i++) {
        void *wrong;

        pthread_join(threads[i], &wrong);
        TEST_ASSERT_NULL(wrong);
    }
    TEST_ASSERT_EQUAL_UINT64(0, blocks_count());
    TEST_ASSERT_EQUAL_STRING(NULL, blocks_check());
}

/* ---- mappings ---- */

static void test_a_released_handle_is_charged_until_its_last_mapping_is_gone(void)
{
    const struct block released = {.key = 7, .bytes = 300, .device = 3, .kind = BLOCKS_HANDLE};
    struct block gone = {.bytes = 0};

    mappings_clear();
    TEST_ASSERT_FALSE(mappings_keep(&released)); /* it is not mapped */
    mappings_add(0x1000, 7);
    mappings_add(0x2000, 7);
    TEST_ASSERT_TRUE(mappings_keep(&released));
    TEST_ASSERT_FALSE(mappings_remove(0x2000, 0x100, &gone));
    TEST_ASSERT_TRUE(mappings_remove(0x1000, 0x100, &gone));
    TEST_ASSERT_EQUAL_UINT64(7, gone.key);
    TEST_ASSERT_EQUAL_UINT64(300, gone.bytes);
    TEST_ASSERT_EQUAL_INT(3, gone.device);
    TEST_ASSERT_FALSE(mappings_remove(0x1000, 0x100, &gone));
}

static void test_a_handle_that_the_program_got_back_is_not_charged_twice(void)
{
    const struct block released = {.key = 7, .bytes = 300, .device = 3, .kind = BLOCKS_HANDLE};
    struct block back;

    mappings_clear();
    mappings_add(0x1000, 7);
    TEST_ASSERT_FALSE(mappings_take_back(7, &back)); /* it was not released */
    TEST_ASSERT_TRUE(mappings_keep(&released));
    TEST_ASSERT_FALSE(mappings_take_back(8, &back));
    TEST_ASSERT_TRUE(mappings_take_back(7, &back));
    TEST_ASSERT_EQUAL_UINT64(300, back.bytes);
    TEST_ASSERT_EQUAL_INT(3, back.device);
    TEST_ASSERT_FALSE(mappings_take_back(7, &back));
    TEST_ASSERT_FALSE(mappings_remove(0x1000, 0x100, &back)); /* the program's handle keeps it now */
}

/* Mapped in any order; an unmap removes what begins in its range, and nothing beside it. */
static void test_an_unmap_removes_exactly_its_range(void)
{
    static const uint64_t order[] = {3, 1, 4, 0, 2};
    struct block block;

    mappings_clear();
    for (int i = 0; i < 5; i++) {
        mappings_add(0x1000 + order[i] * 0x100, 1 + order[i]);
        TEST_ASSERT_TRUE(mappings_keep(
            &(struct block){.key = 1 + order[i], .bytes = 1 + order[i], .kind = BLOCKS_HANDLE}));
    }
    for (uint64_t i = 1; i < 4; i++) {
        TEST_ASSERT_TRUE(mappings_remove(0x1100, 0x300, &block));
        TEST_ASSERT_EQUAL_UINT64(1 + i, block.bytes);
    }
    TEST_ASSERT_FALSE(mappings_remove(0x1100, 0x300, &block));
    TEST_ASSERT_TRUE(mappings_remove(0x1000, 0x100, &block));
    TEST_ASSERT_TRUE(mappings_remove(0x1400, 0x100, &block));
    TEST_ASSERT_EQUAL_UINT64(5, block.bytes);
    mappings_clear();
}

static void test_a_retained_handle_is_released_as_often_as_it_was_retained(void)
{
    struct block block = {.key = 5, .kind = BLOCKS_HANDLE, .bytes = 4096}, out;

    TEST_ASSERT_EQUAL_INT(0, blocks_reserve());
    blocks_add(&(struct block){.key = 5, .kind = BLOCKS_LINEAR, .bytes = 512});
    TEST_ASSERT_FALSE_MESSAGE(blocks_hold(5), "an address is no handle");
    TEST_ASSERT_EQUAL_INT(0, blocks_reserve());
    blocks_add(&block);
    TEST_ASSERT_TRUE(blocks_hold(5));
    TEST_ASSERT_TRUE(blocks_hold(5));
    TEST_ASSERT_TRUE(blocks_take(BLOCKS_HANDLE, 5, &out));
    TEST_ASSERT_EQUAL_UINT(2, out.holds);
    TEST_ASSERT_FALSE(blocks_hold(5));
    TEST_ASSERT_TRUE(blocks_take(BLOCKS_LINEAR, 5, &out));
    TEST_ASSERT_EQUAL_UINT(0, out.holds);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_released_handle_is_charged_until_its_last_mapping_is_gone);
    RUN_TEST(test_a_handle_that_the_program_got_back_is_not_charged_twice);
    RUN_TEST(test_an_unmap_removes_exactly_its_range);
    RUN_TEST(test_any_sequence_gives_what_a_plain_array_gives);
    RUN_TEST(test_one_number_may_be_an_address_and_several_handles);
    RUN_TEST(test_any_free_finds_any_address);
    RUN_TEST(test_memory_without_a_context_outlives_every_context);
    RUN_TEST(test_what_is_reserved_has_room_however_late_it_comes);
    RUN_TEST(test_a_table_that_grows_leaves_no_memory_behind);
    RUN_TEST(test_blocks_are_listed_under_the_lock);
    RUN_TEST(test_an_empty_table_knows_nothing);
    RUN_TEST(test_the_end_of_a_context_with_many_blocks_is_quick);
    RUN_TEST(test_threads_find_their_own_blocks_and_no_others);
    RUN_TEST(test_a_retained_handle_is_released_as_often_as_it_was_retained);
    return UNITY_END();
}

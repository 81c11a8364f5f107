/* blocks: see blocks.h. An open-addressing table with linear probing and backward-shift deletion: without
 * tombstones the table does not degrade in a long-lived program. */
#include "interpose/account/blocks.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_CAPACITY 4096 /* places; a power of two */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static struct block *table;
static uint64_t capacity, count, reserved;
static uint64_t cursor; /* where blocks_take_of_context continues */

static unsigned space(enum blocks_kind kind)
{
    return kind <= BLOCKS_ASYNC ? BLOCKS_LINEAR : kind;
}

static uint64_t home(enum blocks_kind kind, uint64_t key)
{
    uint64_t h = (key ^ ((uint64_t)space(kind) << 56)) * UINT64_C(0x9e3779b97f4a7c15);

    return (h ^ h >> 32) & (capacity - 1);
}

static struct block *map_table(uint64_t places)
{
    void *memory =
        mmap(NULL, places * sizeof(struct block), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static void insert(const struct block *block)
{
    uint64_t i = home(block->kind, block->key);

    while (table[i].kind != BLOCKS_NONE)
        i = (i + 1) & (capacity - 1);
    table[i] = *block;
}

static int grow(void)
{
    struct block *old = table;
    const uint64_t old_capacity = capacity;
    struct block *bigger = map_table(old ? old_capacity * 2 : FIRST_CAPACITY);

    if (!bigger)
        return -ENOMEM;
    table = bigger;
    capacity = old ? old_capacity * 2 : FIRST_CAPACITY;
    for (uint64_t i = 0; i < old_capacity; i++) {
        if (old[i].kind != BLOCKS_NONE)
            insert(&old[i]);
    }
    if (old)
        munmap(old, old_capacity * sizeof(*old));
    return 0;
}

int blocks_reserve(void)
{
    int rc = 0;

    pthread_mutex_lock(&lock);
    if (4 * (count + reserved + 1) > 3 * capacity)
        rc = grow();
    if (rc == 0)
        reserved++;
    pthread_mutex_unlock(&lock);
    return rc;
}

void blocks_cancel(void)
{
    pthread_mutex_lock(&lock);
    reserved--;
    pthread_mutex_unlock(&lock);
}

void blocks_add(const struct block *block)
{
    pthread_mutex_lock(&lock);
    reserved--;
    insert(block);
    count++;
    pthread_mutex_unlock(&lock);
}

static struct block *find(enum blocks_kind kind, uint64_t key)
{
    if (!table)
        return NULL;
    for (uint64_t i = home(kind, key); table[i].kind != BLOCKS_NONE; i = (i + 1) & (capacity - 1)) {
        if (table[i].key == key && space(table[i].kind) == space(kind))
            return &table[i];
    }
    return NULL;
}

/* Empties a place and moves later blocks of the same run back, so that every block can be reached from its
 * home. */
static void erase(struct block *place)
{
    uint64_t hole = (uint64_t)(place - table);

    for (uint64_t i = (hole + 1) & (capacity - 1); table[i].kind != BLOCKS_NONE;
         i = (i + 1) & (capacity - 1)) {
        uint64_t h = home(table[i].kind, table[i].key);

        if (((i - h) & (capacity - 1)) >= ((i - hole) & (capacity - 1))) {
            table[hole] = table[i];
            hole = i;
        }
    }
    table[hole].kind = BLOCKS_NONE;
    count--;
}

bool blocks_take(enum blocks_kind kind, uint64_t key, struct block *out)
{
    pthread_mutex_lock(&lock);
    struct block *found = find(kind, key);
    if (found) {
        *out = *found;
        erase(found);
        reserved++;
    }
    pthread_mutex_unlock(&lock);
    return found != NULL;
}

/* Continues where the last block was found: a walk from the start for each of 100,000 blocks would take
 * minutes. Erasing may move a later block into the place, so it is looked at again. */
bool blocks_take_of_context(const void *context, struct block *out)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (uint64_t n = 0; n < capacity && !found; n++) {
        struct block *place = &table[cursor & (capacity - 1)];

        found = place->kind != BLOCKS_NONE && place->context && place->context == context;
        if (found) {
            *out = *place;
            erase(place);
        } else {
            cursor++;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void blocks_each(void (*visit)(const struct block *block, void *argument), void *argument)
{
    pthread_mutex_lock(&lock);
    for (uint64_t i = 0; i < capacity; i++) {
        if (table[i].kind != BLOCKS_NONE)
            visit(&table[i], argument);
    }
    pthread_mutex_unlock(&lock);
}

uint64_t blocks_count(void)
{
    pthread_mutex_lock(&lock);
    uint64_t n = count;
    pthread_mutex_unlock(&lock);
    return n;
}

/* Lock held. */
static const char *check_table(void)
{
    uint64_t seen = 0;

    for (uint64_t i = 0; i < capacity; i++) {
        if (table[i].kind == BLOCKS_NONE)
            continue;
        seen++;
        if (find(table[i].kind, table[i].key) != &table[i])
            return "a block is not found where it is";
    }
    if (seen != count)
        return "the count of blocks is wrong";
    return 4 * (count + reserved) > 3 * capacity ? "the table is too full" : NULL;
}

const char *blocks_check(void)
{
    pthread_mutex_lock(&lock);
    const char *wrong = check_table();
    pthread_mutex_unlock(&lock);
    return wrong;
}

void blocks_clear(void)
{
    pthread_mutex_lock(&lock);
    if (table)
        munmap(table, capacity * sizeof(*table));
    table = NULL;
    capacity = count = reserved = 0;
    pthread_mutex_unlock(&lock);
}

/* blocks: see blocks.h. */
#include "interpose/account/blocks.h"

#include <pthread.h>
#include <stdatomic.h>

#include "interpose/base/table.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static struct table table;
static uint64_t reserved;
static uint64_t cursor; /* where blocks_take_of_context continues */

static _Atomic uint64_t live; /* table.count, for blocks_count */

static const struct table_of blocks = {sizeof(struct block), true};

/* Linear, managed and async blocks share one space. */
static enum blocks_kind space_of(enum blocks_kind kind)
{
    return kind <= BLOCKS_ASYNC ? BLOCKS_LINEAR : kind;
}

static struct block *find(enum blocks_kind kind, uint64_t key)
{
    return table_find(&table, &blocks, &(struct block){.key = key, .space = space_of(kind)});
}

static void erase(struct block *block)
{
    table_erase(&table, &blocks, block);
    atomic_store_explicit(&live, table.count, memory_order_relaxed);
}

int blocks_reserve(void)
{
    pthread_mutex_lock(&lock);
    const int rc = table_prepare(&table, &blocks, reserved + 1);
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
    struct block added = *block;

    added.space = space_of(block->kind);
    pthread_mutex_lock(&lock);
    reserved--;
    table_put(&table, &blocks, &added);
    atomic_store_explicit(&live, table.count, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
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

bool blocks_hold(uint64_t handle)
{
    pthread_mutex_lock(&lock);
    struct block *found = find(BLOCKS_HANDLE, handle);
    if (found)
        found->holds++;
    pthread_mutex_unlock(&lock);
    return found != NULL;
}

/* Continues where the last block was found: a walk from the start for each of 100,000 blocks would take
 * minutes. Erasing may move a later block into the place, so it is looked at again. */
bool blocks_take_of_context(const void *context, struct block *out)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (uint64_t n = 0; n < table.capacity && !found; n++) {
        struct block *place = table_at(&table, &blocks, cursor);

        found = context && place->context == context;
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
    const struct block *block;

    pthread_mutex_lock(&lock);
    for (uint64_t at = 0; (block = table_next(&table, &blocks, &at));)
        visit(block, argument);
    pthread_mutex_unlock(&lock);
}

uint64_t blocks_count(void)
{
    return atomic_load_explicit(&live, memory_order_relaxed);
}

const char *blocks_check(void)
{
    pthread_mutex_lock(&lock);
    const char *wrong = table_check(&table, &blocks);
    if (!wrong && 2 * (table.count + reserved) > table.capacity)
        wrong = "the table is too full";
    if (!wrong && live != table.count)
        wrong = "blocks_count is wrong";
    pthread_mutex_unlock(&lock);
    return wrong;
}

void blocks_clear(void)
{
    pthread_mutex_lock(&lock);
    table_close(&table, &blocks);
    reserved = 0;
    live = 0;
    pthread_mutex_unlock(&lock);
}

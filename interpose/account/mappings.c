/* mappings: see mappings.h. An array in the order of addresses: programs map upwards, so most additions are
 * at its end. A table has the mapped handles. */
#include "interpose/account/mappings.h"

#include <pthread.h>

#include "interpose/base/table.h"

#define FIRST_CAPACITY 1024

struct mapping {
    uint64_t address, handle;
};

struct handle {
    uint64_t number;
    uint32_t space;  /* 1 */
    int device;      /* the card of what it keeps */
    uint64_t mapped; /* how often */
    uint64_t kept;   /* its charged bytes, if it was released; 0: none */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static struct mapping *all;
static uint64_t count, capacity;
static struct table handles;
static const struct table_of of_handles = {sizeof(struct handle), true};

/* Returns the first mapping at or behind an address. */
static uint64_t first_from(uint64_t address)
{
    uint64_t low = 0, high = count;

    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;

        if (all[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct handle *find(uint64_t number)
{
    return table_find(&handles, &of_handles, &(struct handle){.number = number, .space = 1});
}

/* Takes the block that a handle keeps, as the table of blocks had it. Returns false if it keeps none. */
static bool take_kept(struct handle *handle, struct block *block)
{
    if (!handle || !handle->kept)
        return false;
    *block = (struct block){
        .key = handle->number, .bytes = handle->kept, .device = handle->device, .kind = BLOCKS_HANDLE};
    handle->kept = 0;
    return true;
}

/* Makes room for one more mapping. */
static bool prepare(void)
{
    if (table_prepare(&handles, &of_handles, 1))
        return false;
    struct mapping *grown = pages_grow(all, &capacity, count, count + 1, sizeof(*all), FIRST_CAPACITY);
    all = grown ? grown : all;
    return grown;
}

void mappings_add(uint64_t address, uint64_t handle)
{
    pthread_mutex_lock(&lock);
    if (prepare()) {
        const uint64_t place = first_from(address);

        memmove(&all[place + 1], &all[place], (count - place) * sizeof(*all));
        all[place] = (struct mapping){address, handle};
        count++;
        if (!find(handle))
            table_put(&handles, &of_handles, &(struct handle){.number = handle, .space = 1});
        find(handle)->mapped++;
    }
    pthread_mutex_unlock(&lock);
}

bool mappings_keep(const struct block *block)
{
    pthread_mutex_lock(&lock);
    struct handle *handle = find(block->key);
    if (handle) {
        handle->kept = block->bytes;
        handle->device = block->device;
    }
    pthread_mutex_unlock(&lock);
    return handle != NULL;
}

bool mappings_take_back(uint64_t handle, struct block *out)
{
    pthread_mutex_lock(&lock);
    const bool found = take_kept(find(handle), out);
    pthread_mutex_unlock(&lock);
    return found;
}

/* Removes one mapping. Returns true with the block that its handle kept, if that is mapped nowhere else. */
static bool remove_one(uint64_t place, struct block *gone)
{
    struct handle *handle = find(all[place].handle);

    memmove(&all[place], &all[place + 1], (count - place - 1) * sizeof(*all));
    count--;
    if (--handle->mapped)
        return false;
    const bool kept = take_kept(handle, gone);
    table_erase(&handles, &of_handles, handle);
    return kept;
}

bool mappings_remove(uint64_t address, uint64_t bytes, struct block *gone)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    const uint64_t place = first_from(address);
    while (!found && place < count && all[place].address - address < bytes)
        found = remove_one(place, gone);
    pthread_mutex_unlock(&lock);
    return found;
}

void mappings_clear(void)
{
    pthread_mutex_lock(&lock);
    if (all)
        munmap(all, capacity * sizeof(*all));
    all = NULL;
    count = capacity = 0;
    table_close(&handles, &of_handles);
    pthread_mutex_unlock(&lock);
}

/* mappings: see mappings.h. An array in the order of addresses: programs map upwards, so most additions are
 * at its end. */
#include "interpose/account/mappings.h"

#include <pthread.h>

#include "interpose/base/pages.h"

#define FIRST_CAPACITY 1024

struct mapping {
    uint64_t address, bytes, handle;
    uint64_t kept; /* charged bytes of the released handle; 0: none */
    int device;    /* their card */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static struct mapping *all;
static uint64_t count, capacity;

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

/* Returns the newest mapping of a handle by address, or NULL. */
static struct mapping *of_handle(uint64_t handle)
{
    for (uint64_t i = count; i > 0; i--) {
        if (all[i - 1].handle == handle)
            return &all[i - 1];
    }
    return NULL;
}

/* Returns the block that a mapping keeps, as the table of blocks had it. */
static struct block block_of(const struct mapping *mapping)
{
    return (struct block){
        .key = mapping->handle, .bytes = mapping->kept, .device = mapping->device, .kind = BLOCKS_HANDLE};
}

static bool grow(void)
{
    struct mapping *bigger =
        pages_grow(all, &capacity, count, count + 1, sizeof(struct mapping), FIRST_CAPACITY);

    if (bigger)
        all = bigger;
    return bigger != NULL;
}

void mappings_add(uint64_t address, uint64_t bytes, uint64_t handle)
{
    pthread_mutex_lock(&lock);
    if (count < capacity || grow()) {
        const uint64_t place = first_from(address);

        memmove(&all[place + 1], &all[place], (count - place) * sizeof(*all));
        all[place] = (struct mapping){.address = address, .bytes = bytes, .handle = handle};
        count++;
    }
    pthread_mutex_unlock(&lock);
}

bool mappings_keep(const struct block *block)
{
    pthread_mutex_lock(&lock);
    struct mapping *mapping = of_handle(block->key);
    if (mapping) {
        mapping->kept = block->bytes;
        mapping->device = block->device;
    }
    pthread_mutex_unlock(&lock);
    return mapping != NULL;
}

bool mappings_take_back(uint64_t handle, struct block *out)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (uint64_t i = 0; i < count && !found; i++) {
        found = all[i].handle == handle && all[i].kept;
        if (found) {
            *out = block_of(&all[i]);
            all[i].kept = 0;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Removes one mapping. Returns true if it kept a block that no other mapping of the handle can keep. */
static bool remove_one(uint64_t place, struct block *gone)
{
    const struct mapping removed = all[place];

    memmove(&all[place], &all[place + 1], (count - place - 1) * sizeof(*all));
    count--;
    if (!removed.kept)
        return false;
    struct mapping *other = of_handle(removed.handle);
    if (other) {
        other->kept = removed.kept;
        other->device = removed.device;
    } else {
        *gone = block_of(&removed);
    }
    return !other;
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
    pthread_mutex_unlock(&lock);
}

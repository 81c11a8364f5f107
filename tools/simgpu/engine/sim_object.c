/* sim_object: an open-addressing hash set of live handles. See sim_object.h. Never dereferences a handle. */
#include "tools/simgpu/engine/sim_object.h"

#include <stdint.h>
#include <stdlib.h>

#define FIRST_SLOTS 256u

struct slot {
    const void *handle;
    enum sim_object_kind kind;
};

static struct slot *slots;
static size_t slot_count; /* a power of two, or 0 */
static size_t used;
static unsigned long counts[OBJECT_KINDS];

static size_t home_of(const void *handle, size_t mask)
{
    uint64_t hash = (uint64_t)(uintptr_t)handle * UINT64_C(0x9E3779B97F4A7C15);

    return (size_t)(hash >> 20) & mask;
}

static struct slot *find(const void *handle)
{
    size_t mask = slot_count - 1, i;

    if (slot_count == 0)
        return NULL;
    for (i = home_of(handle, mask); slots[i].handle; i = (i + 1) & mask)
        if (slots[i].handle == handle)
            return &slots[i];
    return NULL;
}

static void place(struct slot *table, size_t mask, struct slot item)
{
    size_t i = home_of(item.handle, mask);

    while (table[i].handle)
        i = (i + 1) & mask;
    table[i] = item;
}

static bool grow(void)
{
    size_t wanted = slot_count ? slot_count * 2 : FIRST_SLOTS, i;
    struct slot *table = calloc(wanted, sizeof(*table));

    if (!table)
        return false;
    for (i = 0; i < slot_count; i++)
        if (slots[i].handle)
            place(table, wanted - 1, slots[i]);
    free(slots);
    slots = table;
    slot_count = wanted;
    return true;
}

bool sim_object_add(const void *handle, enum sim_object_kind kind)
{
    if ((used + 1) * 2 > slot_count && !grow())
        return false;
    place(slots, slot_count - 1, (struct slot){handle, kind});
    used++;
    counts[kind]++;
    return true;
}

void sim_object_remove(const void *handle)
{
    struct slot *slot = find(handle), moved;
    size_t mask = slot_count - 1, i;

    if (!slot)
        return;
    counts[slot->kind]--;
    used--;
    slot->handle = NULL;
    /* Entries that a collision pushed past this slot must stay reachable: insert them again. */
    for (i = ((size_t)(slot - slots) + 1) & mask; slots[i].handle; i = (i + 1) & mask) {
        moved = slots[i];
        slots[i].handle = NULL;
        place(slots, mask, moved);
    }
}

bool sim_object_is(const void *handle, enum sim_object_kind kind)
{
    struct slot *slot = handle ? find(handle) : NULL;

    return slot && slot->kind == kind;
}

unsigned long sim_object_count(enum sim_object_kind kind)
{
    return counts[kind];
}

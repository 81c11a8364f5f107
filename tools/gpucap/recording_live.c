/* recording_live: see recording_live.h. */
#include "tools/gpucap/recording_live.h"

#include "interpose/see/recording.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 1024
#define MIX        UINT64_C(0x9e3779b97f4a7c15)

static uint32_t space_of(uint8_t kind)
{
    return kind == RECORDING_VMM || kind == RECORDING_ARRAY || kind == RECORDING_GRAPH ? kind : 0;
}

static size_t home_of(const struct live_map *map, uint64_t address, uint32_t space)
{
    uint64_t mixed = (address + space) * MIX;

    return (size_t)(mixed ^ (mixed >> 29)) & (map->room - 1);
}

static size_t find(const struct live_map *map, uint64_t address, uint32_t space)
{
    size_t at = home_of(map, address, space);

    while (map->entries[at].index_plus_one &&
           (map->entries[at].address != address || map->entries[at].space != space))
        at = (at + 1) & (map->room - 1);
    return at;
}

static bool grow(struct live_map *map)
{
    struct live_map larger = {.room = map->room ? 2 * map->room : FIRST_ROOM, .count = map->count};

    larger.entries = calloc(larger.room, sizeof(*larger.entries));
    if (!larger.entries)
        return false;
    for (size_t i = 0; i < map->room; i++) {
        const struct live_entry *entry = &map->entries[i];

        if (entry->index_plus_one)
            larger.entries[find(&larger, entry->address, entry->space)] = *entry;
    }
    free(map->entries);
    *map = larger;
    return true;
}

bool live_map_add(struct live_map *map, uint64_t address, uint8_t kind, uint32_t index)
{
    if (map->count >= map->room / 2 && !grow(map))
        return false;
    map->entries[find(map, address, space_of(kind))] =
        (struct live_entry){address, index + 1, space_of(kind)};
    map->count++;
    return true;
}

/* Closes the gap, so that every entry can be reached from its home without passing an empty one. */
static void close_gap(struct live_map *map, size_t gap)
{
    const size_t mask = map->room - 1;

    for (size_t at = (gap + 1) & mask; map->entries[at].index_plus_one; at = (at + 1) & mask) {
        const size_t home = home_of(map, map->entries[at].address, map->entries[at].space);

        if (((at - home) & mask) < ((at - gap) & mask))
            continue;
        map->entries[gap] = map->entries[at];
        gap = at;
    }
    memset(&map->entries[gap], 0, sizeof(map->entries[gap]));
}

bool live_map_remove(struct live_map *map, uint64_t address, uint8_t kind, uint32_t *index)
{
    if (!map->room)
        return false;
    const size_t at = find(map, address, space_of(kind));
    if (!map->entries[at].index_plus_one)
        return false;
    *index = map->entries[at].index_plus_one - 1;
    close_gap(map, at);
    map->count--;
    return true;
}

void live_map_close(struct live_map *map)
{
    free(map->entries);
    memset(map, 0, sizeof(*map));
}

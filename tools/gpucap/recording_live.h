/* recording_live: which block of a recording is live at which address. Device addresses and the numbers of
 * handles (cuMemCreate, arrays, graphs) may be equal and mean different blocks. Owns no lock.
 */
#ifndef GPUCAP_RECORDING_LIVE_H
#define GPUCAP_RECORDING_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct live_entry {
    uint64_t address;
    uint32_t index_plus_one; /* 0: no entry */
    uint32_t space;          /* 0: device addresses; else the kind of handle */
};

struct live_map {
    struct live_entry *entries; /* open addressing; the number is a power of two */
    size_t count, room;
};

/* Adds what is not in the map. False without memory. */
bool live_map_add(struct live_map *map, uint64_t address, uint8_t kind, uint32_t index);

/* Takes the entry out; false if there is none. */
bool live_map_remove(struct live_map *map, uint64_t address, uint8_t kind, uint32_t *index);

void live_map_close(struct live_map *map);

#endif

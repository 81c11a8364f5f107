/* owner_maps: the code in this process: which file each executable mapping comes from, and what a call
 * instruction calls.
 *
 * Reads /proc/self/maps and /proc/self/mem, because both work without the dynamic loader, whose lock another
 * thread may hold for long, and because a read of memory that is gone returns an error instead of a fault.
 * Owns no lock: the caller (owner.c) has one. Memory comes from mmap.
 */
#ifndef GPUCAP_OWNER_MAPS_H
#define GPUCAP_OWNER_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An executable mapping of a file. */
struct owner_map {
    uint64_t start, end, offset;
    const char *path; /* lives as long as the process */
};

/* Reads the mappings anew; if that is not possible, the old ones stay. */
void owner_maps_read(void);
/* Returns the mapping of an address as of the last read, or NULL. */
const struct owner_map *owner_maps_find(uint64_t address);
/* Returns true if the last read found another file at the address than the one before, or none. */
bool owner_maps_changed(uint64_t address);
/* Return the mappings of the last read, in order of address. */
const struct owner_map *owner_maps_all(size_t *count);

/* What stands before a return address. */
enum owner_call {
    OWNER_NO_CALL,
    OWNER_CALL_DIRECT,  /* *target is where it leads, through the procedure linkage table if need be */
    OWNER_CALL_POINTER, /* by a register or a field of a structure: where to is not known */
};
enum owner_call owner_maps_call_before(uint64_t address, uint64_t *target);

/* Forgets everything, in the child of a fork. */
void owner_maps_after_fork(void);

#endif

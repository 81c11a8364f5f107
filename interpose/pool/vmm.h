/* vmm: address space and physical chunks of one card, through the driver's virtual memory management.
 *
 * Address space is reserved once and costs nothing. Memory is created in chunks, each a multiple of VMM_PAGE,
 * and the driver maps and unmaps a chunk only as a whole. Every operation either succeeds or changes nothing.
 * None waits for running work: the caller must know that no work uses what it unmaps. The owner of a struct
 * vmm guards it with its own lock.
 */
#ifndef GPUCAP_VMM_H
#define GPUCAP_VMM_H

#include <stdbool.h>

#include "interpose/driver/driver.h"
#include "interpose/pool/ranges.h"

#define VMM_PAGE      RANGES_PAGE
#define VMM_SPAN      (UINT64_C(1) << 43) /* 8 TiB: many times any card, so that holes are no problem */
#define VMM_PEERS_MAX 32
#define VMM_LEFT_MAX                                                                                         \
    64 /* chunks that the driver refused to release and that are tried again; any beyond stay held */

/* One page: the first page of a chunk has its handle, the others say how far back it begins. */
struct vmm_slot {
    CUmemGenericAllocationHandle handle;
    uint32_t pages; /* of the chunk that begins here; 0: none begins here */
    uint32_t back;  /* pages back to the beginning */
};

struct vmm_chunk {
    CUmemGenericAllocationHandle handle;
    uint64_t bytes;
};

struct vmm {
    uint64_t base, span;
    CUmemAllocationProp properties;
    bool chosen; /* memory with these properties has been granted, so they are final */
    CUmemAccessDesc access[VMM_PEERS_MAX]; /* the card itself, then its peers */
    uint32_t access_users[VMM_PEERS_MAX];  /* calls of vmm_add_peer for each */
    int access_count;
    struct vmm_slot *slots;
    struct vmm_chunk left[VMM_LEFT_MAX]; /* unmapped, but the driver refused to release them */
    unsigned left_count;
    uint64_t physical; /* bytes created and not released */
    uint64_t calls;    /* driver calls so far: create, map, access, unmap, release */
};

/* Reserves the address space. Returns 0, -ENOTSUP if the card lacks what we need, or another -errno. */
int vmm_open(struct vmm *vmm, CUdevice ordinal);
/* Tests with one page whether the platform does what the card reports: some virtual and shared setups do not,
 * and refuse memory that can be exported or reached over the bus. A full card is not a failure. Returns 0 or
 * -ENOTSUP. */
int vmm_try(struct vmm *vmm);
/* Frees the address space; every chunk must have been unmapped and released. */
void vmm_close(struct vmm *vmm);

/* Creates a chunk. Returns 0, -ENOMEM (the card is full) or -EIO. */
int vmm_create(struct vmm *vmm, uint64_t bytes, struct vmm_chunk *chunk);
/* Gives a chunk back to the driver. Returns false if the driver refuses: the chunk stays held until
 * vmm_release_left succeeds. */
bool vmm_release(struct vmm *vmm, const struct vmm_chunk *chunk);
/* Retries what vmm_release could not release. Returns how many bytes it released. */
uint64_t vmm_release_left(struct vmm *vmm);

/* Maps chunks side by side from `start`, readable and writable. Returns 0, or -errno and then none is mapped
 * except the first *stuck ones, which the driver refused to unmap again. Those cannot be used there; call
 * vmm_unmap_left for them later. */
int vmm_map(struct vmm *vmm, uint64_t start, const struct vmm_chunk *chunks, uint64_t count, uint64_t *stuck);
/* Unmaps the chunk that begins at `start`. Returns 0 and *chunk, or -EIO. */
int vmm_unmap(struct vmm *vmm, uint64_t start, struct vmm_chunk *chunk);

/* Forgets the chunk that begins at `start` without unmapping it, so that it can be mapped elsewhere as well.
 * Must be followed by vmm_remember, which undoes it, or later by vmm_unmap_left. */
struct vmm_chunk vmm_leave(struct vmm *vmm, uint64_t start);
void vmm_remember(struct vmm *vmm, uint64_t start, const struct vmm_chunk *chunk);
/* Unmaps forgotten chunks that lie side by side. Returns 0 or -EIO. */
int vmm_unmap_left(struct vmm *vmm, uint64_t start, uint64_t bytes);

/* Finds the chunk mapped at an address, its beginning and size. Returns false if there is none. */
bool vmm_chunk_at(const struct vmm *vmm, uint64_t address, uint64_t *start, uint64_t *bytes);
/* Returns the chunk that begins at `start`; there must be one. */
struct vmm_chunk vmm_chunk_from(const struct vmm *vmm, uint64_t start);

/* Returns true if chunks serve hardware decompression as well as memory of cuMemAlloc does. True too on a
 * card without decompression, where the driver says the same of its own memory (H200). */
bool vmm_decompresses(const struct vmm *vmm);

/* Gives another card access to all that is and will be mapped; counted. Returns 0, or -errno unchanged. */
int vmm_add_peer(struct vmm *vmm, CUdevice peer, uint64_t mapped_end);
/* Undoes one vmm_add_peer. The last one ends the card's access. */
void vmm_remove_peer(struct vmm *vmm, CUdevice peer, uint64_t mapped_end);

#endif

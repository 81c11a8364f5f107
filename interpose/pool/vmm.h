/* vmm: address space and physical chunks of one card, through the driver's virtual memory management.
 *
 * Address space is reserved once, and is free; memory is created in chunks, each a multiple of VMM_PAGE, and
 * a chunk is mapped and unmapped whole (the driver knows no other way). Every operation either happens or
 * leaves all as it was. None of them waits for running work: it is the caller who knows that nobody uses what
 * is unmapped. The owner of a struct vmm guards it with its own lock.
 */
#ifndef GPUCAP_VMM_H
#define GPUCAP_VMM_H

#include <stdbool.h>

#include "interpose/driver/driver.h"
#include "interpose/pool/ranges.h"

#define VMM_PAGE      RANGES_PAGE
#define VMM_SPAN      (UINT64_C(1) << 43) /* 8 TiB: many times any card, so that holes need no care */
#define VMM_PEERS_MAX 32
#define VMM_LEFT_MAX                                                                                         \
    64 /* chunks that the driver would not release, to be tried again; more than these stay */

/* What one chunk holds at its first page; pages after it say how far back that is. */
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
    bool chosen;                           /* memory with these properties has been granted: they stay */
    CUmemAccessDesc access[VMM_PEERS_MAX]; /* the card itself, then its peers */
    uint32_t access_users[VMM_PEERS_MAX];  /* how often each peer was let in */
    int access_count;
    struct vmm_slot *slots;
    struct vmm_chunk left[VMM_LEFT_MAX]; /* unmapped, and the driver would not release them */
    unsigned left_count;
    uint64_t physical; /* bytes created and not released */
    uint64_t calls;    /* of the driver, ever: create, map, access, unmap, release */
};

/* 0; -ENOTSUP if the card has no virtual memory management as we need it; another -errno. */
int vmm_open(struct vmm *vmm, CUdevice ordinal);
/* Finds out whether the platform does what the card promises: some virtual and shared setups do not, and
 * refuse memory that can be exported or reached over the bus. Takes a page for a moment; a full card is no
 * reason to give up. 0 or -ENOTSUP. */
int vmm_try(struct vmm *vmm);
/* Gives back the address space; every chunk must have been unmapped and released. */
void vmm_close(struct vmm *vmm);

/* 0 or -ENOMEM (the card is full) or -EIO. */
int vmm_create(struct vmm *vmm, uint64_t bytes, struct vmm_chunk *chunk);
/* Gives a chunk back to the driver. False if the driver refuses: the chunk stays held, for vmm_release_left.
 */
bool vmm_release(struct vmm *vmm, const struct vmm_chunk *chunk);
/* Tries again what vmm_release could not give back. Returns how many bytes it has given back now. */
uint64_t vmm_release_left(struct vmm *vmm);

/* Maps chunks side by side from `start`, readable and writable. 0 or -errno, and then none is mapped but the
 * first *stuck of them, which the driver would not unmap again. They cannot be used there: to be followed
 * sooner or later by vmm_unmap_left. */
int vmm_map(struct vmm *vmm, uint64_t start, const struct vmm_chunk *chunks, uint64_t count, uint64_t *stuck);
/* Unmaps the chunk that begins at `start`. 0 or -EIO. */
int vmm_unmap(struct vmm *vmm, uint64_t start, struct vmm_chunk *chunk);

/* Forgets the chunk that begins at `start` without unmapping it: it is to be mapped elsewhere as well. To be
 * followed by vmm_remember, which takes that back, or sooner or later by vmm_unmap_left. */
struct vmm_chunk vmm_leave(struct vmm *vmm, uint64_t start);
void vmm_remember(struct vmm *vmm, uint64_t start, const struct vmm_chunk *chunk);
/* Unmaps chunks that were left, side by side. 0 or -EIO. */
int vmm_unmap_left(struct vmm *vmm, uint64_t start, uint64_t bytes);

/* The chunk mapped at an address: its beginning and size. False if there is none. */
bool vmm_chunk_at(const struct vmm *vmm, uint64_t address, uint64_t *start, uint64_t *bytes);
/* The same for a chunk that begins there, which must be so. */
struct vmm_chunk vmm_chunk_from(const struct vmm *vmm, uint64_t start);

/* True if the card can decompress into chunks as it can into memory of cuMemAlloc, which a card without
 * decompression also says it can (H200). */
bool vmm_decompresses(const struct vmm *vmm);

/* Lets another card reach everything that is and will be mapped, once more. 0 or -errno, and then nothing has
 * changed. */
int vmm_add_peer(struct vmm *vmm, CUdevice peer, uint64_t mapped_end);
/* The opposite: when it has been called as often, the card is shut out. */
void vmm_remove_peer(struct vmm *vmm, CUdevice peer, uint64_t mapped_end);

#endif

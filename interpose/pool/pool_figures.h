/* pool_figures: how much of a pool is live, and its statistics. */
#ifndef GPUCAP_POOL_FIGURES_H
#define GPUCAP_POOL_FIGURES_H

#include "interpose/pool/pool_state.h"

struct pool_stats {
    uint64_t live, live_count; /* bytes and blocks that the program holds; sizes rounded to 512, or to whole
                                  pages with guard=on */
    uint64_t cached;           /* held and free */
    uint64_t pending;          /* freed, but its work is not done, or it is pinned or exposed */
    uint64_t physical;         /* taken from the driver */
    uint64_t peak_live, peak_physical;
    uint64_t largest;  /* free range */
    uint64_t stranded; /* held and free, but useless for the largest request that would otherwise fit */
    uint64_t hits, stitches, stitched_chunks, grows, waits, joins, trims;
    uint64_t driver_calls;     /* create, map, access, unmap, release */
    uint64_t room_ns, wait_ns; /* time spent making room, and of this, waiting for work */
};

/* Returns the figures as far as known. Never calls the driver, so it works at the end of the process. */
struct pool_stats pool_stats(struct pool *pool);
/* The same at exit: does not flush the thread's small blocks. Returns false if the lock cannot be taken. */
bool pool_stats_at_exit(struct pool *pool, struct pool_stats *stats);

/* Returns true if more than `permille` thousandths of what the pool holds are not live. */
bool pool_mostly_free(struct pool *pool, uint32_t permille);

/* ---- with the pool's lock ---- */

/* Returns the bytes that the program holds, including freed memory that is pinned or exposed. */
uint64_t pool_live_bytes(const struct pool *pool);
/* The same without that memory. */
uint64_t pool_programs_bytes(const struct pool *pool);

/* Updates the peaks with the most bytes that were live since this thread last called it: caches hand out
 * blocks without the lock. Call before changing anything. */
void pool_note_peak(struct pool *pool);

#endif

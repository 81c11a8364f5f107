/* heap: a private jemalloc that manages device addresses and never touches them.
 *
 * This copy of jemalloc is used only here: all its names are renamed and hidden at build time, it is not the
 * library's malloc, and it reads neither the environment nor a file (MALLOC_CONF belongs to the host
 * program). A build without jemalloc has no heap; then the pool's own index serves all sizes.
 *
 * Owns a mutex, held while an arena is begun or made. jemalloc's own locks rank before a pool's, because the
 * extent callbacks take that one.
 */
#ifndef GPUCAP_HEAP_H
#define GPUCAP_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#define HEAP_LARGEST   14336 /* the largest block that jemalloc keeps in slabs with pages of 4 KiB */
#define HEAP_NO_TCACHE ((unsigned)-1)
#define HEAP_LATER     ((unsigned)-2) /* opened at first use */

/* Where a heap takes its address space from. Both are called with jemalloc's locks held. */
struct heap_source {
    void *owner;
    /* Returns `bytes` of address space aligned to `alignment` (at least a page), or 0. */
    uint64_t (*take)(void *owner, uint64_t bytes, uint64_t alignment);
    void (*give)(void *owner, uint64_t address, uint64_t bytes);
};

/* Returns true if this build has jemalloc. */
bool heap_exists(void);

/* Begins an arena, which jemalloc makes when its first block is asked for: that takes longer than all else
 * that the library does for a program's first request. *source must stay valid for ever: an arena is never
 * destroyed, since threads may still hold blocks of it. Returns 0 or -ENOTSUP. */
int heap_open(const struct heap_source *source, unsigned *arena);

/* Returns a new cache for one thread's use of one arena, or HEAP_NO_TCACHE. */
unsigned heap_tcache_open(void);
/* Flushes a tcache into its arena and closes it. Do not flush and keep it instead: jemalloc then recreates it
 * at its next use, and if there is no memory for that, ends the program at the use after. */
void heap_tcache_close(unsigned tcache);

/* Returns extents without blocks to the source. */
void heap_purge(unsigned arena);

/* Allocates a block. Returns 0 if the source had no memory, or the arena cannot be made. In a thread's last
 * destructors it may return host memory: jemalloc has freed its data of the thread then and uses its own
 * first arena. */
uint64_t heap_take(unsigned arena, unsigned tcache, uint64_t bytes);
/* Frees a block; `bytes` as passed to heap_take. */
void heap_give(unsigned tcache, uint64_t address, uint64_t bytes);

#endif

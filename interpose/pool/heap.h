/* heap: a private jemalloc that manages device addresses and never touches them.
 *
 * The copy of jemalloc in here is nobody else's: all its names are renamed and hidden at build time, it is
 * not the library's malloc, and it reads neither the environment nor a file (MALLOC_CONF is the host
 * program's). A build without jemalloc has no heap, and the pool's own index serves all sizes.
 *
 * Owns no lock; jemalloc's own rank before a pool's: the extent callbacks take that one.
 */
#ifndef GPUCAP_HEAP_H
#define GPUCAP_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#define HEAP_LARGEST   14336 /* the largest block that jemalloc keeps in slabs with pages of 4 KiB */
#define HEAP_NO_TCACHE ((unsigned)-1)
#define HEAP_LATER     ((unsigned)-2) /* a tcache that is opened at its first use */

/* Where a heap has its address space from. Both are called with jemalloc's locks. */
struct heap_source {
    void *owner;
    /* `bytes` aligned to `alignment` (at least a page), or 0. */
    uint64_t (*take)(void *owner, uint64_t bytes, uint64_t alignment);
    void (*give)(void *owner, uint64_t address, uint64_t bytes);
};

/* True if this build has jemalloc. */
bool heap_exists(void);

/* A new arena; *source must stay where it is for ever: an arena is never destroyed, since threads may still
 * hold some of it. 0 or -ENOTSUP. */
int heap_open(const struct heap_source *source, unsigned *arena);

/* A cache for one thread's use of one arena, or HEAP_NO_TCACHE. */
unsigned heap_tcache_open(void);
/* Empties it into its arena. jemalloc can also do that and keep it, and then makes it anew at its next use;
 * but where there is no memory for that it ends the program at the use after it. */
void heap_tcache_close(unsigned tcache);

/* What the arena holds and has no block in goes back to its source. */
void heap_purge(unsigned arena);

/* 0 if the source had nothing. In a thread's last destructors it may be memory of the host instead: jemalloc
 * uses its own first arena where its notes of the thread have ended. */
uint64_t heap_take(unsigned arena, unsigned tcache, uint64_t bytes);
/* `bytes` as they were asked for. */
void heap_give(unsigned tcache, uint64_t address, uint64_t bytes);

#endif

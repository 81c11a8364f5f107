/* heap: see heap.h. */
#include "interpose/pool/heap.h"

#include <errno.h>

#ifdef GPUCAP_JEMALLOC

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#define JEMALLOC_NO_RENAME
#include <jemalloc/jemalloc.h>

/* Names as renamed by the build (heap_rename.sh). */
void *heap_je_mallocx(size_t size, int flags);
void heap_je_sdallocx(void *address, size_t size, int flags);
int heap_je_mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size);
char *heap_je_secure_getenv(const char *name);
ssize_t heap_je_readlink(const char *path, char *text, size_t size);
void *heap_je_dlsym(void *handle, const char *name);
int heap_je_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));
extern const char *heap_je_malloc_conf;

#define ARENAS_MAX 256

/* Extents are taken and returned at once, in the size asked for; nothing is kept, filled or deferred. */
const char *heap_je_malloc_conf = "abort_conf:false,retain:false,dirty_decay_ms:0,muzzy_decay_ms:0,narenas:1,"
                                  "background_thread:false,tcache:false,junk:false,zero:false";

/* Replacements for what the private copy calls: no environment, no /etc/malloc.conf, no look-up of
 * pthread_create. */
char *heap_je_secure_getenv(const char *name)
{
    (void)name;
    return NULL;
}

ssize_t heap_je_readlink(const char *path, char *text, size_t size)
{
    (void)path, (void)text, (void)size;
    errno = ENOENT;
    return -1;
}

void *heap_je_dlsym(void *handle, const char *name)
{
    (void)handle, (void)name;
    return NULL;
}

/* A forked child never uses the heap again (library.c), so fork need not take its locks. */
int heap_je_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    (void)prepare, (void)parent, (void)child;
    return 0;
}

/* An arena: its hooks and its source. */
struct heap_hooks {
    extent_hooks_t hooks; /* first member: jemalloc passes its address to the hooks */
    const struct heap_source *source;
    atomic_uint number; /* jemalloc's, plus 1; 0: it has none yet. Written under lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct heap_hooks arenas[ARENAS_MAX]; /* guarded by lock while being assigned */
static unsigned arena_count;

static void *extent_alloc(extent_hooks_t *hooks, void *wanted, size_t size, size_t alignment, bool *zero,
                          bool *commit, unsigned arena)
{
    const struct heap_source *source = ((struct heap_hooks *)hooks)->source;

    (void)arena;
    if (wanted || *zero)
        return NULL;
    *commit = true;
    return (void *)(uintptr_t)source->take(source->owner, size, alignment);
}

static bool extent_dalloc(extent_hooks_t *hooks, void *address, size_t size, bool committed, unsigned arena)
{
    const struct heap_source *source = ((struct heap_hooks *)hooks)->source;

    (void)committed, (void)arena;
    source->give(source->owner, (uint64_t)(uintptr_t)address, size);
    return false;
}

/* Allows jemalloc to split extents: otherwise a free extent of which another thread takes a part, before it
 * is returned, would be lost. Extents are never merged again, because none may cross a page. */
static bool extent_split(extent_hooks_t *hooks, void *address, size_t size, size_t first, size_t second,
                         bool committed, unsigned arena)
{
    (void)hooks, (void)address, (void)size, (void)first, (void)second, (void)committed, (void)arena;
    return false;
}

bool heap_exists(void)
{
    return true;
}

int heap_open(const struct heap_source *source, unsigned *arena)
{
    int rc = -ENOTSUP;

    pthread_mutex_lock(&lock);
    if (arena_count < ARENAS_MAX) {
        *arena = arena_count++;
        arenas[*arena].hooks =
            (extent_hooks_t){.alloc = extent_alloc, .dalloc = extent_dalloc, .split = extent_split};
        arenas[*arena].source = source;
        rc = 0;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

/* Has jemalloc make the arena, unless it has. Returns its number plus 1, or 0. */
__attribute__((noinline)) static unsigned make_arena(struct heap_hooks *own)
{
    struct {
        extent_hooks_t *hooks;
        bool metadata_use_hooks;
    } config = {.hooks = &own->hooks, .metadata_use_hooks = false};
    unsigned made;
    size_t size = sizeof(made);

    pthread_mutex_lock(&lock);
    unsigned number = atomic_load(&own->number);
    if (!number &&
        heap_je_mallctl("experimental.arenas_create_ext", &made, &size, &config, sizeof(config)) == 0) {
        number = made + 1;
        atomic_store(&own->number, number);
    }
    pthread_mutex_unlock(&lock);
    return number;
}

unsigned heap_tcache_open(void)
{
    unsigned tcache;
    size_t size = sizeof(tcache);

    return heap_je_mallctl("tcache.create", &tcache, &size, NULL, 0) ? HEAP_NO_TCACHE : tcache;
}

void heap_tcache_close(unsigned tcache)
{
    if (tcache != HEAP_NO_TCACHE && tcache != HEAP_LATER)
        heap_je_mallctl("tcache.destroy", NULL, NULL, &tcache, sizeof(tcache));
}

void heap_purge(unsigned arena)
{
    const unsigned number = atomic_load(&arenas[arena].number);
    char name[sizeof("arena.4294967295.purge")];

    if (!number)
        return;
    snprintf(name, sizeof(name), "arena.%u.purge", number - 1);
    heap_je_mallctl(name, NULL, NULL, NULL, 0);
}

static int flags_of(unsigned tcache)
{
    return tcache == HEAP_NO_TCACHE ? MALLOCX_TCACHE_NONE : MALLOCX_TCACHE(tcache);
}

uint64_t heap_take(unsigned arena, unsigned tcache, uint64_t bytes)
{
    unsigned number = atomic_load_explicit(&arenas[arena].number, memory_order_acquire);

    if (__builtin_expect(!number, 0) && !(number = make_arena(&arenas[arena])))
        return 0;
    /* Blocks are multiples of 512 bytes, and so are their size classes, so they are aligned to 512. */
    return (uint64_t)(uintptr_t)heap_je_mallocx(bytes, MALLOCX_ARENA(number - 1) | flags_of(tcache));
}

void heap_give(unsigned tcache, uint64_t address, uint64_t bytes)
{
    heap_je_sdallocx((void *)(uintptr_t)address, bytes, flags_of(tcache));
}

#else

bool heap_exists(void)
{
    return false;
}

int heap_open(const struct heap_source *source, unsigned *arena)
{
    (void)source, (void)arena;
    return -ENOTSUP;
}

unsigned heap_tcache_open(void)
{
    return HEAP_NO_TCACHE;
}

void heap_tcache_close(unsigned tcache)
{
    (void)tcache;
}

void heap_purge(unsigned arena)
{
    (void)arena;
}

uint64_t heap_take(unsigned arena, unsigned tcache, uint64_t bytes)
{
    (void)arena, (void)tcache, (void)bytes;
    return 0;
}

void heap_give(unsigned tcache, uint64_t address, uint64_t bytes)
{
    (void)tcache, (void)address, (void)bytes;
}

#endif

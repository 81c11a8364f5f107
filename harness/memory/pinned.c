/* The arena. jemalloc splits and joins within a chunk only; a chunk that is free as a whole can go back.
 * Its names carry the prefix that harness/memory/CMakeLists.txt gives them. */
#include "harness/memory/pinned.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/memory/pinned_chunks.h"

#ifdef HARNESS_HAVE_JEMALLOC

#include <jemalloc/jemalloc.h>
#include <sys/types.h>

/* jemalloc under its renamed symbols. It must not read the environment or the link /etc/malloc.conf, which
 * configure the program's own jemalloc if it has one; so these two calls are replaced. */
extern const char *pinned_je_malloc_conf;
void *pinned_je_mallocx(size_t bytes, int flags);
void pinned_je_dallocx(void *block, int flags);
int pinned_je_mallctl(const char *name, void *old, size_t *old_bytes, void *new_value, size_t new_bytes);
char *pinned_je_secure_getenv(const char *name);
ssize_t pinned_je_readlink(const char *path, char *into, size_t bytes);

/* retain off: it would ask for more than it needs. decay never: unused memory is kept, because pinning is
 * slow. */
const char *pinned_je_malloc_conf = "narenas:1,retain:false,dirty_decay_ms:-1,muzzy_decay_ms:0";

enum { NAME_BYTES = 64, ALIGNMENT = 256 };

struct pinned {
    extent_hooks_t hooks; /* must be first: the hooks cast it to struct pinned */
    struct pinned_chunks chunks;
    unsigned arena;
    bool has_arena;
};

/* What experimental.arenas_create_ext takes; no header of jemalloc 5.3 declares it. */
struct arena_config {
    extent_hooks_t *hooks;
    bool metadata_use_hooks;
};

char *pinned_je_secure_getenv(const char *name)
{
    (void)name;
    return NULL;
}

ssize_t pinned_je_readlink(const char *path, char *into, size_t bytes)
{
    (void)path;
    (void)into;
    (void)bytes;
    return -1;
}

static void *hook_alloc(extent_hooks_t *hooks, void *new_addr, size_t bytes, size_t alignment, bool *zero,
                        bool *commit, unsigned arena)
{
    void *block;

    (void)arena;
    if (new_addr)
        return NULL; /* no chunk can be put at a given place */
    block = pinned_chunks_add(&((struct pinned *)hooks)->chunks, bytes, alignment, false);
    if (block && *zero)
        memset(block, 0, bytes);
    *commit = true;
    return block;
}

static bool hook_dalloc(extent_hooks_t *hooks, void *base, size_t bytes, bool committed, unsigned arena)
{
    (void)committed;
    (void)arena;
    return !pinned_chunks_remove(&((struct pinned *)hooks)->chunks, base, bytes);
}

static void hook_destroy(extent_hooks_t *hooks, void *base, size_t bytes, bool committed, unsigned arena)
{
    hook_dalloc(hooks, base, bytes, committed, arena);
}

static bool hook_split(extent_hooks_t *hooks, void *base, size_t bytes, size_t a, size_t b, bool committed,
                       unsigned arena)
{
    (void)hooks;
    (void)base;
    (void)bytes;
    (void)a;
    (void)b;
    (void)committed;
    (void)arena;
    return false;
}

static bool hook_merge(extent_hooks_t *hooks, void *a, size_t a_bytes, void *b, size_t b_bytes,
                       bool committed, unsigned arena)
{
    (void)a_bytes;
    (void)b_bytes;
    (void)committed;
    (void)arena;
    return !pinned_chunks_same(&((struct pinned *)hooks)->chunks, a, b);
}

enum status pinned_open(struct pinned **out, size_t limit)
{
    struct pinned *pinned = calloc(1, sizeof(*pinned));
    struct arena_config config;
    size_t bytes = sizeof(pinned->arena);
    int error;

    *out = NULL;
    if (!pinned)
        return status_fail(STATUS_NO_MEMORY, "no host memory for the arena of pinned memory");
    pinned->hooks = (extent_hooks_t){.alloc = hook_alloc,
                                     .dalloc = hook_dalloc,
                                     .destroy = hook_destroy,
                                     .split = hook_split,
                                     .merge = hook_merge};
    pinned_chunks_open(&pinned->chunks, limit);
    config = (struct arena_config){&pinned->hooks, false};
    error =
        pinned_je_mallctl("experimental.arenas_create_ext", &pinned->arena, &bytes, &config, sizeof(config));
    if (error) {
        pinned_close(pinned);
        return status_fail(STATUS_FAILED, "jemalloc makes no arena for pinned memory: %s", strerror(error));
    }
    pinned->has_arena = true;
    *out = pinned;
    return STATUS_OK;
}

static void control_arena(struct pinned *pinned, const char *what)
{
    char name[NAME_BYTES];

    snprintf(name, sizeof(name), "arena.%u.%s", pinned->arena, what);
    pinned_je_mallctl(name, NULL, NULL, NULL, 0);
}

void pinned_close(struct pinned *pinned)
{
    if (!pinned)
        return;
    if (pinned->has_arena)
        control_arena(pinned, "destroy");
    pinned_chunks_close(&pinned->chunks);
    free(pinned);
}

static int flags_of(const struct pinned *pinned)
{
    return (int)(MALLOCX_ARENA(pinned->arena) | MALLOCX_TCACHE_NONE);
}

void *pinned_alloc(struct pinned *pinned, size_t bytes)
{
    void *block = pinned_je_mallocx(bytes ? bytes : 1, flags_of(pinned));

    /* jemalloc rounds up to a size class; near the limit, a chunk of the exact size may still fit. */
    return block ? block : pinned_chunks_add(&pinned->chunks, bytes ? bytes : 1, ALIGNMENT, true);
}

void pinned_free(struct pinned *pinned, void *block)
{
    if (block && !pinned_chunks_remove(&pinned->chunks, block, 0))
        pinned_je_dallocx(block, flags_of(pinned));
}

void pinned_trim(struct pinned *pinned)
{
    control_arena(pinned, "purge");
}

const char *pinned_allocator(void)
{
    return "jemalloc";
}

#else

/* Without jemalloc, each block is a chunk of its own. */
struct pinned {
    struct pinned_chunks chunks;
};

enum { ALIGNMENT = 256 };

enum status pinned_open(struct pinned **out, size_t limit)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return status_fail(STATUS_NO_MEMORY, "no host memory for the list of pinned memory");
    pinned_chunks_open(&(*out)->chunks, limit);
    return STATUS_OK;
}

void pinned_close(struct pinned *pinned)
{
    if (!pinned)
        return;
    pinned_chunks_close(&pinned->chunks);
    free(pinned);
}

void *pinned_alloc(struct pinned *pinned, size_t bytes)
{
    return pinned_chunks_add(&pinned->chunks, bytes ? bytes : 1, ALIGNMENT, true);
}

void pinned_free(struct pinned *pinned, void *block)
{
    if (block)
        pinned_chunks_remove(&pinned->chunks, block, 0);
}

void pinned_trim(struct pinned *pinned)
{
    (void)pinned; /* nothing is kept */
}

const char *pinned_allocator(void)
{
    return "cudaHostAlloc";
}

#endif

size_t pinned_held(struct pinned *pinned)
{
    return pinned_chunks_held(&pinned->chunks);
}

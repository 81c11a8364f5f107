/* pages: memory for tables, straight from the kernel and zeroed. Not from malloc, which belongs to the host
 * program: its locks may be held by the thread that is inside a hook. Owns no lock. */
#ifndef GPUCAP_PAGES_H
#define GPUCAP_PAGES_H

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* Returns `bytes` of zeroed memory, or NULL. munmap gives it back. */
static inline void *pages_map(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

/* The same for a table of which only a small part will ever be touched. */
static inline void *pages_map_sparse(uint64_t bytes)
{
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

/* Grows an array of *capacity elements of `size` bytes if it cannot hold `need`. The array was returned by
 * this function or is NULL. Keeps its first `used` elements. The capacity doubles, beginning with `first`.
 * Returns the array to use from now on, or NULL without memory: then the old one stays. */
static inline void *pages_grow(void *array, uint64_t *capacity, uint64_t used, uint64_t need, uint64_t size,
                               uint64_t first)
{
    uint64_t wanted = *capacity ? *capacity : first;

    if (array && need <= *capacity)
        return array;
    while (wanted < need)
        wanted *= 2;
    void *bigger = pages_map(wanted * size);
    if (!bigger)
        return NULL;
    if (array) {
        memcpy(bigger, array, used * size);
        munmap(array, *capacity * size);
    }
    *capacity = wanted;
    return bigger;
}

#endif

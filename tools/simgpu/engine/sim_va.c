/* sim_va: address space. See sim_va.h. Owns no lock: mmap needs none. */
#include "tools/simgpu/engine/sim_va.h"

#include <sys/mman.h>
#include <unistd.h>

#define RESERVED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

static void *at(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

uint64_t sim_va_reserve(uint64_t size, uint64_t alignment, uint64_t hint)
{
    uint64_t slack = alignment > PHYS_GRANULE ? alignment : PHYS_GRANULE, start, aligned, total;
    void *raw;

    if (hint % slack == 0 && hint) {
        raw = mmap(at(hint), size, PROT_NONE, RESERVED | MAP_FIXED_NOREPLACE, -1, 0);
        if (raw == at(hint))
            return hint;
        if (raw != MAP_FAILED)
            munmap(raw, size);
    }
    if (__builtin_add_overflow(size, slack, &total))
        return 0;
    raw = mmap(NULL, total, PROT_NONE, RESERVED, -1, 0);
    if (raw == MAP_FAILED)
        return 0;
    start = (uint64_t)(uintptr_t)raw;
    aligned = (start + slack - 1) & ~(slack - 1);
    if (aligned > start)
        munmap(raw, aligned - start);
    if (start + total > aligned + size)
        munmap(at(aligned + size), start + total - aligned - size);
    return aligned;
}

void sim_va_release(uint64_t address, uint64_t size)
{
    munmap(at(address), size);
}

bool sim_va_back(uint64_t address, const struct sim_phys *phys, int protection)
{
    void *mapped = mmap(at(address), phys->size, protection, MAP_SHARED | MAP_FIXED, phys->fd, phys->offset);

    return mapped != MAP_FAILED;
}

void sim_va_unback(uint64_t address, uint64_t size)
{
    /* Fails only if the process has too many mappings. Then a later access does not fault, which harms
     * nothing else. */
    (void)mmap(at(address), size, PROT_NONE, RESERVED | MAP_FIXED, -1, 0);
}

bool sim_va_protect(uint64_t address, uint64_t size, int protection)
{
    return mprotect(at(address), size, protection) == 0;
}

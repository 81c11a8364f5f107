/* vmm: see vmm.h. */
#include "interpose/pool/vmm.h"

#include <errno.h>
#include <string.h>

#include "interpose/base/pages.h"

static int error_of(CUresult result)
{
    if (result == CUDA_SUCCESS)
        return 0;
    return result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
}

static bool has(CUdevice ordinal, CUdevice_attribute attribute)
{
    int value = 0;

    return driver.cuDeviceGetAttribute(&value, attribute, ordinal) == CUDA_SUCCESS && value;
}

/* Sets the properties of our chunks: on the card, and, where the card can do it, exportable, reachable by
 * other devices on the bus, and usable for hardware decompression. Export and access over the bus cost
 * nothing (measured). */
static void describe(struct vmm *vmm, CUdevice ordinal)
{
    memset(&vmm->properties, 0, sizeof(vmm->properties));
    vmm->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    vmm->properties.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal};
    if (has(ordinal, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
        vmm->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (has(ordinal, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
        vmm->properties.allocFlags.gpuDirectRDMACapable = 1;
    if (has(ordinal, CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK))
        vmm->properties.allocFlags.usage |= CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
    vmm->access[0].location = vmm->properties.location;
    vmm->access[0].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    vmm->access_count = 1;
}

/* Returns the least address space that will do where it is limited: well above the card's memory. */
static uint64_t least_span(CUdevice ordinal)
{
    size_t total = 0;

    if (driver.cuDeviceTotalMem_v2(&total, ordinal) != CUDA_SUCCESS || total == 0)
        return VMM_SPAN;
    return 2 * (uint64_t)total;
}

static size_t table_bytes(const struct vmm *vmm)
{
    return vmm->span / VMM_PAGE * sizeof(struct vmm_slot);
}

int vmm_open(struct vmm *vmm, CUdevice ordinal)
{
    size_t granularity = 0;
    CUdeviceptr base = 0;

    memset(vmm, 0, sizeof(*vmm));
    if (!has(ordinal, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        return -ENOTSUP;
    describe(vmm, ordinal);
    if (driver.cuMemGetAllocationGranularity(&granularity, &vmm->properties,
                                             CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
        granularity == 0 || VMM_PAGE % granularity)
        return -ENOTSUP;
    vmm->span = VMM_SPAN;
    while (driver.cuMemAddressReserve(&base, vmm->span, VMM_PAGE, 0, 0) != CUDA_SUCCESS) {
        vmm->span /= 2;
        if (vmm->span < least_span(ordinal))
            return -ENOMEM;
    }
    vmm->base = base;
    vmm->slots = pages_map_sparse(table_bytes(vmm));
    if (!vmm->slots) {
        driver.cuMemAddressFree(vmm->base, vmm->span);
        return -ENOMEM;
    }
    return 0;
}

/* Drops the least needed property: decompression, then export and bus access. False: plain memory is left. */
static bool ask_for_less(CUmemAllocationProp *properties)
{
    if (properties->allocFlags.usage) {
        properties->allocFlags.usage = 0;
        return true;
    }
    if (!properties->allocFlags.gpuDirectRDMACapable && !properties->requestedHandleTypes)
        return false;
    properties->allocFlags.gpuDirectRDMACapable = 0;
    properties->requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    return true;
}

/* Retries after an error other than out of memory: first the same, which may succeed now, then with fewer
 * properties. Keeps fewer properties only if they succeed; otherwise the error has another cause. */
static CUresult create_with_less(struct vmm *vmm, uint64_t bytes, CUmemGenericAllocationHandle *handle)
{
    CUmemAllocationProp less = vmm->properties;
    CUresult result;

    do
        result = driver.cuMemCreate(handle, bytes, &less, 0);
    while (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY && ask_for_less(&less));
    if (result == CUDA_SUCCESS)
        vmm->properties = less;
    return result;
}

int vmm_try(struct vmm *vmm)
{
    struct vmm_chunk chunk;
    uint64_t stuck;

    int rc = vmm_create(vmm, VMM_PAGE, &chunk);
    if (rc)
        return rc == -ENOMEM ? 0 : -ENOTSUP;
    rc = vmm_map(vmm, vmm->base, &chunk, 1, &stuck);
    if (rc == 0 && (rc = vmm_unmap(vmm, vmm->base, &chunk)))
        vmm_unmap(vmm, vmm->base, &chunk); /* try again: the page must not stay mapped */
    vmm_release(vmm, &chunk);
    vmm->calls = 0;
    return rc ? -ENOTSUP : 0;
}

void vmm_close(struct vmm *vmm)
{
    vmm_release_left(vmm);
    driver.cuMemAddressFree(vmm->base, vmm->span);
    munmap(vmm->slots, table_bytes(vmm));
    memset(vmm, 0, sizeof(*vmm));
}

int vmm_create(struct vmm *vmm, uint64_t bytes, struct vmm_chunk *chunk)
{
    CUresult result = driver.cuMemCreate(&chunk->handle, bytes, &vmm->properties, 0);

    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY && !vmm->chosen)
        result = create_with_less(vmm, bytes, &chunk->handle);
    if (result != CUDA_SUCCESS)
        return error_of(result);
    vmm->chosen = true;
    chunk->bytes = bytes;
    vmm->physical += bytes;
    vmm->calls++;
    return 0;
}

bool vmm_release(struct vmm *vmm, const struct vmm_chunk *chunk)
{
    vmm->calls++;
    if (driver.cuMemRelease(chunk->handle) == CUDA_SUCCESS) {
        vmm->physical -= chunk->bytes;
        return true;
    }
    if (vmm->left_count < VMM_LEFT_MAX)
        vmm->left[vmm->left_count++] = *chunk;
    return false;
}

uint64_t vmm_release_left(struct vmm *vmm)
{
    uint64_t given = 0;
    const unsigned count = vmm->left_count;

    vmm->left_count = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct vmm_chunk chunk = vmm->left[i];

        given += vmm_release(vmm, &chunk) ? chunk.bytes : 0;
    }
    return given;
}

static struct vmm_slot *slot_of(const struct vmm *vmm, uint64_t address)
{
    return &vmm->slots[(address - vmm->base) / VMM_PAGE];
}

void vmm_remember(struct vmm *vmm, uint64_t start, const struct vmm_chunk *chunk)
{
    struct vmm_slot *slot = slot_of(vmm, start);
    const uint32_t pages = (uint32_t)(chunk->bytes / VMM_PAGE);

    *slot = (struct vmm_slot){.handle = chunk->handle, .pages = pages};
    for (uint32_t i = 1; i < pages; i++)
        slot[i] = (struct vmm_slot){.back = i};
}

/* Unmaps chunks that end at `end`, all at once or one by one from the last. Returns how many stay mapped. */
static uint64_t unmap_again(uint64_t start, uint64_t end, const struct vmm_chunk *chunks, uint64_t count)
{
    if (count == 0 || driver.cuMemUnmap(start, end - start) == CUDA_SUCCESS)
        return 0;
    for (; count > 0; count--) {
        const uint64_t bytes = chunks[count - 1].bytes;

        if (driver.cuMemUnmap(end - bytes, bytes) != CUDA_SUCCESS)
            break;
        end -= bytes;
    }
    return count;
}

int vmm_map(struct vmm *vmm, uint64_t start, const struct vmm_chunk *chunks, uint64_t count, uint64_t *stuck)
{
    uint64_t at = start, done = 0;
    CUresult result = CUDA_SUCCESS;

    *stuck = 0;
    while (done < count && result == CUDA_SUCCESS) {
        result = driver.cuMemMap(at, chunks[done].bytes, 0, chunks[done].handle, 0);
        if (result == CUDA_SUCCESS)
            at += chunks[done++].bytes;
    }
    if (result == CUDA_SUCCESS)
        result = driver.cuMemSetAccess(start, at - start, vmm->access, (size_t)vmm->access_count);
    if (result != CUDA_SUCCESS) {
        *stuck = unmap_again(start, at, chunks, done);
        return error_of(result);
    }
    at = start;
    for (uint64_t i = 0; i < count; i++) {
        vmm_remember(vmm, at, &chunks[i]);
        at += chunks[i].bytes;
    }
    vmm->calls += count + 1;
    return 0;
}

int vmm_unmap(struct vmm *vmm, uint64_t start, struct vmm_chunk *chunk)
{
    *chunk = vmm_chunk_from(vmm, start);
    if (driver.cuMemUnmap(start, chunk->bytes) != CUDA_SUCCESS)
        return -EIO;
    vmm_leave(vmm, start);
    vmm->calls++;
    return 0;
}

struct vmm_chunk vmm_leave(struct vmm *vmm, uint64_t start)
{
    const struct vmm_chunk chunk = vmm_chunk_from(vmm, start);

    memset(slot_of(vmm, start), 0, chunk.bytes / VMM_PAGE * sizeof(*vmm->slots));
    return chunk;
}

int vmm_unmap_left(struct vmm *vmm, uint64_t start, uint64_t bytes)
{
    vmm->calls++;
    return driver.cuMemUnmap(start, bytes) == CUDA_SUCCESS ? 0 : -EIO;
}

bool vmm_chunk_at(const struct vmm *vmm, uint64_t address, uint64_t *start, uint64_t *bytes)
{
    const struct vmm_slot *slot = slot_of(vmm, address);

    slot -= slot->back;
    if (!slot->pages)
        return false;
    *start = vmm->base + (uint64_t)(slot - vmm->slots) * VMM_PAGE;
    *bytes = slot->pages * VMM_PAGE;
    return true;
}

struct vmm_chunk vmm_chunk_from(const struct vmm *vmm, uint64_t start)
{
    const struct vmm_slot *slot = slot_of(vmm, start);

    return (struct vmm_chunk){.handle = slot->handle, .bytes = slot->pages * VMM_PAGE};
}

bool vmm_decompresses(const struct vmm *vmm)
{
    return (vmm->properties.allocFlags.usage & CU_MEM_CREATE_USAGE_HW_DECOMPRESS) ||
           !has(vmm->properties.location.id, CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK);
}

/* Sets the access of one card to everything mapped below `end`. Returns false if the driver refuses. */
static bool set_access_below(const struct vmm *vmm, uint64_t end, CUdevice card, CUmemAccess_flags flags)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = card},
                                    .flags = flags};
    uint64_t start, bytes;

    for (uint64_t at = vmm->base; at < end; at += VMM_PAGE) {
        if (!vmm_chunk_at(vmm, at, &start, &bytes) || start != at)
            continue;
        if (driver.cuMemSetAccess(start, bytes, &access, 1) != CUDA_SUCCESS) {
            if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
                set_access_below(vmm, start, card, CU_MEM_ACCESS_FLAGS_PROT_NONE);
            return false;
        }
    }
    return true;
}

/* Returns the index of a card in the access list, or -1. */
static int access_of(const struct vmm *vmm, CUdevice card)
{
    for (int i = 0; i < vmm->access_count; i++) {
        if (vmm->access[i].location.id == card)
            return i;
    }
    return -1;
}

int vmm_add_peer(struct vmm *vmm, CUdevice peer, uint64_t mapped_end)
{
    const int known = access_of(vmm, peer);
    const int place = known < 0 ? vmm->access_count : known;

    if (place == VMM_PEERS_MAX)
        return -ENOSPC;
    if (known < 0) {
        if (!set_access_below(vmm, mapped_end, peer, CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
            return -EIO;
        vmm->access[place] = (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = peer},
                                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        vmm->access_users[place] = 0;
        vmm->access_count++;
    }
    vmm->access_users[place]++;
    return 0;
}

void vmm_remove_peer(struct vmm *vmm, CUdevice peer, uint64_t mapped_end)
{
    const int place = access_of(vmm, peer);

    if (place <= 0 || --vmm->access_users[place]) /* the card itself keeps its access */
        return;
    vmm->access_count--;
    vmm->access[place] = vmm->access[vmm->access_count];
    vmm->access_users[place] = vmm->access_users[vmm->access_count];
    set_access_below(vmm, mapped_end, peer, CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

/* sim_vmm: virtual memory management. See sim_vmm.h. */
#include "tools/simgpu/engine/sim_vmm.h"

#include "tools/simgpu/engine/sim_device.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"
#include "tools/simgpu/engine/sim_va.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAIL_MAGIC  UINT64_C(0x31306d6d76756773) /* "sguvmm01" */
#define ACCESS_BITS 4 /* per device in block->access, which has room for CARD_MAX_DEVICES */
#define ACCESS_MASK 15u

struct sim_handle {
    struct sim_phys *phys;
    CUmemAllocationProp props;
    unsigned int held;   /* references of the program */
    unsigned int mapped; /* number of mappings */
};

/* Stored behind the memory in an exportable file: what an importer has to know. */
struct tail {
    uint64_t magic;
    uint64_t size;
    int32_t card; /* -1: host memory */
    int32_t reserved;
    CUmemAllocationProp props;
};

static struct sim_ranges reservations;

static bool is_host(const CUmemLocation *where)
{
    return where->type == CU_MEM_LOCATION_TYPE_HOST || where->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           where->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

/* ---- address space ---- */

struct sim_reservation *sim_vmm_reservation(uint64_t address)
{
    struct sim_range *range = sim_ranges_find(&reservations, address);

    return range ? LIST_ITEM(range, struct sim_reservation, range) : NULL;
}

CUresult sim_vmm_reserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr hint,
                         unsigned long long flags)
{
    struct sim_reservation *reservation;

    if (!out || size == 0 || size % PHYS_GRANULE || (alignment & (alignment - 1)) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    reservation = calloc(1, sizeof(*reservation));
    if (!reservation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    reservation->range.size = size;
    SIM_LOCKED();
    reservation->range.start = sim_va_reserve(size, alignment, hint);
    if (!reservation->range.start || !sim_object_add(reservation, OBJECT_RESERVATION)) {
        if (reservation->range.start)
            sim_va_release(reservation->range.start, size);
        free(reservation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_ranges_insert(&reservations, &reservation->range);
    *out = reservation->range.start;
    return CUDA_SUCCESS;
}

CUresult sim_vmm_unreserve(CUdeviceptr address, size_t size)
{
    struct sim_reservation *reservation;

    SIM_LOCKED();
    reservation = sim_vmm_reservation(address);
    if (!reservation || reservation->range.start != address || reservation->range.size != size ||
        reservation->mappings > 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_ranges_remove(&reservations, &reservation->range);
    sim_object_remove(reservation);
    sim_va_release(address, size);
    free(reservation);
    return CUDA_SUCCESS;
}

/* ---- memory by handle ---- */

static struct sim_handle *handle_of(CUmemGenericAllocationHandle value)
{
    struct sim_handle *handle = (struct sim_handle *)(uintptr_t)value;

    return sim_object_is(handle, OBJECT_HANDLE) ? handle : NULL;
}

static void free_if_unused(struct sim_handle *handle)
{
    if (handle->held > 0 || handle->mapped > 0)
        return;
    sim_phys_drop(handle->phys);
    free(handle);
}

/* Makes a handle that the program holds once. Takes ownership of phys, even when it fails. */
static CUresult new_handle(CUmemGenericAllocationHandle *out, struct sim_phys *phys,
                           const CUmemAllocationProp *props)
{
    struct sim_handle *handle = calloc(1, sizeof(*handle));

    if (!handle || !sim_object_add(handle, OBJECT_HANDLE)) {
        sim_phys_drop(phys);
        free(handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    handle->phys = phys;
    handle->props = *props;
    handle->held = 1;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

static CUresult check_props(const CUmemAllocationProp *props)
{
    if (!props || props->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        return sim_device_get(props->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    return is_host(&props->location) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_vmm_granularity(size_t *out, const CUmemAllocationProp *props)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(check_props(props));
    *out = PHYS_GRANULE;
    return CUDA_SUCCESS;
}

static bool write_tail(const struct sim_phys *phys, const CUmemAllocationProp *props)
{
    struct tail tail = {.magic = TAIL_MAGIC,
                        .size = phys->size,
                        .card = phys->device == PHYS_HOST ? -1 : sim_device_get(phys->device)->card,
                        .props = *props};

    return pwrite(phys->fd, &tail, sizeof(tail), (off_t)phys->size) == (ssize_t)sizeof(tail);
}

CUresult sim_vmm_create(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *props)
{
    bool exportable = props && props->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
    CUdevice device;
    struct sim_phys *phys;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(check_props(props));
    if (size == 0 || size % PHYS_GRANULE)
        return CUDA_ERROR_INVALID_VALUE;
    if (exportable && props->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    device = is_host(&props->location) ? PHYS_HOST : props->location.id;
    SIM_LOCKED();
    SIM_TRY(sim_phys_create(device, size, exportable, &phys));
    if (exportable && !write_tail(phys, props)) {
        sim_phys_drop(phys);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    return new_handle(out, phys, props);
}

CUresult sim_vmm_release(CUmemGenericAllocationHandle value)
{
    struct sim_handle *handle;

    SIM_LOCKED();
    handle = handle_of(value);
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (--handle->held == 0)
        sim_object_remove(handle);
    free_if_unused(handle);
    return CUDA_SUCCESS;
}

CUresult sim_vmm_retain(CUmemGenericAllocationHandle *out, CUdeviceptr address)
{
    struct sim_block *block;

    SIM_LOCKED();
    block = sim_block_find(address);
    if (!out || !block || block->kind != BLOCK_MAPPED)
        return CUDA_ERROR_INVALID_VALUE;
    if (block->handle->held == 0 && !sim_object_add(block->handle, OBJECT_HANDLE))
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->handle->held++;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)block->handle;
    return CUDA_SUCCESS;
}

CUresult sim_vmm_handle_props(CUmemAllocationProp *out, CUmemGenericAllocationHandle value)
{
    struct sim_handle *handle;

    SIM_LOCKED();
    handle = handle_of(value);
    if (!out || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    *out = handle->props;
    return CUDA_SUCCESS;
}

const CUmemAllocationProp *sim_vmm_props(struct sim_block *block)
{
    return &block->handle->props;
}

bool sim_vmm_reaches_bus(struct sim_block *block)
{
    /* Memory of another process is never capable (measured). */
    return block->handle->props.allocFlags.gpuDirectRDMACapable && !block->handle->phys->foreign;
}

/* ---- mappings ---- */

static bool fits_reservation(uint64_t address, uint64_t size)
{
    struct sim_reservation *reservation = sim_vmm_reservation(address);

    return reservation && size <= reservation->range.size - (address - reservation->range.start);
}

static CUresult map(uint64_t address, struct sim_handle *handle)
{
    struct sim_block *block = sim_block_new(BLOCK_MAPPED, NULL, handle->phys->device);

    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->handle = handle;
    block->range.start = address;
    block->range.size = block->extent = handle->phys->size;
    if (!sim_va_back(address, handle->phys, PROT_NONE) || !sim_block_publish(block)) {
        sim_va_unback(address, handle->phys->size);
        sim_block_delete(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    handle->mapped++;
    sim_vmm_reservation(address)->mappings++;
    return CUDA_SUCCESS;
}

CUresult sim_vmm_map(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle value)
{
    struct sim_handle *handle;

    if (address % PHYS_GRANULE || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    handle = handle_of(value);
    if (handle && (offset != 0 || size != handle->phys->size))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!handle || !fits_reservation(address, size) || sim_block_overlaps(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    return map(address, handle);
}

/* Does the range consist of whole mappings without a gap? */
static bool whole_mappings(uint64_t address, uint64_t size)
{
    while (size > 0) {
        struct sim_block *block = sim_block_find(address);

        if (!block || block->kind != BLOCK_MAPPED || block->range.start != address ||
            block->range.size > size)
            return false;
        address += block->range.size;
        size -= block->range.size;
    }
    return true;
}

static void unmap(struct sim_block *block)
{
    struct sim_handle *handle = block->handle;

    sim_block_withdraw(block);
    sim_va_unback(block->range.start, block->range.size);
    sim_vmm_reservation(block->range.start)->mappings--;
    handle->mapped--;
    free_if_unused(handle);
    sim_block_delete(block);
}

/* May the range be unmapped? Parts without a mapping are no error (measured), but a part of a mapping is. */
static bool can_unmap(uint64_t address, uint64_t size)
{
    struct sim_block *first = sim_block_find(address), *last = sim_block_find(address + size - 1);

    return (!first || first->range.start == address) &&
           (!last || last->range.start + last->range.size == address + size);
}

CUresult sim_vmm_unmap(CUdeviceptr address, size_t size)
{
    struct sim_block *block;

    SIM_LOCKED();
    if (size == 0 || size % PHYS_GRANULE || !fits_reservation(address, size) || !can_unmap(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    while ((block = sim_block_next(address)) && block->range.start - address < size)
        unmap(block);
    return CUDA_SUCCESS;
}

/* ---- access ---- */

struct sim_phys *sim_vmm_memory(struct sim_block *block)
{
    return block->handle->phys;
}

static CUmemAccess_flags access_of(const struct sim_block *block, CUdevice device)
{
    return (CUmemAccess_flags)((block->access >> (device * ACCESS_BITS)) & ACCESS_MASK);
}

static CUresult check_access(const CUmemAccessDesc *desc)
{
    if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_host(&desc->location))
        return CUDA_SUCCESS;
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_device_get(desc->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static bool apply_access(struct sim_block *block, const CUmemAccessDesc *list, size_t count)
{
    unsigned int all = 0;
    int device;
    size_t i;

    for (i = 0; i < count; i++) {
        if (is_host(&list[i].location)) {
            block->host_access = list[i].flags;
            continue;
        }
        block->access &= ~((uint64_t)ACCESS_MASK << (list[i].location.id * ACCESS_BITS));
        block->access |= (uint64_t)list[i].flags << (list[i].location.id * ACCESS_BITS);
    }
    for (device = 0; device < sim_device_count(); device++)
        all |= access_of(block, device);
    all |= block->host_access;
    block->flags = all;
    return sim_va_protect(block->range.start, block->range.size,
                          (all & CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_NONE) |
                              (all == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_WRITE : PROT_NONE));
}

CUresult sim_vmm_set_access(CUdeviceptr address, size_t size, const CUmemAccessDesc *list, size_t count)
{
    size_t i;

    if (!list || count == 0 || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (i = 0; i < count; i++)
        SIM_TRY(check_access(&list[i]));
    SIM_LOCKED();
    if (!whole_mappings(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    while (size > 0) {
        struct sim_block *block = sim_block_find(address);

        if (!apply_access(block, list, count))
            return CUDA_ERROR_OUT_OF_MEMORY;
        address += block->range.size;
        size -= block->range.size;
    }
    return CUDA_SUCCESS;
}

CUresult sim_vmm_get_access(unsigned long long *out, const CUmemLocation *where, CUdeviceptr address)
{
    struct sim_block *block;

    if (!out || !where ||
        (!is_host(where) && (where->type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_get(where->id))))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    block = sim_block_find(address);
    if (!block || (block->kind != BLOCK_MAPPED && block->kind != BLOCK_DEVICE && block->kind != BLOCK_POOLED))
        return CUDA_ERROR_INVALID_VALUE;
    if (block->kind != BLOCK_MAPPED)
        *out = 0;
    else
        *out = is_host(where) ? block->host_access : access_of(block, where->id);
    return CUDA_SUCCESS;
}

/* ---- between processes ---- */

CUresult sim_vmm_export(void *out, CUmemGenericAllocationHandle value, CUmemAllocationHandleType type)
{
    struct sim_handle *handle;
    int fd;

    if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    handle = handle_of(value);
    if (!handle || !handle->phys->own_file)
        return CUDA_ERROR_INVALID_VALUE;
    fd = fcntl(handle->phys->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(out, &fd, sizeof(fd));
    return CUDA_SUCCESS;
}

static bool read_tail(int fd, struct tail *tail)
{
    struct stat file;
    off_t at;

    if (fstat(fd, &file) != 0 || file.st_size < (off_t)sizeof(*tail))
        return false;
    at = file.st_size - (off_t)sizeof(*tail);
    return pread(fd, tail, sizeof(*tail), at) == (ssize_t)sizeof(*tail) && tail->magic == TAIL_MAGIC &&
           tail->size == (uint64_t)at;
}

CUresult sim_vmm_import(CUmemGenericAllocationHandle *out, void *os_handle, CUmemAllocationHandleType type)
{
    int fd = (int)(intptr_t)os_handle, copy;
    CUdevice device = PHYS_HOST;
    struct sim_phys *phys;
    struct tail tail;
    CUresult result;

    if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !read_tail(fd, &tail))
        return CUDA_ERROR_INVALID_VALUE;
    if (tail.card >= 0) {
        device = sim_device_by_card(tail.card);
        if (device < 0)
            return CUDA_ERROR_INVALID_DEVICE;
        tail.props.location.id = device;
    }
    copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    SIM_LOCKED();
    result = sim_phys_adopt(device, copy, 0, tail.size, &phys);
    if (result == CUDA_SUCCESS)
        return new_handle(out, phys, &tail.props);
    close(copy);
    return result;
}

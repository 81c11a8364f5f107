/* vmm: virtual memory management. See vmm.h. */
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
#define ACCESS_BITS 4                            /* per device in block->access; room for CARD_MAX_DEVICES */
#define ACCESS_MASK 15u

struct handle {
    struct phys *phys;
    CUmemAllocationProp props;
    unsigned int held;   /* by the program */
    unsigned int mapped; /* how often */
};

/* Behind the memory in a file that can be exported: what the importer has to know. */
struct tail {
    uint64_t magic;
    uint64_t size;
    int32_t card; /* -1: memory of the host */
    int32_t reserved;
    CUmemAllocationProp props;
};

static struct ranges reservations;

static bool is_host(const CUmemLocation *where)
{
    return where->type == CU_MEM_LOCATION_TYPE_HOST || where->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           where->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

/* ---- address space ---- */

struct reservation *vmm_reservation(uint64_t address)
{
    struct range *range = ranges_find(&reservations, address);

    return range ? LIST_ITEM(range, struct reservation, range) : NULL;
}

CUresult vmm_reserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr hint,
                     unsigned long long flags)
{
    struct reservation *reservation;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!out || size == 0 || size % PHYS_GRANULE || (alignment & (alignment - 1)) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    reservation = calloc(1, sizeof(*reservation));
    if (!reservation)
        return result;
    reservation->range.size = size;
    lock_take();
    reservation->range.start = va_reserve(size, alignment, hint);
    if (reservation->range.start && object_add(reservation, OBJECT_RESERVATION)) {
        ranges_insert(&reservations, &reservation->range);
        *out = reservation->range.start;
        result = CUDA_SUCCESS;
    } else {
        if (reservation->range.start)
            va_release(reservation->range.start, size);
        free(reservation);
    }
    lock_drop();
    return result;
}

CUresult vmm_unreserve(CUdeviceptr address, size_t size)
{
    struct reservation *reservation;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    lock_take();
    reservation = vmm_reservation(address);
    if (reservation && reservation->range.start == address && reservation->range.size == size &&
        reservation->mappings == 0) {
        ranges_remove(&reservations, &reservation->range);
        object_remove(reservation);
        va_release(address, size);
        free(reservation);
        result = CUDA_SUCCESS;
    }
    lock_drop();
    return result;
}

/* ---- memory by handle ---- */

static struct handle *handle_of(CUmemGenericAllocationHandle value)
{
    struct handle *handle = (struct handle *)(uintptr_t)value;

    return object_is(handle, OBJECT_HANDLE) ? handle : NULL;
}

static void free_if_unused(struct handle *handle)
{
    if (handle->held > 0 || handle->mapped > 0)
        return;
    phys_drop(handle->phys);
    free(handle);
}

/* A handle that the program holds once. Takes over phys, also when it fails. */
static CUresult new_handle(CUmemGenericAllocationHandle *out, struct phys *phys,
                           const CUmemAllocationProp *props)
{
    struct handle *handle = calloc(1, sizeof(*handle));

    if (!handle || !object_add(handle, OBJECT_HANDLE)) {
        phys_drop(phys);
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
        return device_get(props->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    return is_host(&props->location) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vmm_granularity(size_t *out, const CUmemAllocationProp *props)
{
    CUresult result = out ? check_props(props) : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS)
        *out = PHYS_GRANULE;
    return result;
}

static bool write_tail(const struct phys *phys, const CUmemAllocationProp *props)
{
    struct tail tail = {.magic = TAIL_MAGIC,
                        .size = phys->size,
                        .card = phys->device == PHYS_HOST ? -1 : device_get(phys->device)->card,
                        .props = *props};

    return pwrite(phys->fd, &tail, sizeof(tail), (off_t)phys->size) == (ssize_t)sizeof(tail);
}

CUresult vmm_create(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *props)
{
    bool exportable = props && props->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
    CUdevice device;
    struct phys *phys;
    CUresult result = out ? check_props(props) : CUDA_ERROR_INVALID_VALUE;

    if (result != CUDA_SUCCESS)
        return result;
    if (size == 0 || size % PHYS_GRANULE)
        return CUDA_ERROR_INVALID_VALUE;
    if (exportable && props->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    device = is_host(&props->location) ? PHYS_HOST : props->location.id;
    lock_take();
    result = phys_create(device, size, exportable, &phys);
    if (result == CUDA_SUCCESS && exportable && !write_tail(phys, props)) {
        phys_drop(phys);
        result = CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (result == CUDA_SUCCESS)
        result = new_handle(out, phys, props);
    lock_drop();
    return result;
}

CUresult vmm_release(CUmemGenericAllocationHandle value)
{
    struct handle *handle;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    lock_take();
    handle = handle_of(value);
    if (handle) {
        if (--handle->held == 0)
            object_remove(handle);
        free_if_unused(handle);
        result = CUDA_SUCCESS;
    }
    lock_drop();
    return result;
}

CUresult vmm_retain(CUmemGenericAllocationHandle *out, CUdeviceptr address)
{
    struct block *block;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    if (!out)
        return result;
    lock_take();
    block = block_find(address);
    if (block && block->kind == BLOCK_MAPPED) {
        if (block->handle->held == 0 && !object_add(block->handle, OBJECT_HANDLE)) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            block->handle->held++;
            *out = (CUmemGenericAllocationHandle)(uintptr_t)block->handle;
            result = CUDA_SUCCESS;
        }
    }
    lock_drop();
    return result;
}

CUresult vmm_handle_props(CUmemAllocationProp *out, CUmemGenericAllocationHandle value)
{
    struct handle *handle;

    lock_take();
    handle = handle_of(value);
    if (out && handle)
        *out = handle->props;
    lock_drop();
    return out && handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

const CUmemAllocationProp *vmm_props(struct block *block)
{
    return &block->handle->props;
}

bool vmm_reaches_bus(struct block *block)
{
    /* Memory of another process never does (measured). */
    return block->handle->props.allocFlags.gpuDirectRDMACapable && !block->handle->phys->foreign;
}

/* ---- mappings ---- */

static bool fits_reservation(uint64_t address, uint64_t size)
{
    struct reservation *reservation = vmm_reservation(address);

    return reservation && size <= reservation->range.size - (address - reservation->range.start);
}

static CUresult map(uint64_t address, struct handle *handle)
{
    struct block *block = block_new(BLOCK_MAPPED, NULL, handle->phys->device);

    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->handle = handle;
    block->range.start = address;
    block->range.size = block->extent = handle->phys->size;
    if (!va_back(address, handle->phys, PROT_NONE) || !block_publish(block)) {
        va_unback(address, handle->phys->size);
        block_delete(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    handle->mapped++;
    vmm_reservation(address)->mappings++;
    return CUDA_SUCCESS;
}

CUresult vmm_map(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle value)
{
    struct handle *handle;
    CUresult result;

    if (address % PHYS_GRANULE || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    lock_take();
    handle = handle_of(value);
    if (handle && (offset != 0 || size != handle->phys->size))
        result = CUDA_ERROR_NOT_SUPPORTED;
    else if (!handle || !fits_reservation(address, size) || block_overlaps(address, size))
        result = CUDA_ERROR_INVALID_VALUE;
    else
        result = map(address, handle);
    lock_drop();
    return result;
}

/* Is this range made of whole mappings without a gap? */
static bool whole_mappings(uint64_t address, uint64_t size)
{
    while (size > 0) {
        struct block *block = block_find(address);

        if (!block || block->kind != BLOCK_MAPPED || block->range.start != address ||
            block->range.size > size)
            return false;
        address += block->range.size;
        size -= block->range.size;
    }
    return true;
}

static void unmap(struct block *block)
{
    struct handle *handle = block->handle;

    block_withdraw(block);
    va_unback(block->range.start, block->range.size);
    vmm_reservation(block->range.start)->mappings--;
    handle->mapped--;
    free_if_unused(handle);
    block_delete(block);
}

/* Whole mappings and nothing, in any order: what is not mapped is no error to unmap (measured), a part is. */
static bool can_unmap(uint64_t address, uint64_t size)
{
    struct block *first = block_find(address), *last = block_find(address + size - 1);

    return (!first || first->range.start == address) &&
           (!last || last->range.start + last->range.size == address + size);
}

CUresult vmm_unmap(CUdeviceptr address, size_t size)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct block *block;

    lock_take();
    if (size > 0 && size % PHYS_GRANULE == 0 && fits_reservation(address, size) && can_unmap(address, size)) {
        while ((block = block_next(address)) && block->range.start - address < size)
            unmap(block);
        result = CUDA_SUCCESS;
    }
    lock_drop();
    return result;
}

/* ---- access ---- */

struct phys *vmm_memory(struct block *block)
{
    return block->handle->phys;
}

CUmemAccess_flags vmm_access(const struct block *block, CUdevice device)
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
    return device_get(desc->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static bool apply_access(struct block *block, const CUmemAccessDesc *list, size_t count)
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
    for (device = 0; device < device_count(); device++)
        all |= vmm_access(block, device);
    all |= block->host_access;
    block->flags = all;
    return va_protect(block->range.start, block->range.size,
                      (all & CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_NONE) |
                          (all == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_WRITE : PROT_NONE));
}

CUresult vmm_set_access(CUdeviceptr address, size_t size, const CUmemAccessDesc *list, size_t count)
{
    CUresult result = CUDA_SUCCESS;
    size_t i;

    if (!list || count == 0 || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (i = 0; result == CUDA_SUCCESS && i < count; i++)
        result = check_access(&list[i]);
    if (result != CUDA_SUCCESS)
        return result;
    lock_take();
    if (!whole_mappings(address, size))
        result = CUDA_ERROR_INVALID_VALUE;
    while (result == CUDA_SUCCESS && size > 0) {
        struct block *block = block_find(address);

        if (!apply_access(block, list, count))
            result = CUDA_ERROR_OUT_OF_MEMORY;
        address += block->range.size;
        size -= block->range.size;
    }
    lock_drop();
    return result;
}

CUresult vmm_get_access(unsigned long long *out, const CUmemLocation *where, CUdeviceptr address)
{
    struct block *block;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    if (!out || !where)
        return result;
    if (!is_host(where) && (where->type != CU_MEM_LOCATION_TYPE_DEVICE || !device_get(where->id)))
        return result;
    lock_take();
    block = block_find(address);
    if (block && block->kind == BLOCK_MAPPED) {
        *out = is_host(where) ? block->host_access : vmm_access(block, where->id);
        result = CUDA_SUCCESS;
    }
    lock_drop();
    return result;
}

/* ---- between processes ---- */

CUresult vmm_export(void *out, CUmemGenericAllocationHandle value, CUmemAllocationHandleType type)
{
    struct handle *handle;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    int fd;

    if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return result;
    lock_take();
    handle = handle_of(value);
    if (handle && handle->phys->own_file) {
        fd = fcntl(handle->phys->fd, F_DUPFD_CLOEXEC, 0);
        if (fd >= 0)
            memcpy(out, &fd, sizeof(fd));
        result = fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
    }
    lock_drop();
    return result;
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

CUresult vmm_import(CUmemGenericAllocationHandle *out, void *os_handle, CUmemAllocationHandleType type)
{
    int fd = (int)(intptr_t)os_handle, copy;
    CUdevice device = PHYS_HOST;
    struct phys *phys;
    struct tail tail;
    CUresult result;

    if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !read_tail(fd, &tail))
        return CUDA_ERROR_INVALID_VALUE;
    if (tail.card >= 0) {
        device = device_by_card(tail.card);
        if (device < 0)
            return CUDA_ERROR_INVALID_DEVICE;
        tail.props.location.id = device;
    }
    copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    lock_take();
    result = phys_adopt(device, copy, 0, tail.size, &phys);
    if (result == CUDA_SUCCESS)
        result = new_handle(out, phys, &tail.props);
    else
        close(copy);
    lock_drop();
    return result;
}

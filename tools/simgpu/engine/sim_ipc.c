/* sim_ipc: opens memory of one process in another. See sim_ipc.h. */
#include "tools/simgpu/engine/sim_ipc.h"

#include "tools/simgpu/engine/sim_device.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_slab.h"
#include "tools/simgpu/engine/sim_stream.h"
#include "tools/simgpu/engine/sim_va.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TICKET_MAGIC UINT64_C(0x3169706375706773) /* "sgpucpi1" */

/* Contents of a CUipcMemHandle. The importer maps a whole allocation from the card, which a small block
 * shares with others, as in the driver. */
struct ticket {
    uint64_t magic;
    int32_t pid;
    int32_t fd;
    int32_t card;
    int32_t reserved;
    uint64_t offset; /* of the mapping in the file */
    uint64_t size;   /* of the mapping */
    uint64_t inside; /* offset of the block in the mapping */
    uint64_t bytes;  /* of the block */
    uint64_t id;     /* BUFFER_ID in the exporter */
};

_Static_assert(sizeof(struct ticket) == CU_IPC_HANDLE_SIZE, "a ticket fills the handle");

void sim_ipc_end_block(struct sim_block *block)
{
    uint64_t start = block->range.start & ~(PHYS_GRANULE - 1);

    sim_va_release(start, block->extent);
    sim_phys_drop(block->phys);
    sim_block_delete(block);
}

/* Returns the memory that holds a block, and the block's offset in it. */
static const struct sim_phys *memory_of(const struct sim_block *block, uint64_t *inside)
{
    uint64_t start = block->range.start;
    const struct sim_phys *phys = block->slab ? sim_slab_memory(block->slab, &start) : block->phys;

    *inside = block->range.start - start;
    return phys;
}

void sim_ipc_retire(struct sim_block *block)
{
    uint64_t inside;
    const struct sim_phys *phys = memory_of(block, &inside);

    sim_phys_mark(phys, inside, 0);
}

static bool write_ticket(struct ticket *ticket, struct sim_block *block)
{
    uint64_t inside;
    const struct sim_phys *phys = memory_of(block, &inside);

    *ticket = (struct ticket){.magic = TICKET_MAGIC,
                              .pid = getpid(),
                              .fd = phys->fd,
                              .card = sim_device_get(block->device)->card,
                              .offset = (uint64_t)phys->offset,
                              .size = phys->size,
                              .inside = inside,
                              .bytes = block->range.size,
                              .id = block->id};
    block->exported = sim_phys_mark(phys, inside, block->id);
    return block->exported;
}

CUresult sim_ipc_get_handle(CUipcMemHandle *out, CUdeviceptr address)
{
    struct CUctx_st *context;
    struct ticket ticket;
    struct sim_block *block;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    block = sim_block_find(address);
    if (!block || block->kind != BLOCK_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!write_ticket(&ticket, block))
        return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(out, &ticket, sizeof(ticket));
    return CUDA_SUCCESS;
}

static bool plausible(const struct ticket *ticket)
{
    return ticket->magic == TICKET_MAGIC && ticket->size > 0 && ticket->size % PHYS_GRANULE == 0 &&
           ticket->inside < ticket->size && ticket->bytes <= ticket->size - ticket->inside;
}

static CUresult map_ticket(const struct ticket *ticket, struct CUctx_st *context, CUdevice device,
                           struct sim_block **out)
{
    struct sim_block *block = sim_block_new(BLOCK_IMPORTED, context, device);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    char path[64];
    uint64_t start;
    int fd;

    if (!block)
        return result;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", ticket->pid, ticket->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        result = CUDA_ERROR_INVALID_HANDLE; /* the exporter is gone (measured) */
        goto fail;
    }
    if (sim_phys_read_mark(fd, (off_t)(ticket->offset + ticket->inside)) != ticket->id) {
        result = CUDA_ERROR_INVALID_VALUE; /* the exporter has freed the block */
        close(fd);
        goto fail;
    }
    result = sim_phys_adopt(device, fd, (off_t)ticket->offset, ticket->size, &block->phys);
    if (result != CUDA_SUCCESS) {
        close(fd);
        goto fail;
    }
    start = sim_va_reserve(ticket->size, 0, 0);
    if (!start || !sim_va_back(start, block->phys, PROT_READ | PROT_WRITE)) {
        if (start)
            sim_va_release(start, ticket->size);
        sim_phys_drop(block->phys);
        result = CUDA_ERROR_OUT_OF_MEMORY;
        goto fail;
    }
    block->range.start = start + ticket->inside;
    block->range.size = ticket->bytes;
    block->extent = ticket->size;
    block->opens = 1;
    block->origin = ticket->id;
    block->origin_pid = ticket->pid;
    if (sim_block_publish(block)) {
        *out = block;
        return CUDA_SUCCESS;
    }
    sim_va_release(start, ticket->size);
    sim_phys_drop(block->phys);
    result = CUDA_ERROR_OUT_OF_MEMORY;
fail:
    sim_block_delete(block);
    return result;
}

/* Opening the same handle again in a context gives the same mapping. Returns it, or NULL. */
static struct sim_block *already_open(struct CUctx_st *context, const struct ticket *ticket)
{
    struct sim_link *at;

    for (at = context->blocks.next; at != &context->blocks; at = at->next) {
        struct sim_block *block = LIST_ITEM(at, struct sim_block, link);

        if (block->kind == BLOCK_IMPORTED && block->origin == ticket->id && block->origin_pid == ticket->pid)
            return block;
    }
    return NULL;
}

CUresult sim_ipc_open_handle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
    struct CUctx_st *context;
    struct ticket ticket;
    struct sim_block *block;
    CUdevice device;

    memcpy(&ticket, &handle, sizeof(ticket));
    if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || !plausible(&ticket))
        return CUDA_ERROR_INVALID_VALUE;
    if (ticket.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT; /* a process cannot open its own handle */
    device = sim_device_by_card(ticket.card);
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    block = already_open(context, &ticket);
    if (block)
        block->opens++;
    else
        SIM_TRY(map_ticket(&ticket, context, device, &block));
    *out = block->range.start;
    return CUDA_SUCCESS;
}

CUresult sim_ipc_close_handle(CUdeviceptr address)
{
    struct CUctx_st *context;
    struct sim_block *block;

    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    block = sim_block_find(address);
    if (!block || block->kind != BLOCK_IMPORTED || block->range.start != address)
        return CUDA_ERROR_INVALID_VALUE;
    if (--block->opens == 0) {
        sim_block_withdraw(block);
        sim_stream_wait_context(context);
        sim_ipc_end_block(block);
    }
    return CUDA_SUCCESS;
}

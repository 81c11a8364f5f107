/* The allocation modes. An arena hands a freed block out again at once, although work that uses it may still
 * be queued: right, because the training loop works on one stream, whose order is the fence. */
#include "mem.h"

#include <string.h>

#include "device.h"

static const char *const kind_names[] = {
#define MEM_KIND_NAME(kind, name) name,
    MEM_KINDS(MEM_KIND_NAME)
#undef MEM_KIND_NAME
};

static enum status explain(const struct mem *mem, size_t bytes, const char *what)
{
    size_t free_bytes = 0;
    size_t total = 0;

    /* The failed allocation is reported here; its error must not surface again at the next launch. */
    cudaGetLastError();
    cudaMemGetInfo(&free_bytes, &total);
    status_fail(STATUS_NO_MEMORY,
                "out of memory: asked for %zu bytes (%s), %zu bytes free of %zu on the device", bytes, what,
                free_bytes, total);
    if (mem->base)
        status_fail(STATUS_NO_MEMORY, "the arena has %zu bytes free of %zu, the largest range %zu",
                    mem->arena.size - mem->arena.taken, mem->arena.size, arena_largest_free(&mem->arena));
    for (int kind = 0; kind < MEM_KIND_COUNT; kind++) {
        if (mem->live[kind])
            status_fail(STATUS_NO_MEMORY, "held by this program: %zu bytes of %s", mem->live[kind],
                        kind_names[kind]);
    }
    return STATUS_NO_MEMORY;
}

static enum status device_malloc(struct mem *mem, void **out, size_t bytes, const char *what)
{
    cudaError_t error = cudaMalloc(out, bytes);

    if (error == cudaErrorMemoryAllocation)
        return explain(mem, bytes, what);
    if (error)
        return device_status(error, "cudaMalloc");
    mem->held += bytes;
    mem->peak = mem->held > mem->peak ? mem->held : mem->peak;
    return STATUS_OK;
}

static enum status device_free(struct mem *mem, void *data, size_t bytes)
{
    mem->held -= bytes;
    return device_status(cudaFree(data), "cudaFree");
}

enum status mem_open(struct mem *mem, enum alloc_mode mode, double fraction)
{
    size_t free_bytes;
    size_t total;
    size_t bytes;
    enum status status;

    memset(mem, 0, sizeof(*mem));
    mem->mode = mode;
    if (mode != ALLOC_ARENA)
        return STATUS_OK;
    status = device_status(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo");
    if (status)
        return status;
    bytes = (size_t)((double)free_bytes * fraction) / ARENA_ALIGN * ARENA_ALIGN;
    if (bytes == 0)
        return explain(mem, ARENA_ALIGN, "the arena");
    status = device_malloc(mem, (void **)&mem->base, bytes, "the arena");
    if (status)
        return status;
    if (!arena_open(&mem->arena, bytes)) {
        device_free(mem, mem->base, bytes);
        return status_fail(STATUS_NO_MEMORY, "out of host memory for the arena's records");
    }
    return STATUS_OK;
}

enum status mem_close(struct mem *mem)
{
    enum status status = STATUS_OK;

    if (mem->base)
        status = device_free(mem, mem->base, mem->arena.size);
    arena_close(&mem->arena);
    mem->base = NULL;
    return status;
}

enum status mem_need(struct mem *mem, struct tensor *tensor, size_t bytes, enum mem_kind kind)
{
    enum status status = STATUS_OK;
    size_t offset;

    if (tensor->data && tensor->bytes >= bytes)
        return STATUS_OK;
    status = mem_drop(mem, tensor);
    if (status)
        return status;
    if (!mem->base)
        status = device_malloc(mem, &tensor->data, bytes, kind_names[kind]);
    else if (arena_take(&mem->arena, bytes, &offset))
        tensor->data = mem->base + offset;
    else
        status = explain(mem, bytes, kind_names[kind]);
    if (status)
        return status;
    tensor->bytes = bytes;
    tensor->kind = kind;
    mem->live[kind] += bytes;
    return STATUS_OK;
}

enum status mem_done(struct mem *mem, struct tensor *tensor)
{
    return mem->mode == ALLOC_STATIC ? STATUS_OK : mem_drop(mem, tensor);
}

enum status mem_drop(struct mem *mem, struct tensor *tensor)
{
    void *data = tensor->data;

    if (!data)
        return STATUS_OK;
    tensor->data = NULL;
    mem->live[tensor->kind] -= tensor->bytes;
    if (!mem->base)
        return device_free(mem, data, tensor->bytes);
    if (!arena_give(&mem->arena, (size_t)((char *)data - mem->base)))
        return status_fail(STATUS_FAILED, "the arena does not know the block it is given back");
    return STATUS_OK;
}

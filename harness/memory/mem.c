/* Tensors over a supply: their holders, the bytes of each kind, and the message when there is no memory. */
#include "harness/memory/mem.h"

static const char *const kind_names[] = {
#define MEM_KIND_NAME(kind, name) name,
    MEM_KINDS(MEM_KIND_NAME)
#undef MEM_KIND_NAME
};

const char *mem_kind_name(enum mem_kind kind)
{
    return kind_names[kind];
}

void mem_open(struct mem *mem, struct supply *supply, cudaStream_t stream)
{
    *mem = (struct mem){.supply = supply, .stream = stream, .keep = supply->mode == ALLOC_STATIC};
}

static void explain(const struct mem *mem, size_t bytes, enum mem_kind kind)
{
    supply_explain(mem->supply, bytes, kind_names[kind]);
    for (int k = 0; k < MEM_KIND_COUNT; k++) {
        if (mem->live[k])
            status_fail(STATUS_NO_MEMORY, "held by this model: %zu bytes of %s", mem->live[k], kind_names[k]);
    }
}

enum status mem_need(struct mem *mem, struct tensor *tensor, size_t bytes, enum mem_kind kind)
{
    enum status status;

    if (tensor->data && tensor->bytes >= bytes) {
        tensor->holders = tensor->holders ? tensor->holders : 1;
        return STATUS_OK;
    }
    status = mem_drop(mem, tensor);
    if (status)
        return status;
    status = supply_take(mem->supply, mem->stream, bytes, kind_names[kind], &tensor->data, &tensor->block);
    if (status == STATUS_NO_MEMORY)
        explain(mem, bytes, kind);
    if (status)
        return status;
    tensor->bytes = bytes;
    tensor->kind = kind;
    tensor->holders = 1;
    mem->live[kind] += bytes;
    mem->peak[kind] = mem->live[kind] > mem->peak[kind] ? mem->live[kind] : mem->peak[kind];
    return STATUS_OK;
}

void mem_share(struct tensor *tensor)
{
    tensor->holders++;
}

enum status mem_done(struct mem *mem, struct tensor *tensor)
{
    if (tensor->holders > 0 && --tensor->holders > 0)
        return STATUS_OK;
    return mem->keep ? STATUS_OK : mem_drop(mem, tensor);
}

enum status mem_drop(struct mem *mem, struct tensor *tensor)
{
    struct tensor old = *tensor;

    if (!old.data)
        return STATUS_OK;
    *tensor = (struct tensor){0};
    mem->live[old.kind] -= old.bytes;
    return supply_give(mem->supply, mem->stream, old.data, old.block, old.bytes);
}

/* pointer: see pointer.h. */
#include "interpose/hook/pointer.h"

#include "interpose/pool/pools.h"
#include "interpose/route.h"
#include "interpose/share/ipc.h"

static enum pointer_place look_in_pool(struct pool *pool, uint64_t address, struct pointer_block *out)
{
    struct pool_block block;

    if (pool_block(pool, address, true, &block))
        return POINTER_NOTHING;
    *out = (struct pointer_block){.start = block.address,
                                  .bytes = block.asked,
                                  .id = block.id,
                                  .context = pool->context,
                                  .ordinal = pool->ordinal,
                                  .sync_memops = block.sync_memops,
                                  .pool = pool};
    return POINTER_BLOCK;
}

enum pointer_place pointer_look(uint64_t address, struct pointer_block *out)
{
    struct pool *pool = route_active() ? pools_of(address) : NULL;
    struct ipc_block opened;

    if (pool)
        return look_in_pool(pool, address, out);
    switch (ipc_find(address, &opened)) {
    case IPC_BLOCK:
        *out = (struct pointer_block){.start = opened.start,
                                      .bytes = opened.bytes,
                                      .id = opened.id,
                                      .context = opened.context,
                                      .ordinal = opened.ordinal};
        return POINTER_BLOCK;
    case IPC_BESIDE:
        return POINTER_NOTHING;
    case IPC_NOT_OURS:
        break;
    }
    return POINTER_FOREIGN;
}

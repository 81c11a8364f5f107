/* sim_object: the table of live handles and their kinds.
 *
 * A program may pass any pointer to the driver, so the engine looks a handle up here before it dereferences
 * it. simgpu_leaks() sums the counts. Guarded by the engine's lock.
 */
#ifndef SIMGPU_OBJECT_H
#define SIMGPU_OBJECT_H

#include <stdbool.h>

enum sim_object_kind {
    OBJECT_NONE,
    OBJECT_CONTEXT,
    OBJECT_GREEN, /* a CUgreenCtx; its context from cuCtxFromGreenCtx is an OBJECT_CONTEXT */
    OBJECT_STREAM,
    OBJECT_EVENT,
    OBJECT_BLOCK,       /* memory with an address: device, pooled, managed, host, imported */
    OBJECT_HANDLE,      /* cuMemCreate */
    OBJECT_RESERVATION, /* cuMemAddressReserve */
    OBJECT_MAPPING,     /* cuMemMap */
    OBJECT_ARRAY,
    OBJECT_MIPMAP,
    OBJECT_POOL,
    OBJECT_MODULE,
    OBJECT_FUNCTION,
    OBJECT_LIBRARY,
    OBJECT_KERNEL,
    OBJECT_GRAPH,
    OBJECT_NODE,
    OBJECT_EXEC,
    OBJECT_KINDS
};

bool sim_object_add(const void *handle, enum sim_object_kind kind); /* false: out of memory */
void sim_object_remove(const void *handle);
bool sim_object_is(const void *handle, enum sim_object_kind kind);
unsigned long sim_object_count(enum sim_object_kind kind);

#endif

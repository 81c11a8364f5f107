/* seen: see seen.h. */
#include "interpose/hook/seen.h"

#include "interpose/pool/pools.h"
#include "interpose/refusal.h"

/* Returns the card of a block; 0 if the driver does not say. */
static CUdevice card_of(CUdevice ordinal, uint64_t address)
{
    const struct pool *pool = address ? pools_of(address) : NULL;

    if (ordinal != ROUTE_CURRENT)
        return ordinal;
    if (pool)
        return pool->ordinal;
    return device_only(&ordinal) || driver.cuCtxGetDevice(&ordinal) == CUDA_SUCCESS ? ordinal : 0;
}

void seen_note(CUresult result, enum recording_kind kind, CUdevice ordinal, uint64_t address, uint64_t bytes,
               CUstream stream)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY && route_active())
        refusal_note_full(card_of(ordinal, 0), bytes);
    if (result == CUDA_SUCCESS)
        events_note(&(struct recording_event){.head.type = RECORDING_ALLOC,
                                              .device = (uint16_t)card_of(ordinal, address),
                                              .kind = (uint8_t)kind,
                                              .address = address,
                                              .bytes = bytes,
                                              .other = (uint64_t)(uintptr_t)stream,
                                              .owner = owner_current,
                                              .stack = owner_stack});
}

void seen_graphs(CUdevice ordinal, uint64_t held)
{
    const uint64_t number = (uint64_t)ordinal + 1; /* one block per card */

    if (held == 0)
        events_note_free(RECORDING_GRAPH, number, NULL);
    else if (events_are_on())
        events_note(&(struct recording_event){.head.type = RECORDING_ALLOC,
                                              .device = (uint16_t)ordinal,
                                              .kind = RECORDING_GRAPH,
                                              .address = number,
                                              .bytes = held,
                                              .owner = owner_current});
}

/* seen: notes what a hook of a call that takes memory has got from the driver: blocks for a recording,
 * refusals also for `gpucap why`. Costs two branches while nothing is recorded. Owns no lock. */
#ifndef GPUCAP_SEEN_H
#define GPUCAP_SEEN_H

#include "interpose/hook/hooks.h"
#include "interpose/route.h"
#include "interpose/see/owner.h"

/* Notes a block, or that there was no memory. `ordinal`: its card, or ROUTE_CURRENT. */
void seen_note(CUresult result, enum recording_kind kind, CUdevice ordinal, uint64_t address, uint64_t bytes,
               CUstream stream);

/* Notes the call's result, and returns it. `address` is read only after a success. */
#define SEEN(result, kind, ordinal, address, bytes, stream)                                                  \
    ({                                                                                                       \
        const CUresult seen_ = (result);                                                                     \
        if (events_are_on() || seen_ == CUDA_ERROR_OUT_OF_MEMORY)                                            \
            seen_note(seen_, kind, ordinal, seen_ == CUDA_SUCCESS ? (uint64_t)(address) : 0, bytes, stream); \
        seen_;                                                                                               \
    })

/* Makes a call that releases a block: notes it before, and takes that back if the driver refuses. */
#define SEEN_FREE(kind, address, stream, call)                                                               \
    ({                                                                                                       \
        events_note_free(kind, (uint64_t)(address), stream);                                                 \
        const CUresult freed_ = (call);                                                                      \
        if (freed_ != CUDA_SUCCESS && freed_ != CUDA_ERROR_DEINITIALIZED)                                    \
            events_note_kept(kind, (uint64_t)(address));                                                     \
        freed_;                                                                                              \
    })

/* Notes what the driver holds for graphs on a card. */
void seen_graphs(CUdevice ordinal, uint64_t held);

#endif

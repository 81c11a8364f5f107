/* memops: synchronous copies and fills that really are synchronous.
 *
 * The driver's own may return before the device is done (copies on the device, fills). A program that sets
 * CU_POINTER_ATTRIBUTE_SYNC_MEMOPS on a block asks for more, and the driver does not know that attribute for
 * pooled memory. Once it has been set on one, every synchronous operation of the process waits for its
 * stream. Owns no lock.
 */
#ifndef GPUCAP_MEMOPS_H
#define GPUCAP_MEMOPS_H

#include "interpose/driver/driver.h"

extern atomic_bool memops_synchronous; /* set once, never cleared */

/* Waits for the default stream that the operation went to (a key of fence.h), if the operation succeeded. */
CUresult memops_wait(CUresult result, uintptr_t stream);

static inline CUresult memops_finish(CUresult result, uintptr_t stream)
{
    if (__builtin_expect(!atomic_load_explicit(&memops_synchronous, memory_order_relaxed), 1))
        return result;
    return memops_wait(result, stream);
}

#endif

/* memops: makes synchronous copies and fills wait for the device.
 *
 * The driver's own may return before the device is done (copies on the device, fills). A program that sets
 * CU_POINTER_ATTRIBUTE_SYNC_MEMOPS on a block forbids that, but the driver does not support the attribute for
 * pooled memory. Once it has been set on a pooled block, every synchronous operation of the process waits for
 * its stream. Owns no lock.
 */
#ifndef GPUCAP_MEMOPS_H
#define GPUCAP_MEMOPS_H

#include "interpose/driver/driver.h"

extern atomic_bool memops_synchronous; /* set once, never cleared */

/* Waits for the default stream that the operation used (a key of streams.h), if it succeeded. Returns
 * `result` or the error of the wait. */
CUresult memops_wait(CUresult result, uintptr_t stream);

static inline CUresult memops_finish(CUresult result, uintptr_t stream)
{
    if (__builtin_expect(!atomic_load_explicit(&memops_synchronous, memory_order_relaxed), 1))
        return result;
    return memops_wait(result, stream);
}

#endif

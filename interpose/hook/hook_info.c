/* Hooks that report how much memory there is: the smaller of the card and the limit. */
#include "interpose/base/sums.h"
#include "interpose/hook/hooks.h"
#include "interpose/pool/pools.h"
#include "interpose/route.h"

#define READS_MAX 16 /* of figures that change between two reads; a large trim gives back in many parts */

static CUresult read_figures(size_t *free_bytes, size_t *total_bytes)
{
    CUresult result = driver.cuMemGetInfo_v2(free_bytes, total_bytes);
    CUdevice ordinal;

    if (result != CUDA_SUCCESS || !route_active() || driver.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
        return result;
    struct device *device = device_get(ordinal);
    if (total_bytes && device)
        *total_bytes = sums_smaller(*total_bytes, device->limit);
    if (free_bytes && device)
        *free_bytes = sums_smaller(*free_bytes, account_view(&device->account).room);
    if (free_bytes)
        *free_bytes += pools_reclaimable(ordinal);
    return result;
}

/* Reports as free what can be allocated: the rest of the card or of the limit, plus what our pools hold idle.
 * What goes back to the driver between these two reads is in neither figure: then both are read again. */
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    CUresult result;
    uint64_t given;
    int reads = 0;

    do {
        given = route_given_back();
        result = read_figures(free_bytes, total_bytes);
    } while (route_given_back() != given && ++reads < READS_MAX);
    return result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
    CUresult result = driver.cuDeviceTotalMem_v2(bytes, ordinal);
    struct device *device = result == CUDA_SUCCESS && bytes && route_active() ? device_get(ordinal) : NULL;

    if (device)
        *bytes = sums_smaller(*bytes, device->limit);
    return result;
}

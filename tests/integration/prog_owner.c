/* prog_owner: two libraries that allocate through the CUDA runtime. See prog_owner.h. */
#include "prog_owner.h"

#include <cuda_runtime_api.h>
#include <string.h>

#ifdef OWNER_STATIC

int owner_static_take(void **block, size_t bytes)
{
    const int result = cudaMalloc(block, bytes);

    __asm__ volatile("" ::: "memory"); /* not a tail call */
    return result;
}

#else

static cudaError_t (*volatile by_pointer)(void **block, size_t bytes) = cudaMalloc;

int owner_shared_take(void **block, size_t bytes)
{
    const int result = cudaMalloc(block, bytes);

    __asm__ volatile("" ::: "memory");
    return result;
}

int owner_shared_take_deep(void **block, size_t bytes)
{
    volatile char room[300];

    memset((char *)room, 1, sizeof(room));
    const int result = by_pointer(block, bytes);
    return result + room[7] - 1;
}

#endif

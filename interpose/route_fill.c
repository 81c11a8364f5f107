/* route_fill: see route_fill.h. */
#include "interpose/route_fill.h"

#include "interpose/pool/capture.h"
#include "interpose/route.h"

/* Returns the pool's stream for fills, made on first use. The pool's context is current. */
static CUresult own_stream(struct pool *pool, CUstream *stream)
{
    struct route_growth growth;
    CUstream none = NULL;

    *stream = atomic_load(&pool->filling);
    if (*stream)
        return CUDA_SUCCESS;
    CUresult result = route_grow_begin(&growth, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver.cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) {
        route_grow_abort(&growth);
        return result;
    }
    route_grow_end(&growth);
    if (!atomic_compare_exchange_strong(&pool->filling, &none, *stream)) {
        driver.cuStreamDestroy_v2(*stream);
        *stream = none;
    }
    return CUDA_SUCCESS;
}

/* fill_block with the pool's context current. */
static CUresult fill_here(struct pool *pool, uint64_t address, uint64_t bytes, unsigned char value)
{
    CUstream stream;
    CUresult result = own_stream(pool, &stream);

    if (result == CUDA_SUCCESS)
        result = driver.cuMemsetD8Async(address, value, bytes, stream);
    return result == CUDA_SUCCESS ? capture_wait_stream(stream) : result;
}

/* The current context may be a green one: a stream made there would end with it. */
CUresult fill_block(struct pool *pool, uint64_t address, uint64_t bytes, unsigned char value)
{
    CUcontext context;
    CUresult result = driver.cuCtxPushCurrent_v2(pool->context);

    if (result == CUDA_SUCCESS) {
        result = fill_here(pool, address, bytes, value);
        driver.cuCtxPopCurrent_v2(&context);
    }
    return result;
}

/* Returns the bytes to fill when a block is freed; 0: there is none, or other processes have it open. */
static uint64_t freed_bytes(struct pool *pool, uint64_t address)
{
    struct pool_block block;

    return pool_block(pool, address, false, &block) || block.pins ? 0 : block.asked;
}

bool fill_freed(struct pool *pool, uint64_t address)
{
    const uint64_t bytes = freed_bytes(pool, address);
    CUcontext context;

    if (!bytes || driver.cuCtxPushCurrent_v2(pool->context) != CUDA_SUCCESS)
        return true; /* nothing has been submitted */
    const CUresult result = fill_here(pool, address, bytes, FILL_FREED);
    driver.cuCtxPopCurrent_v2(&context);
    return result == CUDA_SUCCESS;
}

void fill_freed_behind(struct pool *pool, uint64_t address, CUstream stream)
{
    const uint64_t bytes = freed_bytes(pool, address);

    if (bytes)
        driver.cuMemsetD8Async(address, FILL_FREED, bytes, stream); /* if this fails, a check is lost */
}

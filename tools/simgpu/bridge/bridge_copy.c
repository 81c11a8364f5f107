/* bridge_copy: entry points that copy and fill memory. Only checks arguments; see engine/sim_copy.h. */
#include "tools/simgpu/engine/sim_copy.h"

#include "tools/simgpu/bridge/bridge_per_thread.h"

#define HOST(p) ((uint64_t)(uintptr_t)(p))

PAIR_DS(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t size),
        sim_copy_linear(to, SIDE_ANY, from, SIDE_ANY, size, stream, COPY_SYNC))
PAIR_DS(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t size),
        sim_copy_linear(to, SIDE_DEVICE, HOST(from), SIDE_HOST, size, stream, COPY_SYNC))
PAIR_DS(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t size),
        sim_copy_linear(HOST(to), SIDE_HOST, from, SIDE_DEVICE, size, stream, COPY_SYNC))
PAIR_DS(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t size),
        sim_copy_linear(to, SIDE_DEVICE, from, SIDE_DEVICE, size, stream, COPY_SYNC))

PAIR(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream),
     sim_copy_linear(to, SIDE_ANY, from, SIDE_ANY, size, stream, COPY_ASYNC))
PAIR(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t size, CUstream stream),
     sim_copy_linear(to, SIDE_DEVICE, HOST(from), SIDE_HOST, size, stream, COPY_ASYNC))
PAIR(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t size, CUstream stream),
     sim_copy_linear(HOST(to), SIDE_HOST, from, SIDE_DEVICE, size, stream, COPY_ASYNC))
PAIR(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream),
     sim_copy_linear(to, SIDE_DEVICE, from, SIDE_DEVICE, size, stream, COPY_ASYNC))

/* With unified addressing an address alone says where the memory is. */
static CUresult copy_peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                          size_t size, CUstream stream, enum sim_copy_wait wait)
{
    if (!to_context || !from_context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return sim_copy_linear(to, SIDE_DEVICE, from, SIDE_DEVICE, size, stream, wait);
}

PAIR_DS(cuMemcpyPeer,
        (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size),
        copy_peer(to, to_context, from, from_context, size, stream, COPY_SYNC))
PAIR(cuMemcpyPeerAsync,
     (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size,
      CUstream stream),
     copy_peer(to, to_context, from, from_context, size, stream, COPY_ASYNC))

PAIR_DS(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *copy), sim_copy_2d(copy, stream, COPY_SYNC))
PAIR_DS(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *copy), sim_copy_2d(copy, stream, COPY_SYNC))
PAIR_DS(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *copy), sim_copy_3d(copy, stream, COPY_SYNC))
PAIR_DS(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *copy), sim_copy_3d_peer(copy, stream, COPY_SYNC))
PAIR(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy, CUstream stream), sim_copy_2d(copy, stream, COPY_ASYNC))
PAIR(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *copy, CUstream stream), sim_copy_3d(copy, stream, COPY_ASYNC))
PAIR(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *copy, CUstream stream),
     sim_copy_3d_peer(copy, stream, COPY_ASYNC))

PAIR_DS(cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, size_t count),
        sim_copy_fill(to, 0, value, 1, count, 1, stream, COPY_SYNC))
PAIR_DS(cuMemsetD16_v2, (CUdeviceptr to, unsigned short value, size_t count),
        sim_copy_fill(to, 0, value, 2, count, 1, stream, COPY_SYNC))
PAIR_DS(cuMemsetD32_v2, (CUdeviceptr to, unsigned int value, size_t count),
        sim_copy_fill(to, 0, value, 4, count, 1, stream, COPY_SYNC))
PAIR_DS(cuMemsetD2D8_v2, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height),
        sim_copy_fill(to, pitch, value, 1, width, height, stream, COPY_SYNC))
PAIR_DS(cuMemsetD2D16_v2, (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height),
        sim_copy_fill(to, pitch, value, 2, width, height, stream, COPY_SYNC))
PAIR_DS(cuMemsetD2D32_v2, (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height),
        sim_copy_fill(to, pitch, value, 4, width, height, stream, COPY_SYNC))

PAIR(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream),
     sim_copy_fill(to, 0, value, 1, count, 1, stream, COPY_ASYNC))
PAIR(cuMemsetD16Async, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream),
     sim_copy_fill(to, 0, value, 2, count, 1, stream, COPY_ASYNC))
PAIR(cuMemsetD32Async, (CUdeviceptr to, unsigned int value, size_t count, CUstream stream),
     sim_copy_fill(to, 0, value, 4, count, 1, stream, COPY_ASYNC))
PAIR(cuMemsetD2D8Async,
     (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream),
     sim_copy_fill(to, pitch, value, 1, width, height, stream, COPY_ASYNC))
PAIR(cuMemsetD2D16Async,
     (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream),
     sim_copy_fill(to, pitch, value, 2, width, height, stream, COPY_ASYNC))
PAIR(cuMemsetD2D32Async,
     (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream),
     sim_copy_fill(to, pitch, value, 4, width, height, stream, COPY_ASYNC))

/* ---- arrays by byte offset: the array is taken as one long row ---- */

static CUresult copy_array(CUarray to_array, uint64_t to, CUarray from_array, uint64_t from, size_t size,
                           CUstream stream, size_t to_offset, size_t from_offset)
{
    CUDA_MEMCPY3D copy = {.srcMemoryType = from_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
                          .srcArray = from_array,
                          .srcDevice = from,
                          .srcXInBytes = from_offset,
                          .dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
                          .dstArray = to_array,
                          .dstDevice = to,
                          .dstXInBytes = to_offset,
                          .WidthInBytes = size,
                          .Height = 1,
                          .Depth = 1};

    return sim_copy_3d(&copy, stream, COPY_SYNC);
}

PAIR_DS(cuMemcpyHtoA_v2, (CUarray to, size_t offset, const void *from, size_t size),
        copy_array(to, 0, NULL, HOST(from), size, stream, offset, 0))
PAIR_DS(cuMemcpyAtoH_v2, (void *to, CUarray from, size_t offset, size_t size),
        copy_array(NULL, HOST(to), from, 0, size, stream, 0, offset))
PAIR_DS(cuMemcpyDtoA_v2, (CUarray to, size_t offset, CUdeviceptr from, size_t size),
        copy_array(to, 0, NULL, from, size, stream, offset, 0))
PAIR_DS(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t offset, size_t size),
        copy_array(NULL, to, from, 0, size, stream, 0, offset))

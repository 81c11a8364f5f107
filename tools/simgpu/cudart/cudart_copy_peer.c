/* cudart_copy_peer: copies between the primary contexts of two devices. As in the real runtime, these
 * functions have no per-thread form. No lock.
 */
#include "tools/simgpu/cudart/cudart_runtime.h"

static CUresult contexts(int to, int from, CUcontext *to_context, CUcontext *from_context)
{
    return cudart_primary(to, to_context) ?: cudart_primary(from, from_context);
}

cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t size)
{
    CUcontext a, b;
    return CUDART_IN_CONTEXT(contexts(to_device, from_device, &a, &b)
                                 ?: DRV(cuMemcpyPeer)(cudart_address(to), a, cudart_address(from), b, size));
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t size,
                                cudaStream_t stream)
{
    CUcontext a, b;
    return CUDART_IN_CONTEXT(
        contexts(to_device, from_device, &a, &b)
            ?: DRV(cuMemcpyPeerAsync)(cudart_address(to), a, cudart_address(from), b, size, stream));
}

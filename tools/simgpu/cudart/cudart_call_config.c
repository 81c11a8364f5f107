/* cudart_call_config: the launch configuration of <<<...>>>, pushed before and popped after the kernel's
 * arguments are evaluated. A stack, because an argument may itself launch a kernel. Owns no lock: the stack
 * is thread-local.
 */
#include "tools/simgpu/cudart/cudart_runtime.h"

#include <string.h>
#include <vector_types.h>

#define MAX_NESTING 8

struct config {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
};

static __thread struct config stack[MAX_NESTING];
static __thread unsigned depth;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream);

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st *stream)
{
    if (depth == MAX_NESTING)
        return (unsigned)cudart_end(cudaErrorInvalidConfiguration);
    stack[depth++] = (struct config){grid, block, shared_bytes, stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream)
{
    if (depth == 0)
        return cudart_end(cudaErrorMissingConfiguration);
    const struct config *top = &stack[--depth];
    *grid = top->grid;
    *block = top->block;
    *shared_bytes = top->shared_bytes;
    memcpy(stream, &top->stream, sizeof(top->stream));
    return cudaSuccess;
}

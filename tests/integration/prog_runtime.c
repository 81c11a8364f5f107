/* prog_runtime: a program of the CUDA runtime that takes what there is and asks for more. Knows nothing of
 * gpucap. */
#include <cuda_runtime_api.h>
#include <stdio.h>

#define BLOCKS_MAX 1024
#define MIB        (1024 * 1024)

int main(void)
{
    static void *blocks[BLOCKS_MAX];
    struct cudaDeviceProp properties;
    size_t free_bytes = 0, total = 0;
    int n = 0, failed = 0, rc;
    void *more;

    cudaMemGetInfo(&free_bytes, &total);
    printf("free=%zu total=%zu\n", free_bytes / MIB, total / MIB);
    cudaGetDeviceProperties(&properties, 0);
    printf("properties total=%zu\n", properties.totalGlobalMem / MIB);
    while (n < BLOCKS_MAX && (rc = cudaMalloc(&blocks[n], 16 * MIB)) == 0)
        n++;
    int last = cudaGetLastError();
    printf("malloc until %d n=%d last=%d then=%d\n", rc, n, last, cudaGetLastError());
    while (n)
        failed += cudaFree(blocks[--n]) != 0;
    printf("freed failed=%d\n", failed);
    cudaMemGetInfo(&free_bytes, &total);
    printf("greedy %d\n", cudaMalloc(&more, free_bytes));
    printf("async %d\n", cudaMallocAsync(&more, 64 * MIB, 0));
    return 0;
}

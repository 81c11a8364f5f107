/* prog_walk: plays a training in the walk through the command (walk.c): takes memory of the first card as it
 * is told on standard input, says what came of it, and goes on after a refusal.
 *
 *     take MIB    free    (end of input: exit)
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCKS_MAX 16

static CUdeviceptr blocks[BLOCKS_MAX];
static int count;

static void take(size_t mib)
{
    const CUresult result =
        count == BLOCKS_MAX ? CUDA_ERROR_OUT_OF_MEMORY : cuMemAlloc(&blocks[count], mib << 20);

    if (result == CUDA_SUCCESS)
        count++;
    printf(result == CUDA_SUCCESS ? "train: has %zu MiB more\n" : "train: %zu MiB more: out of memory\n",
           mib);
}

int main(void)
{
    CUcontext context;
    char line[64];

    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    setvbuf(stdout, NULL, _IONBF, 0);
    while (fgets(line, sizeof(line), stdin)) {
        if (line[0] == 't')
            take(strtoul(line + 4, NULL, 10));
        while (line[0] == 'f' && count)
            cuMemFree(blocks[--count]);
        puts("done");
    }
    return 0;
}

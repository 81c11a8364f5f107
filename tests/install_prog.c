/* For tests/install.sh: a program as a user writes it, compiled against the installed gpucap.h. Takes 1 MiB
 * at a time until it is refused, and prints the version of gpucap that it runs under ("none" without) and
 * what it took. */
#include <cuda.h>
#include <gpucap.h>
#include <stdio.h>

#define STEP ((size_t)1 << 20)
#define MOST 1024 /* steps: more than the card has */

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUdeviceptr block;
    int taken = 0;

    if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
        cuCtxSetCurrent(context))
        return 1;
    while (taken < MOST && cuMemAlloc(&block, STEP) == CUDA_SUCCESS)
        taken++;
    printf("%s %d\n", gpucap_version ? gpucap_version() : "none", taken);
    return 0;
}

/* prog_odd: calls with arguments that no sane program passes. Prints the driver's answers, which must be the
 * same with and without anything in between. prog_odd WAY. */
#include "prog_driver.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MIB (1024 * 1024)

static void say(const char *what, CUresult result)
{
    printf("%s %d\n", what, (int)result);
}

static void linear(void)
{
    static const size_t sizes[] = {
        0, 1, 511, 4095, 2 * MIB + 1, (size_t)1 << 50, (size_t)1 << 63, SIZE_MAX - 1, SIZE_MAX};
    CUdeviceptr address;
    size_t pitch;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        address = 0;
        say("alloc", cu.cuMemAlloc(&address, sizes[i]));
        say("free", cu.cuMemFree(address));
        say("again", cu.cuMemFree(address));
        say("managed", cu.cuMemAllocManaged(&address, sizes[i], CU_MEM_ATTACH_GLOBAL));
        say("free", cu.cuMemFree(address));
    }
    say("alloc to nowhere", cu.cuMemAlloc(NULL, MIB));
    say("alloc nothing to nowhere", cu.cuMemAlloc(NULL, 0));
    say("free nothing", cu.cuMemFree(0));
    say("free nonsense", cu.cuMemFree(12345));
    say("free the last", cu.cuMemFree((CUdeviceptr)-1));
    cu.cuMemAlloc(&address, MIB);
    say("free inside", cu.cuMemFree(address + 512));
    say("free", cu.cuMemFree(address));
    say("managed with nonsense", cu.cuMemAllocManaged(&address, MIB, 77));
    say("managed to nowhere", cu.cuMemAllocManaged(NULL, MIB, CU_MEM_ATTACH_GLOBAL));
    say("pitch", cu.cuMemAllocPitch(&address, &pitch, 0, 0, 4));
    say("pitch", cu.cuMemAllocPitch(&address, &pitch, 64, 0, 4));
    say("pitch", cu.cuMemAllocPitch(&address, &pitch, 64, 64, 3));
    say("pitch to nowhere", cu.cuMemAllocPitch(NULL, &pitch, 64, 64, 4));
    say("pitch untold", cu.cuMemAllocPitch(&address, NULL, 64, 64, 4));
    say("async", cu.cuMemAllocAsync(&address, 0, NULL));
    say("async to nowhere", cu.cuMemAllocAsync(NULL, MIB, NULL));
    say("free async nothing", cu.cuMemFreeAsync(0, NULL));
    say("free async nonsense", cu.cuMemFreeAsync(12345, NULL));
}

static void handles(void)
{
    CUmemAllocationProp good = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
                        bad = good;
    CUmemGenericAllocationHandle handle = 0;

    say("create", cu.cuMemCreate(&handle, 2 * MIB, &good, 0));
    say("release", cu.cuMemRelease(handle));
    say("release again", cu.cuMemRelease(handle));
    say("create nothing", cu.cuMemCreate(&handle, 0, &good, 0));
    say("create a part", cu.cuMemCreate(&handle, 4096, &good, 0));
    say("create to nowhere", cu.cuMemCreate(NULL, 2 * MIB, &good, 0));
    say("create without a word", cu.cuMemCreate(&handle, 2 * MIB, NULL, 0));
    say("create with flags", cu.cuMemCreate(&handle, 2 * MIB, &good, 1));
    bad.location.id = 77;
    say("create elsewhere", cu.cuMemCreate(&handle, 2 * MIB, &bad, 0));
    bad.location.id = -1;
    say("create elsewhere", cu.cuMemCreate(&handle, 2 * MIB, &bad, 0));
    bad = good;
    bad.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    say("create anywhere", cu.cuMemCreate(&handle, 2 * MIB, &bad, 0));
    say("release nothing", cu.cuMemRelease(0));
    say("release nonsense", cu.cuMemRelease(12345));
}

static void arrays(void)
{
    CUDA_ARRAY_DESCRIPTOR flat = {.Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUDA_ARRAY3D_DESCRIPTOR deep = {
        .Width = 64, .Height = 64, .Depth = 2, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUarray array;
    CUmipmappedArray mipmap;

    say("array", cu.cuArrayCreate(&array, &flat));
    say("destroy", cu.cuArrayDestroy(array));
    say("array to nowhere", cu.cuArrayCreate(NULL, &flat));
    say("array without a word", cu.cuArrayCreate(&array, NULL));
    flat.NumChannels = 3;
    say("array of three", cu.cuArrayCreate(&array, &flat));
    flat = (CUDA_ARRAY_DESCRIPTOR){.Width = 0, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    say("array of nothing", cu.cuArrayCreate(&array, &flat));
    say("array3d without a word", cu.cuArray3DCreate(&array, NULL));
    say("array3d to nowhere", cu.cuArray3DCreate(NULL, &deep));
    say("mipmap without a word", cu.cuMipmappedArrayCreate(&mipmap, NULL, 2));
    say("mipmap to nowhere", cu.cuMipmappedArrayCreate(NULL, &deep, 2));
    say("mipmap of nothing", cu.cuMipmappedArrayCreate(&mipmap, &deep, 0));
    say("destroy nothing", cu.cuArrayDestroy(NULL));
    say("destroy nothing", cu.cuMipmappedArrayDestroy(NULL));
}

static void contexts(void)
{
    CUcontext context = NULL;
    size_t bytes;

    say("context elsewhere", cu.cuCtxCreate(&context, 0, 77));
    say("context elsewhere", cu.cuCtxCreate(&context, 0, -1));
    say("context to nowhere", cu.cuCtxCreate(NULL, 0, 0));
    say("context with nonsense", cu.cuCtxCreate(&context, 0xffffffff, 0));
    say("primary elsewhere", cu.cuDevicePrimaryCtxRetain(&context, 77));
    say("primary to nowhere", cu.cuDevicePrimaryCtxRetain(NULL, 0));
    say("release elsewhere", cu.cuDevicePrimaryCtxRelease(77));
    say("release unasked", cu.cuDevicePrimaryCtxRelease(0));
    say("reset elsewhere", cu.cuDevicePrimaryCtxReset(-5));
    say("destroy nothing", cu.cuCtxDestroy(NULL));
    say("total to nowhere", cu.cuDeviceTotalMem(NULL, 0));
    say("total elsewhere", cu.cuDeviceTotalMem(&bytes, 77));
    say("total elsewhere", cu.cuDeviceTotalMem(&bytes, -1));
    say("stream to nowhere", cu.cuStreamCreate(NULL, 0));
    say("limit nonsense", cu.cuCtxSetLimit((CUlimit)99, 1));
    say("init with nonsense", cu.cuInit(1));
}

int main(int argc, char **argv)
{
    CUcontext context;

    if (argc < 2 || !prog_driver_open(argv[1]))
        return 4;
    say("init", cu.cuInit(0));
    say("context", cu.cuCtxCreate(&context, 0, 0));
    linear();
    handles();
    arrays();
    contexts();
    printf("leaks %lu\n", prog_driver_leaks());
    return 0;
}

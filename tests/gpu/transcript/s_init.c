/* Sections init and devices: before cuInit, without a context, and what a device says about itself. */
#include "tx.h"

#include <string.h>

#define PAST_ANY_DEVICE 4096

static void before_init(void)
{
    int n = -7;
    CUdevice device = 0;
    CUdeviceptr p = 0;
    size_t free_bytes = 0, total = 0;
    CUcontext ctx = NULL;
    void *host = NULL;
    CU(cuDriverGetVersion, &n);
    tx_say("driver version is at least 12000: %s", tx_yes(n >= 12000));
    CU(cuDriverGetVersion, NULL);
    CU(cuDeviceGetCount, &n);
    CU(cuDeviceGet, &device, 0);
    CU(cuDeviceTotalMem, &total, 0);
    CU(cuCtxGetCurrent, &ctx);
    CU(cuDevicePrimaryCtxRetain, &ctx, 0);
    CU(cuMemAlloc, &p, 4096);
    CU(cuMemFree, 0);
    CU(cuMemFree, 0x1000);
    CU(cuMemGetInfo, &free_bytes, &total);
    CU(cuMemHostAlloc, &host, 4096, 0);
    CU(cuMemAllocManaged, &p, 4096, CU_MEM_ATTACH_GLOBAL);
    CU(cuCtxSynchronize);
}

static void without_context(void)
{
    CUdeviceptr p = 0;
    size_t free_bytes = 0, total = 0, pitch = 0;
    CUcontext ctx = (CUcontext)1;
    CUdevice device = 0;
    CUstream stream = NULL;
    CUevent event = NULL;
    CUmodule module = NULL;
    void *host = NULL;
    char bytes[16] = {0};
    CU(cuCtxGetCurrent, &ctx);
    tx_say("current context is NULL: %s", tx_yes(!ctx));
    CU(cuCtxGetDevice, &device);
    CU(cuCtxSynchronize);
    CU(cuCtxPopCurrent, &ctx);
    CU(cuMemAlloc, &p, 4096);
    CU(cuMemAlloc, &p, 0);
    CU(cuMemFree, 0);
    CU(cuMemFree, 0x1000);
    CU(cuMemGetInfo, &free_bytes, &total);
    CU(cuMemGetInfo, NULL, NULL);
    CU(cuMemAllocPitch, &p, &pitch, 100, 10, 4);
    CU(cuMemAllocManaged, &p, 4096, CU_MEM_ATTACH_GLOBAL);
    CU(cuMemHostAlloc, &host, 4096, 0);
    CU(cuMemAllocHost, &host, 4096);
    CU(cuMemcpyHtoD, 0x1000, bytes, sizeof(bytes));
    CU(cuMemsetD8, 0x1000, 0, 16);
    CU(cuMemGetAddressRange, &p, &total, 0x1000);
    CU(cuStreamCreate, &stream, 0);
    CU(cuStreamSynchronize, NULL);
    CU(cuEventCreate, &event, 0);
    CU(cuModuleLoadData, &module, tx_ptx);
    CU(cuMemAllocAsync, &p, 4096, NULL);
    CU(cuMemFreeAsync, 0x1000, NULL);
}

void tx_run_init(void)
{
    before_init();
    CU(cuInit, 1);
    CU(cuInit, 0);
    CU(cuInit, 0);
    without_context();
}

static void attributes(CUdevice device)
{
#define WANT(a)                                                                                              \
    {                                                                                                        \
        a, #a                                                                                                \
    }
    static const struct {
        CUdevice_attribute attribute;
        const char *name;
    } same_everywhere[] = {
        WANT(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING),
        WANT(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY),
        WANT(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY),
        WANT(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS),
        WANT(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED),
        WANT(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
        WANT(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
        WANT(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED),
        WANT(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED),
        WANT(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED),
        WANT(CU_DEVICE_ATTRIBUTE_INTEGRATED),
        WANT(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        WANT(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        WANT(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
    };
#undef WANT
    int value = 0;
    for (size_t i = 0; i < sizeof(same_everywhere) / sizeof(same_everywhere[0]); i++) {
        value = -1;
        CUresult rc = drv.cuDeviceGetAttribute(&value, same_everywhere[i].attribute, device);
        tx_say("%s -> %s, %d", same_everywhere[i].name, tx_code(rc), value);
    }
    CU(cuDeviceGetAttribute, &value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    tx_say("compute capability at least 7: %s", tx_yes(value >= 7));
    CU(cuDeviceGetAttribute, &value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    tx_say("has multiprocessors: %s", tx_yes(value > 0));
    CU(cuDeviceGetAttribute, NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device);
    CU(cuDeviceGetAttribute, &value, (CUdevice_attribute)100000, device);
    CU(cuDeviceGetAttribute, &value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, PAST_ANY_DEVICE);
}

static void names(CUdevice device)
{
    char name[128] = "", bus[32] = "";
    CUuuid one, two;
    CUdevice again = -1;
    memset(&one, 0, sizeof(one));
    memset(&two, 1, sizeof(two));
    CU(cuDeviceGetName, name, sizeof(name), device);
    tx_say("it has a name: %s", tx_yes(name[0] != 0));
    CU(cuDeviceGetName, NULL, 10, device);
    CU(cuDeviceGetUuid, &one, device);
    CU(cuDeviceGetUuid, &two, device);
    tx_say("the UUID is the same twice: %s", tx_yes(!memcmp(&one, &two, sizeof(one))));
    CU(cuDeviceGetUuid, NULL, device);
    CU(cuDeviceGetUuid, &one, PAST_ANY_DEVICE);
    CU(cuDeviceGetPCIBusId, bus, sizeof(bus), device);
    CU(cuDeviceGetByPCIBusId, &again, bus);
    tx_say("the bus id leads back to the device: %s", tx_yes(again == device));
}

void tx_run_devices(void)
{
    int n = 0;
    size_t total = 0, context_total = 0;
    CUdevice device = -1;
    CU(cuInit, 0);
    CU(cuDeviceGetCount, &n);
    tx_say("at least one device: %s", tx_yes(n >= 1));
    CU(cuDeviceGetCount, NULL);
    CU(cuDeviceGet, &device, 0);
    tx_say("device 0 is 0: %s", tx_yes(device == 0));
    CU(cuDeviceGet, &device, -1);
    CU(cuDeviceGet, &device, n);
    CU(cuDeviceGet, NULL, 0);
    CU(cuDeviceTotalMem, &total, 0);
    CU(cuDeviceTotalMem, NULL, 0);
    CU(cuDeviceTotalMem, &total, PAST_ANY_DEVICE);
    CU(cuDeviceTotalMem, &total, -1);
    names(0);
    attributes(0);
    tx_start();
    size_t free_bytes = 0;
    CU(cuMemGetInfo, &free_bytes, &context_total);
    drv.cuDeviceTotalMem(&total, 0);
    tx_say("cuDeviceTotalMem equals the total of cuMemGetInfo: %s", tx_yes(total == context_total));
}

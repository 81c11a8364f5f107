/* Opens the device and chooses the table of operations: the CPU reference on simgpu, whose device pointers
 * are host pointers, else the CUDA kernels. libtrain_cuda.so is looked for beside the program (its run path
 * is $ORIGIN), and must never be loaded on simgpu, whose runtime has no kernels to launch. */
#include "harness/base/cuda_device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "kernels/ops_cpu.h"

#define SIM_DEVICE_NAME "simgpu"
#define CUDA_TABLE      "libtrain_cuda.so"

enum status cuda_device_status(int error, const char *what)
{
    enum status status = error == cudaErrorMemoryAllocation ? STATUS_NO_MEMORY : STATUS_FAILED;

    if (error == cudaSuccess)
        return STATUS_OK;
    return status_fail(status, "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

static int launch_on_stream(ops_stream stream, void (*fn)(void *arg), void *arg)
{
    return cudaLaunchHostFunc(stream, fn, arg);
}

static int is_capturing(ops_stream stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

    return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

static enum status open_cuda_table(struct cuda_device *device)
{
    ops_cuda_open_fn open_table;

    device->kernels = dlopen(CUDA_TABLE, RTLD_NOW | RTLD_LOCAL);
    if (!device->kernels)
        return status_fail(STATUS_FAILED,
                           "device '%s' needs the CUDA kernels: %s (were they built? nvcc is needed)",
                           device->name, dlerror());
    open_table = (ops_cuda_open_fn)dlsym(device->kernels, OPS_CUDA_OPEN_NAME);
    if (!open_table || open_table(sizeof(struct ops), &device->ops))
        return status_fail(STATUS_FAILED, "%s does not belong to this build of train", CUDA_TABLE);
    return STATUS_OK;
}

static enum status open_table(struct cuda_device *device)
{
    if (strcmp(device->name, SIM_DEVICE_NAME) != 0)
        return open_cuda_table(device);
    if (ops_cpu_open(launch_on_stream, is_capturing, &device->ops))
        return status_fail(STATUS_NO_MEMORY, "out of host memory");
    return STATUS_OK;
}

static enum status count_devices(int *count)
{
    cudaError_t error = cudaGetDeviceCount(count);
    enum status status = cuda_device_status(error, "looking for CUDA devices");

    if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver)
        status_fail(status,
                    "without a GPU, train runs on a simulated one: gpucap run --sim=1x8G -- train ...; "
                    "fleet has an option --sim");
    return status;
}

/* The calls that make the context are the first ones to take device memory. */
static enum status context_status(cudaError_t error, const char *what)
{
    /* In one line: it is the one that fleet shows. */
    if (error == cudaErrorMemoryAllocation)
        return status_fail(
            STATUS_NO_MEMORY,
            "%s: out of memory: the CUDA context itself does not fit: it takes some hundred MiB "
            "of a GPU before the first allocation; a larger cap (gpucap run --max) or more "
            "free memory is needed",
            what);
    return cuda_device_status(error, what);
}

static enum status read_name(struct cuda_device *device, uint64_t index)
{
    struct cudaDeviceProp properties;
    int count = 0;
    enum status status = count_devices(&count);

    if (status)
        return status;
    if (index >= (uint64_t)count)
        return status_fail(STATUS_FAILED, "--device=%llu: this machine has %d CUDA device(s), counted from 0",
                           (unsigned long long)index, count);
    status = cuda_device_status(cudaGetDeviceProperties(&properties, (int)index), "cudaGetDeviceProperties");
    if (status)
        return status;
    snprintf(device->name, sizeof(device->name), "%s", properties.name);
    for (char *c = device->name; *c; c++)
        *c = *c == ' ' ? '_' : *c;
    return context_status(cudaSetDevice((int)index), "cudaSetDevice");
}

enum status cuda_device_open(struct cuda_device *device, uint64_t index)
{
    enum status status;

    memset(device, 0, sizeof(*device));
    status = read_name(device, index);
    if (!status)
        status = context_status(cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking),
                                "creating a stream");
    if (!status)
        status = open_table(device);
    if (status)
        cuda_device_close(device);
    return status;
}

void cuda_device_close(struct cuda_device *device)
{
    if (device->stream) {
        cudaStreamSynchronize(device->stream);
        cudaStreamDestroy(device->stream);
    }
    if (device->ops)
        device->ops->close(device->ops);
    /* libtrain_cuda.so stays loaded: unloading registered kernels before the runtime ends gains nothing. */
    memset(device, 0, sizeof(*device));
}

static enum status copy(const struct cuda_device *device, void *to, const void *from, size_t bytes,
                        enum cudaMemcpyKind kind, const char *what)
{
    enum status status = cuda_device_status(cudaMemcpyAsync(to, from, bytes, kind, device->stream), what);

    return status ? status : cuda_device_status(cudaStreamSynchronize(device->stream), what);
}

enum status cuda_device_read(const struct cuda_device *device, void *host, const void *from, size_t bytes,
                             const char *what)
{
    return copy(device, host, from, bytes, cudaMemcpyDeviceToHost, what);
}

enum status cuda_device_write(const struct cuda_device *device, void *to, const void *host, size_t bytes,
                              const char *what)
{
    return copy(device, to, host, bytes, cudaMemcpyHostToDevice, what);
}

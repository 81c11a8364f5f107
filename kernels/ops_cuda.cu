/* The CUDA table, and ops_cuda_open(), the only name that libtrain_cuda.so exports. A table holds the state
 * of cuBLASLt and cuDNN; kernels are launched on the caller's stream and current device. */
#include "kernels/ops_cuda.h"

#include <new>

/* The workspace of cuBLASLt's fastest products on an H200; NVIDIA recommends 32 MiB for Hopper. */
static const size_t WORKSPACE_BYTES = (size_t)32 << 20;

#define CUDA_DEFINE_QUEUE(name)                                                                              \
    static int cuda_queue_##name(struct ops *ops, ops_stream stream, const struct op_##name *args)           \
    {                                                                                                        \
        return cuda_##name((struct cuda_ops *)ops, stream, args);                                            \
    }
OPS_LIST(CUDA_DEFINE_QUEUE)
#undef CUDA_DEFINE_QUEUE

static void cuda_close(struct ops *ops)
{
    struct cuda_ops *cuda = (struct cuda_ops *)ops;

    if (cuda->conv)
        cuda_conv_close(cuda->conv);
    if (cuda->gemm)
        cuda_gemm_close(cuda->gemm);
    delete cuda;
}

static int read_device(struct cuda_ops *cuda)
{
    int major = 0, minor = 0;
    int status = cudaGetDevice(&cuda->device);

    if (!status)
        status = cudaDeviceGetAttribute(&cuda->multiprocessors, cudaDevAttrMultiProcessorCount, cuda->device);
    if (!status)
        status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->device);
    if (!status)
        status = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, cuda->device);
    cuda->capability = 10 * major + minor;
    return status;
}

extern "C" __attribute__((visibility("default"))) int ops_cuda_open(size_t table_size, struct ops **out)
{
    struct cuda_ops *cuda;
    int status;

    if (table_size != sizeof(struct ops))
        return OPS_INVALID;
    cuda = new (std::nothrow) cuda_ops();
    if (!cuda)
        return OPS_OUT_OF_MEMORY;
    cuda->table = {"cuda", WORKSPACE_BYTES, cuda_close,
#define CUDA_ENTRY(name) cuda_queue_##name,
                   OPS_LIST(CUDA_ENTRY)
#undef CUDA_ENTRY
    };
    status = read_device(cuda);
    if (!status)
        status = cuda_gemm_open(cuda, &cuda->gemm);
    if (!status)
        status = cuda_conv_open(cuda, &cuda->conv);
    if (status) {
        cuda_close(&cuda->table);
        return status;
    }
    *out = &cuda->table;
    return OPS_OK;
}

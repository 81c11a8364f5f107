/* The CUDA table, and the one name that libtrain_cuda.so exports. It holds no state: kernels are launched on
 * the caller's stream with the caller's current device. */
#include "ops_cuda.h"

#define CUDA_DEFINE_QUEUE(name)                                                                              \
    static int cuda_queue_##name(struct ops *ops, ops_stream stream, const struct op_##name *args)           \
    {                                                                                                        \
        (void)ops;                                                                                           \
        return cuda_##name(stream, args);                                                                    \
    }
OPS_LIST(CUDA_DEFINE_QUEUE)
#undef CUDA_DEFINE_QUEUE

static void cuda_close(struct ops *ops)
{
    (void)ops;
}

static struct ops cuda_table = {"cuda", cuda_close,
#define CUDA_ENTRY(name) cuda_queue_##name,
                                OPS_LIST(CUDA_ENTRY)
#undef CUDA_ENTRY
};

extern "C" __attribute__((visibility("default"))) int ops_cuda_open(size_t table_size, struct ops **out)
{
    if (table_size != sizeof(struct ops))
        return OPS_INVALID;
    *out = &cuda_table;
    return OPS_OK;
}

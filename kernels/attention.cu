/* Attention: chooses between the tensor-core kernels, the tiled ones and the plain ones. See attention.cuh;
 * the CPU reference, with the formulas, is attention.c. */
#include "kernels/attention.cuh"

static bool suits_tiles(int dim)
{
    return dim == 32 || dim == 64 || dim == 128;
}

static bool is_empty(int batch, int heads, int length)
{
    return batch == 0 || heads == 0 || length == 0;
}

int cuda_attention_forward(struct cuda_ops *, ops_stream stream, const struct op_attention_forward *args)
{
    if (args->dim < 1 || args->dim > ATTENTION_MOST_DIM)
        return OPS_INVALID;
    if (is_empty(args->batch, args->heads, args->length))
        return OPS_OK;
    if (!suits_tiles(args->dim) || !cuda_aligned(0, args->qkv, args->out))
        return attention_plain_forward(stream, args);
    return args->type == OPS_F32 ? attention_tiled_forward(stream, args)
                                 : attention_flash_forward(stream, args);
}

int cuda_attention_backward(struct cuda_ops *, ops_stream stream, const struct op_attention_backward *args)
{
    if (args->dim < 1 || args->dim > ATTENTION_MOST_DIM)
        return OPS_INVALID;
    if (is_empty(args->batch, args->heads, args->length))
        return OPS_OK;
    if (!suits_tiles(args->dim) || !cuda_aligned(0, args->qkv, args->out, args->dout, args->dqkv))
        return attention_plain_backward(stream, args);
    return args->type == OPS_F32 ? attention_tiled_backward(stream, args)
                                 : attention_flash_backward(stream, args);
}

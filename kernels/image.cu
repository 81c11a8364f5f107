/* image_prepare on the device: crops, scales, mirrors and normalizes images. The expressions, and their
 * order, are those of image.c, the CPU reference. A thread per pixel of the result. */
#include "kernels/types.cuh"

struct between {
    int low, high;
    float weight;
};

/* Rounds each step as the reference does: no fused multiply-add. */
static __device__ struct between between_of(float from, float length, int index, int count, int size)
{
    float each = length / (float)count;
    float at = __fadd_rn(__fadd_rn(from, __fmul_rn((float)index + 0.5f, each)), -0.5f);
    struct between b;

    at = fminf(fmaxf(at, 0.0f), (float)(size - 1));
    b.low = (int)at;
    b.high = b.low + 1 < size ? b.low + 1 : b.low;
    b.weight = at - (float)b.low;
    return b;
}

template <class T> static __global__ void prepare_kernel(struct op_image_prepare a)
{
    size_t count = (size_t)a.n * a.oh * a.ow, step = (size_t)gridDim.x * blockDim.x;

    for (size_t t = (size_t)blockIdx.x * blockDim.x + threadIdx.x; t < count; t += step) {
        int x = (int)(t % a.ow), y = (int)(t / a.ow % a.oh);
        size_t n = t / a.ow / a.oh;
        struct ops_crop crop = {0.0f, 0.0f, (float)a.h, (float)a.w, 0};

        if (a.crops)
            crop = a.crops[n];
        struct between down = between_of(crop.top, crop.height, y, a.oh, a.h);
        struct between across = between_of(crop.left, crop.width, crop.mirror ? a.ow - 1 - x : x, a.ow, a.w);
        const uint8_t *top = a.x + (n * a.h + down.low) * a.w * a.c;
        const uint8_t *bottom = a.x + (n * a.h + down.high) * a.w * a.c;

        for (int c = 0; c < a.c; c++) {
            float t0 = top[across.low * a.c + c], t1 = top[across.high * a.c + c];
            float b0 = bottom[across.low * a.c + c], b1 = bottom[across.high * a.c + c];
            float above = t0 + (t1 - t0) * across.weight;
            float below = b0 + (b1 - b0) * across.weight;
            float value = above + (below - above) * down.weight;

            ((T *)a.out)[t * a.c + c] = from_float<T>((value / 255.0f - a.mean[c]) / a.deviation[c]);
        }
    }
}

int cuda_image_prepare(struct cuda_ops *ops, ops_stream stream, const struct op_image_prepare *args)
{
    size_t count = (size_t)args->n * args->oh * args->ow;

    (void)ops;
    if (count == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->type, T, (prepare_kernel<T><<<cuda_grid(count), CUDA_BLOCK, 0, stream>>>(*args)));
    return cudaGetLastError();
}

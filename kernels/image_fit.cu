/* Decoded pictures of any size into places of one size, on the device: the mean over the area that a pixel
 * covers, in integers, as in image_fit.c, the CPU reference. A thread makes one pixel of up to 4 channels. */
#include "kernels/types.cuh"

enum { MOST_CHANNELS = 4 };

static __device__ void fit_pixel(const struct ops_picture &p, int channels, uint32_t y, uint32_t x,
                                 uint8_t *out)
{
    uint32_t top = y * (uint32_t)p.h, bottom = top + (uint32_t)p.h;
    uint32_t left = x * (uint32_t)p.w, right = left + (uint32_t)p.w;
    uint32_t fit_h = (uint32_t)p.fit_h, fit_w = (uint32_t)p.fit_w;
    uint64_t total[MOST_CHANNELS] = {0}, area = (uint64_t)p.h * p.w;

    for (uint32_t at_y = top; at_y < bottom;) {
        uint32_t row = at_y / fit_h, next_y = min((row + 1) * fit_h, bottom);
        uint64_t across[MOST_CHANNELS] = {0};

        for (uint32_t at_x = left; at_x < right;) {
            uint32_t column = at_x / fit_w, next_x = min((column + 1) * fit_w, right);
            const uint8_t *from = p.x + ((size_t)row * p.w + column) * channels;

            for (int c = 0; c < channels; c++)
                across[c] += (uint64_t)(next_x - at_x) * from[c];
            at_x = next_x;
        }
        for (int c = 0; c < channels; c++)
            total[c] += (next_y - at_y) * across[c];
        at_y = next_y;
    }
    for (int c = 0; c < channels; c++)
        out[c] = (uint8_t)((total[c] + area / 2) / area);
}

static __global__ void fit_kernel(struct op_image_fit a)
{
    size_t count = (size_t)a.n * a.h * a.w, step = (size_t)gridDim.x * blockDim.x;

    for (size_t t = (size_t)blockIdx.x * blockDim.x + threadIdx.x; t < count; t += step) {
        uint32_t x = (uint32_t)(t % a.w), y = (uint32_t)(t / a.w % a.h);
        struct ops_picture p = a.pictures[t / a.w / a.h];

        if (p.x)
            fit_pixel(p, a.c, min(y, (uint32_t)p.fit_h - 1), min(x, (uint32_t)p.fit_w - 1), a.out + t * a.c);
    }
}

int cuda_image_fit(struct cuda_ops *, ops_stream stream, const struct op_image_fit *args)
{
    size_t count = (size_t)args->n * args->h * args->w;

    if (count == 0)
        return OPS_OK;
    if (args->c > MOST_CHANNELS)
        return OPS_INVALID;
    fit_kernel<<<cuda_grid(count), CUDA_BLOCK, 0, stream>>>(*args);
    return cudaGetLastError();
}

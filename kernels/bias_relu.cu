/* Bias and rectifier. Shapes: x, y, dx, dy are [rows][cols], bias and dbias are [cols].
 *     forward:  y = max(0, x + bias), or x + bias without relu; one thread per element
 *     backward: dx = dy where y > 0, else 0; dbias = sum of dx over the rows
 * Backward gives each block STRIP_COLS columns and walks the rows with STRIP_ROWS threads per column, so that
 * the sum has one fixed order (no atomics) and a run repeats bit by bit. The CPU reference is bias_relu.c. */
#include "ops_cuda.h"

enum { STRIP_COLS = 32, STRIP_ROWS = 8 };

static __global__ void forward_kernel(struct op_bias_relu_forward args)
{
    size_t count = (size_t)args.rows * args.cols;
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        float v = args.x[i] + args.bias[i % args.cols];

        args.y[i] = args.relu && v < 0.0f ? 0.0f : v;
    }
}

static __global__ void backward_kernel(struct op_bias_relu_backward args)
{
    __shared__ float partial[STRIP_ROWS][STRIP_COLS];
    int col = blockIdx.x * STRIP_COLS + threadIdx.x;
    float sum = 0.0f;

    if (col < args.cols) {
        for (int row = threadIdx.y; row < args.rows; row += STRIP_ROWS) {
            size_t i = (size_t)row * args.cols + col;
            float g = !args.relu || args.y[i] > 0.0f ? args.dy[i] : 0.0f;

            args.dx[i] = g;
            sum += g;
        }
    }
    partial[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && col < args.cols) {
        for (int r = 1; r < STRIP_ROWS; r++)
            sum += partial[r][threadIdx.x];
        args.dbias[col] = sum;
    }
}

int cuda_bias_relu_forward(ops_stream stream, const struct op_bias_relu_forward *args)
{
    size_t count = (size_t)args->rows * args->cols;

    if (count == 0)
        return OPS_OK;
    forward_kernel<<<cuda_grid(count), CUDA_BLOCK, 0, stream>>>(*args);
    return cudaGetLastError();
}

int cuda_bias_relu_backward(ops_stream stream, const struct op_bias_relu_backward *args)
{
    dim3 block(STRIP_COLS, STRIP_ROWS);

    if (args->cols == 0)
        return OPS_OK;
    backward_kernel<<<(args->cols + STRIP_COLS - 1) / STRIP_COLS, block, 0, stream>>>(*args);
    return cudaGetLastError();
}

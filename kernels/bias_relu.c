/* Bias and rectifier, CPU reference. Shapes: x, y, dx, dy are [rows][cols], bias and dbias are [cols].
 *     forward:  y = max(0, x + bias), or x + bias without relu
 *     backward: dx = dy where y > 0, else 0; dbias = sum of dx over the rows
 * The mask comes from y, not x, so that the pre-activation need not be kept. The kernels beside it are
 * bias_relu.cu. */
#include "ops_cpu.h"

void cpu_bias_relu_forward(const struct op_bias_relu_forward *args)
{
    for (int r = 0; r < args->rows; r++) {
        const float *x = args->x + (size_t)r * args->cols;
        float *y = args->y + (size_t)r * args->cols;

        for (int c = 0; c < args->cols; c++) {
            float v = x[c] + args->bias[c];

            y[c] = args->relu && v < 0.0f ? 0.0f : v;
        }
    }
}

void cpu_bias_relu_backward(const struct op_bias_relu_backward *args)
{
    for (int c = 0; c < args->cols; c++)
        args->dbias[c] = 0.0f;
    for (int r = 0; r < args->rows; r++) {
        size_t row = (size_t)r * args->cols;

        for (int c = 0; c < args->cols; c++) {
            float g = !args->relu || args->y[row + c] > 0.0f ? args->dy[row + c] : 0.0f;

            args->dx[row + c] = g;
            args->dbias[c] += g;
        }
    }
}

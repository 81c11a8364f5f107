/* SGD with momentum, CPU reference: for each of count weights
 *     velocity = momentum * velocity + grad
 *     weight  -= rate * velocity
 * The kernel beside it is sgd.cu. */
#include "ops_cpu.h"

void cpu_sgd(const struct op_sgd *args)
{
    float *restrict weight = args->weight;
    float *restrict velocity = args->velocity;
    const float *restrict grad = args->grad;

    for (size_t i = 0; i < args->count; i++) {
        velocity[i] = args->momentum * velocity[i] + grad[i];
        weight[i] -= args->rate * velocity[i];
    }
}

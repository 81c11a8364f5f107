/* AdamW, CPU reference: for each weight of each parameter
 *     g = grad * multiplier; first = beta1 first + (1 - beta1) g; second = beta2 second + (1 - beta2) g^2
 *     weight -= rate * (first / correction1 / (sqrt(second / correction2) + epsilon) + decay * weight)
 * With decoupled 0 it is Adam: decay * weight is added to g instead. The copy is the weight in the model's
 * type. If scalars->found_bad is set (grad_check), nothing is changed. With keep_zeros, a weight that is 0
 * stays 0. The kernel beside it is adamw.cu. */
#include "kernels/cpu_threads.h"
#include "kernels/grad_check.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

#include <math.h>

enum { PIECE = 1 << 16 };

struct adamw_job {
    const struct op_adamw *args;
    const struct ops_param *param;
};

static void update(const void *arg, size_t begin, size_t end)
{
    const struct adamw_job *job = arg;
    const struct op_adamw *a = job->args;
    const struct ops_param *p = job->param;
    float *restrict weight = p->weight, *restrict first = p->first, *restrict second = p->second;
    const float *restrict grad = p->grad;
    float rate = a->scalars->rate, multiplier = a->scalars->multiplier;
    float inverse1 = 1.0f / a->scalars->correction1, inverse2 = 1.0f / a->scalars->correction2;
    float decay = a->decay * p->decay, coupled = a->decoupled ? 0.0f : decay;
    float apart = a->decoupled ? decay : 0.0f;

    grad_check_note_bad(grad + begin, end - begin, a->scalars);
    for (size_t i = begin; i < end; i++) {
        float g = grad[i] * multiplier + coupled * weight[i];

        first[i] = a->beta1 * first[i] + (1.0f - a->beta1) * g;
        second[i] = a->beta2 * second[i] + (1.0f - a->beta2) * g * g;
        if (!(p->keep_zeros && weight[i] == 0.0f))
            weight[i] -=
                rate * (first[i] * inverse1 / (sqrtf(second[i] * inverse2) + a->epsilon) + apart * weight[i]);
    }
    if (p->copy)
        types_write(p->copy, a->copy_type, begin, end - begin, weight + begin);
}

void cpu_adamw(const struct op_adamw *args)
{
    if (args->scalars->found_bad != 0.0f)
        return;
    for (int i = 0; i < args->count; i++)
        cpu_threads_for(args->params[i].count, PIECE, update,
                        &(struct adamw_job){.args = args, .param = &args->params[i]});
}

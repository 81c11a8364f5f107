/* SGD with momentum, CPU reference: for each weight of each parameter
 *     g = grad * multiplier + decay * weight; first = momentum * first + g; weight -= rate * first
 * and the copy is the weight in the model's type. If scalars->found_bad is set (grad_check), nothing is
 * changed. With keep_zeros, a weight that is 0 stays 0. The kernel beside it is sgd.cu. */
#include "kernels/cpu_threads.h"
#include "kernels/grad_check.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

enum { PIECE = 1 << 16 };

struct sgd_job {
    const struct op_sgd *args;
    const struct ops_param *param;
};

static void update(const void *arg, size_t begin, size_t end)
{
    const struct sgd_job *job = arg;
    const struct ops_param *p = job->param;
    float *restrict weight = p->weight;
    float *restrict first = p->first;
    const float *restrict grad = p->grad;
    float rate = job->args->scalars->rate, multiplier = job->args->scalars->multiplier;
    float momentum = job->args->momentum, decay = job->args->decay * p->decay;

    grad_check_note_bad(grad + begin, end - begin, job->args->scalars);
    for (size_t i = begin; i < end; i++) {
        first[i] = momentum * first[i] + (grad[i] * multiplier + decay * weight[i]);
        if (!(p->keep_zeros && weight[i] == 0.0f))
            weight[i] -= rate * first[i];
    }
    if (p->copy)
        types_write(p->copy, job->args->copy_type, begin, end - begin, weight + begin);
}

void cpu_sgd(const struct op_sgd *args)
{
    if (args->scalars->found_bad != 0.0f)
        return;
    for (int i = 0; i < args->count; i++)
        cpu_threads_for(args->params[i].count, PIECE, update,
                        &(struct sgd_job){.args = args, .param = &args->params[i]});
}

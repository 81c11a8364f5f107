/* grad_check and step_begin, CPU reference. grad_check computes the norm of all gradients and whether one is
 * not finite; step_begin then sets the multiplier, loss scale, step number and Adam's corrections for this
 * update. The norm is a sum of sums over fixed pieces, so that it does not depend on the number of threads.
 * The kernels beside it are grad_check.cu. */
#include "kernels/cpu_threads.h"
#include "kernels/grad_check.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

#include <math.h>

enum { PIECE = 1 << 16 };

struct square_sum {
    const float *x;
    double *pieces;
};

static void sum_piece(const void *arg, size_t begin, size_t end)
{
    const struct square_sum *sum = arg;
    double total = 0.0;

    for (size_t i = begin; i < end; i++)
        total += (double)sum->x[i] * (double)sum->x[i];
    sum->pieces[begin / PIECE] = total;
}

/* At most this many pieces are summed at a time, so that their sums fit on the stack. */
enum { BATCH_PIECES = 256 };

static double sum_of_squares(const float *x, size_t count)
{
    double pieces[BATCH_PIECES];
    double total = 0.0;
    const size_t batch = (size_t)PIECE * BATCH_PIECES;

    for (size_t at = 0; at < count; at += batch) {
        size_t here = types_smaller(batch, count - at);

        cpu_threads_for(here, PIECE, sum_piece, &(struct square_sum){.x = x + at, .pieces = pieces});
        for (size_t p = 0; p * PIECE < here; p++)
            total += pieces[p];
    }
    return total;
}

/* The sum is not finite exactly if a value is not: squares of finite floats cannot overflow a double. */
void cpu_grad_check(const struct op_grad_check *args)
{
    double total = 0.0;

    for (int p = 0; p < args->count; p++)
        total += sum_of_squares(args->params[p].grad, args->params[p].count);
    args->scalars->norm = (float)(sqrt(total) / (double)args->scalars->scale);
    args->scalars->found_bad = isfinite(total) ? 0.0f : 1.0f;
}

void grad_check_note_bad(const float *grad, size_t count, struct ops_scalars *scalars)
{
    const uint32_t exponent = 0x7f800000u; /* all ones: infinite or not a number */
    uint32_t bad = 0;

    for (size_t i = 0; i < count; i++)
        bad |= (types_bits(grad[i]) & exponent) == exponent;
    if (bad && !__atomic_load_n(&scalars->bad_step, __ATOMIC_RELAXED))
        __atomic_store_n(&scalars->bad_step, scalars->step + (uint64_t)scalars->skipped, __ATOMIC_RELAXED);
}

static void change_scale(const struct op_step_begin *args)
{
    struct ops_scalars *s = args->scalars;

    if (s->found_bad != 0.0f) {
        s->scale *= 0.5f;
        s->good_steps = 0.0f;
    } else if (++s->good_steps >= (float)args->growth) {
        s->scale *= 2.0f;
        s->good_steps = 0.0f;
    }
}

void cpu_step_begin(const struct op_step_begin *args)
{
    struct ops_scalars *s = args->scalars;
    int bad_loss = args->loss && !isfinite(*args->loss);
    int bad_grads = s->found_bad != 0.0f && (!args->dynamic || s->scale <= 1.0f);

    if (bad_loss && args->skip_loss)
        s->found_bad = 1.0f;
    if (!s->bad_step && (bad_loss || bad_grads))
        s->bad_step = s->step + (uint64_t)s->skipped + 1;
    s->multiplier = 1.0f / s->scale;
    if (args->clip > 0.0f && s->norm > args->clip)
        s->multiplier *= args->clip / s->norm;
    if (args->dynamic)
        change_scale(args);
    if (s->found_bad != 0.0f) {
        s->multiplier = 0.0f;
        s->skipped += 1.0f;
        return;
    }
    s->step++;
    s->correction1 = (float)(1.0 - pow((double)args->beta1, (double)s->step));
    s->correction2 = (float)(1.0 - pow((double)args->beta2, (double)s->step));
}

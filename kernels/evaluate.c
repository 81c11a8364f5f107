/* evaluate, CPU reference: total[0] += the sum of losses[rows]; total[1] += the rows whose largest logit, the
 * first of several, is the label's; total[2] += the rows. A row with a negative label does not count. The
 * kernel beside it is evaluate.cu. */
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

static int32_t largest(const struct op_evaluate *args, size_t row)
{
    size_t first = row * (size_t)args->cols;
    int32_t best = 0;
    float max = types_load(args->logits, args->type, first);

    for (int32_t c = 1; c < args->cols; c++) {
        float x = types_load(args->logits, args->type, first + (size_t)c);

        if (x > max) {
            max = x;
            best = c;
        }
    }
    return best;
}

void cpu_evaluate(const struct op_evaluate *args)
{
    double losses = 0.0;
    int right = 0, rows = 0;

    for (int row = 0; row < args->rows; row++) {
        if (args->labels && args->labels[row] < 0)
            continue;
        losses += (double)args->losses[row];
        rows++;
        if (args->logits && args->labels)
            right += largest(args, (size_t)row) == args->labels[row];
    }
    args->total[0] += (float)losses;
    args->total[1] += (float)right;
    args->total[2] += (float)rows;
}

/* Softmax and cross-entropy, CPU reference. Shapes: logits, probs, dlogits are [rows][cols], labels and
 * losses [rows]. forward:  probs = exp(logits - max) / sum; losses = log(sum) - (logits[label] - max)
 *     backward: dlogits = scale * (probs - onehot(label))
 * The row maximum is subtracted so that no logit overflows; the loss is taken from the logarithm of the sum,
 * not from a probability that may have rounded to 0. The kernels beside it are softmax_xent.cu. */
#include "ops_cpu.h"

#include <math.h>

static void forward_row(const float *logits, int32_t label, float *probs, float *loss, int cols)
{
    float max = logits[0];
    float at_label;
    float sum = 0.0f;

    for (int c = 1; c < cols; c++)
        max = logits[c] > max ? logits[c] : max;
    at_label = logits[label] - max;
    for (int c = 0; c < cols; c++) {
        probs[c] = expf(logits[c] - max);
        sum += probs[c];
    }
    for (int c = 0; c < cols; c++)
        probs[c] /= sum;
    *loss = logf(sum) - at_label;
}

void cpu_softmax_xent_forward(const struct op_softmax_xent_forward *args)
{
    for (int r = 0; r < args->rows; r++) {
        size_t row = (size_t)r * args->cols;

        forward_row(args->logits + row, args->labels[r], args->probs + row, args->losses + r, args->cols);
    }
}

void cpu_softmax_xent_backward(const struct op_softmax_xent_backward *args)
{
    for (int r = 0; r < args->rows; r++) {
        size_t row = (size_t)r * args->cols;

        for (int c = 0; c < args->cols; c++)
            args->dlogits[row + c] =
                args->scale * (args->probs[row + c] - (c == args->labels[r] ? 1.0f : 0.0f));
    }
}

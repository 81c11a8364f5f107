/* Pruning and quantization for evaluation. */
#include "shrink_model.h"

#include "trainer.h"

enum status shrink_model_evaluate(struct trainer *trainer)
{
    if (trainer->options.prune > 0.0 || trainer->options.quantize)
        return status_fail(STATUS_USAGE, "--prune and --quantize: this build of train has neither");
    return STATUS_OK;
}

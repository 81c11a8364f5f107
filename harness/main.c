/* `train`: trains a model on a CUDA device or, under `gpucap run --sim`, on simgpu, with the same binary.
 * stdout gets exactly one line, the result; progress and messages go to stderr. */
#include <stdio.h>

#include "options.h"
#include "train.h"

static enum status print_result(const struct options *options, const struct train_result *result)
{
    char alloc[16];

    /* Nine digits give a float back exactly: two runs can be compared by the bits of their losses. */
    printf("loss_first=%.9g loss_last=%.9g steps=%llu step_ms=%.3f peak_bytes=%zu alloc=%s device=%s\n",
           (double)result->loss_first, (double)result->loss_last, (unsigned long long)options->steps,
           result->step_ms, result->peak_bytes, options_choice("alloc", options->alloc, alloc, sizeof(alloc)),
           result->device);
    return fflush(stdout) ? status_fail(STATUS_FAILED, "the result could not be written") : STATUS_OK;
}

int main(int argc, char **argv)
{
    struct options options;
    struct train_result result;
    enum status status = options_parse(&options, argc, argv);

    if (status)
        return status;
    if (options.help) {
        options_print_help(stdout);
        return STATUS_OK;
    }
    status = train_run(&options, &result);
    return status ? status : print_result(&options, &result);
}

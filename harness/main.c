/* `train`: trains a model on a CUDA device or, under `gpucap run --sim`, on simgpu, with the same binary.
 * stdout gets the result lines and nothing else; progress and messages go to stderr. */
#include <signal.h>
#include <stdio.h>

#include "options.h"
#include "train.h"

int main(int argc, char **argv)
{
    struct options options;
    enum status status = options_parse(&options, argc, argv);

    if (status)
        return status;
    if (options.help || options.man) {
        (options.help ? options_print_help : options_print_manual)(stdout);
        return fflush(stdout) ? STATUS_FAILED : STATUS_OK;
    }
    /* A file that may not grow any more is a failed write, which says so, and not a death. */
    signal(SIGXFSZ, SIG_IGN);
    return train_run(&options);
}

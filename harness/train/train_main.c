/* `train`: trains a model on a CUDA device or, under `gpucap run --sim`, on simgpu, with the same binary.
 * stdout gets the result lines and nothing else; progress and messages go to stderr. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "harness/base/train_options.h"
#include "harness/train/train.h"

/* The next file that is opened would take the number of a closed stdout or stderr, and with it what is said
 * there: on simgpu that file is the device's memory. Open for reading only, so that a write still fails. */
static void keep_standard_numbers(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv)
{
    struct train_options options;
    enum status status;

    keep_standard_numbers();
    status = train_options_parse(&options, argc, argv);
    if (status)
        return status;
    if (options.help || options.man) {
        (options.help ? train_options_print_help : train_options_print_manual)(stdout);
        return fflush(stdout) ? STATUS_FAILED : STATUS_OK;
    }
    /* A file that may not grow any more is a failed write, which says so, and not a death. */
    signal(SIGXFSZ, SIG_IGN);
    return train_run(&options);
}

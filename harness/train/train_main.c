/* `train`: trains a model on a CUDA device or, under `gpucap run --sim`, on simgpu, with the same binary.
 * stdout gets the result lines and nothing else; progress and messages go to stderr. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "harness/base/train_options.h"
#include "harness/train/train.h"

/* Opens descriptors 0 to 2 if they are closed. The next opened file would get such a number, and what is
 * printed would go into it: on simgpu into device memory. Opened for reading only, so that a write still
 * fails. */
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
        return fflush(stdout) ? status_fail(STATUS_FAILED, "cannot write to stdout") : STATUS_OK;
    }
    /* Without these signals, a write past the file size limit or into a closed pipe fails. With them it would
     * end the process. */
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    return train_run(&options);
}

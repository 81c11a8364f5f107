/* Replicas are not there yet. */
#include "replicas.h"

enum status replicas_run(const struct options *options)
{
    return status_fail(STATUS_USAGE, "--replicas=%s: this build of train has no replicas", options->replicas);
}

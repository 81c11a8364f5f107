/* train_probe: finds out whether `train` of this build finds a GPU, for tests that are skipped without one.
 */
#ifndef TESTS_GPU_TRAIN_PROBE_H
#define TESTS_GPU_TRAIN_PROBE_H

#include <stdio.h>
#include <string.h>

#include "spawn.h"

/* Trains one step. Returns false, after a message, if there is no GPU. */
static inline bool train_probe_gpu(const struct spawn_env *env)
{
    struct spawn_result probe =
        spawn_run(env, (const char *const[]){spawn_build_path("train"), "--steps=1", "--quiet", NULL}, NULL);
    const bool found = !probe.status || !strstr(probe.err, "looking for CUDA devices");

    if (!found)
        printf("no GPU: skipped\n");
    spawn_result_free(&probe);
    return found;
}

#endif

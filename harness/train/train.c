/* Opens device, memory and trainer for one model, or hands the run to pair.c or replicas.c. */
#include "harness/train/train.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/profile/profile_nvtx.h"
#include "harness/train/checkpoint.h"
#include "harness/train/fit.h"
#include "harness/train/option_notes.h"
#include "harness/train/pair.h"
#include "harness/train/progress.h"
#include "harness/train/replicas.h"
#include "harness/train/session.h"
#include "harness/train/shrink_model.h"
#include "harness/train/stop.h"
#include "harness/train/weights.h"

/* Refuses options that exclude each other, before anything is opened. */
static enum status check_options(const struct train_options *options)
{
    bool fixed =
        options->alloc == ALLOC_CACHE || options->alloc == ALLOC_ARENA || options->alloc == ALLOC_STATIC;
    char format[16];

    if (options->graph && !fixed)
        return status_fail(STATUS_USAGE, "--graph needs memory whose addresses do not change: "
                                         "--alloc=cache, --alloc=arena or --alloc=static");
    if (options->graph && options->vary)
        return status_fail(STATUS_USAGE, "--graph replays one shape, but --vary changes it every step");
    if (options->graph && options->pair.given && options->pair_memory == PAIR_SHARED)
        return status_fail(STATUS_USAGE, "--graph with --pair needs --pair-memory=private: "
                                         "a graph's memory must not be handed to the other model");
    if (options->format == DATA_SYNTHETIC && options->data)
        return status_fail(STATUS_USAGE, "--format=synthetic makes its own data and does not read --data=%s",
                           options->data);
    if (options->format != DATA_AUTO && options->format != DATA_SYNTHETIC && !options->data)
        return status_fail(STATUS_USAGE, "--format=%s needs --data=PATH",
                           train_options_choice("format", options->format, format, sizeof(format)));
    if (options->decode == DECODE_GPU && options->data_cache)
        return status_fail(STATUS_USAGE, "--data-cache keeps pictures that the host has decoded: not with "
                                         "--decode=gpu");
    if (options->load_weights && options->resume)
        return status_fail(STATUS_USAGE, "--load-weights and --resume exclude each other");
    if ((options->load_weights || options->save_weights) && options->pair.given)
        return status_fail(STATUS_USAGE,
                           "--load-weights and --save-weights go with one model: not with --pair");
    if (options->dump && (options->pair.given || options->replicas || options->find_batch ||
                          options->auto_accum || options->graph || options->accumulate > 1))
        return status_fail(STATUS_USAGE, "--dump goes with plain steps: not with --pair, --replicas, "
                                         "--find-batch, --auto-accum, --graph or --accumulate");
    if ((options->save_every || options->keep > 1 || options->save_best) && !options->save)
        return status_fail(STATUS_USAGE, "--save-every, --keep and --save-best need --save=FILE");
    if (options->pair.given &&
        (options->replicas || options->find_batch || options->auto_accum || options->save || options->resume))
        return status_fail(STATUS_USAGE,
                           "--pair does not go with --replicas, --find-batch, --auto-accum, --save or "
                           "--resume");
    if ((options->pair.given || options->replicas) &&
        (options->prune > 0.0 || options->quantize != QUANTIZE_NONE))
        return status_fail(STATUS_USAGE, "--prune and --quantize go with one model: not with --pair or "
                                         "--replicas");
    if ((options->profile || options->nvtx) && options->pair.given)
        return status_fail(STATUS_USAGE, "--profile and --nvtx go with one model: not with --pair");
    if (options->profile && !options->steps)
        return status_fail(STATUS_USAGE, "--profile needs steps to measure: --steps is 0");
    if (options->prune_pattern == PRUNE_TWO_OF_FOUR && options->prune != 0.5)
        return status_fail(STATUS_USAGE, "--prune-pattern=2:4 keeps two of every four weights: it needs "
                                         "--prune=0.5");
    if (options->prune_steps && options->prune <= 0.0)
        return status_fail(STATUS_USAGE, "--prune-steps needs --prune=R");
    if (options->find_batch && options->auto_accum)
        return status_fail(STATUS_USAGE,
                           "--find-batch makes the batch smaller, --auto-accum keeps the update's "
                           "size: choose one");
    if (options->replicas && options->device &&
        (!strcmp(options->replicas, "all") || !strcmp(options->replicas, "mpi")))
        return status_fail(STATUS_USAGE,
                           "--replicas=%s uses every visible device: not with --device=%llu; "
                           "CUDA_VISIBLE_DEVICES chooses among them",
                           options->replicas, (unsigned long long)options->device);
    if (options->save && !options->save_best && !options->steps && options->prune <= 0.0 &&
        options->quantize == QUANTIZE_NONE)
        return status_fail(STATUS_USAGE, "--save=%s has nothing to save: --steps=0 only validates",
                           options->save);
    if (options->replicas && (options->find_batch || options->auto_accum))
        return status_fail(STATUS_USAGE, "--replicas does not go with --find-batch or --auto-accum");
    return STATUS_OK;
}

/* Refuses a path that would be written twice, or that is also read. A run may go on in place. */
static enum status check_paths(const struct train_options *options)
{
    enum { SAVE, SAVE_WEIGHTS, PROFILE, LOG, WRITTEN, DATA = WRITTEN, RESUME, LOAD_WEIGHTS, ALL };
    const struct {
        const char *name, *path;
    } file[ALL] = {[SAVE] = {"save", options->save},
                   [SAVE_WEIGHTS] = {"save-weights", options->save_weights},
                   [PROFILE] = {"profile", options->profile},
                   [LOG] = {"log", options->log},
                   [DATA] = {"data", options->data},
                   [RESUME] = {"resume", options->resume},
                   [LOAD_WEIGHTS] = {"load-weights", options->load_weights}};

    for (int i = 0; i < WRITTEN; i++) {
        for (int j = i + 1; j < ALL; j++) {
            bool in_place = (i == SAVE && j == RESUME) || (i == SAVE_WEIGHTS && j == LOAD_WEIGHTS);

            if (!in_place && file[i].path && file[j].path && !strcmp(file[i].path, file[j].path))
                return status_fail(STATUS_USAGE, "--%s and --%s name the same file: %s", file[i].name,
                                   file[j].name, file[i].path);
        }
    }
    return STATUS_OK;
}

/* Sets *trained if the training itself has finished. If it has not, but has saved steps, the next one goes on
 * from them. */
static enum status run_with_batch(struct train_options *options, struct cuda_device *device,
                                  struct supply *supply, bool *trained)
{
    struct trainer trainer = {0};
    struct session_result result = {0};
    /* Memory that a trial or a failure left in the cache would be missing elsewhere. */
    enum status status = supply_trim(supply, device->stream);

    if (!status)
        status = trainer_open(&trainer, options, device, supply, 0, 0);
    if (!status)
        status = session_run(&trainer, &result);
    *trained = !status;
    if (!status)
        status = session_finish(&result, &trainer.profile, 1);
    if (!status)
        status = shrink_model_evaluate(&trainer);
    if (!*trained && trainer.saved_step && trainer.saved_step != UINT64_MAX) {
        options->resume = options->save;
        options->load_weights = NULL;
    }
    trainer_close(&trainer);
    return status;
}

static enum status run_on(struct train_options *options, struct cuda_device *device, struct supply *supply)
{
    enum status status = fit_options(options, device, supply);
    bool trained = false;

    if (status)
        return status;
    /* Not before: a trial has nothing to save, and ends as without --save. */
    if (options->save && (options->find_batch || options->auto_accum))
        stop_watch();
    /* The peak is the training's, not that of trials, which hold some memory back. */
    atomic_store(&supply->budget->peak, atomic_load(&supply->budget->used));
    status = run_with_batch(options, device, supply, &trained);
    /* A batch that fitted in the trial may not fit now: tries smaller ones in this process. */
    while (status == STATUS_NO_MEMORY && !trained && fit_less(options))
        status = run_with_batch(options, device, supply, &trained);
    return status;
}

static enum status run_single(const struct train_options *wanted)
{
    struct train_options options = *wanted;
    struct budget budget = {.limit = options.budget};
    struct cuda_device device = {0};
    struct supply supply = {0};
    enum status status = cuda_device_open(&device, options.device);

    if (!status)
        status = supply_open(&supply, (enum alloc_mode)options.alloc, options.fraction, &budget);
    if (!status)
        status = run_on(&options, &device, &supply);
    supply_close(&supply);
    cuda_device_close(&device);
    return status;
}

static enum status run_options(const struct train_options *options)
{
    enum status status = check_options(options);
    enum status logged;

    if (!status)
        status = check_paths(options);
    if (!status && options->save)
        status = checkpoint_can_save(options->save);
    if (!status && options->save_weights)
        status = weights_can_save(options->save_weights);
    if (!status && options->profile)
        status = profile_can_write(options->profile);
    if (status)
        return status;
    if (!options->quiet && !(options->replicas && !strcmp(options->replicas, "mpi"))) /* there: rank 0 */
        option_notes_print(options, stderr);
    if (options->profile || options->nvtx)
        profile_nvtx_open();
    if (options->save && !options->find_batch && !options->auto_accum)
        stop_watch();
    if (options->log)
        status = progress_log_open(options->log);
    if (status)
        return status;
    if (options->pair.given)
        status = pair_run(options);
    else if (options->replicas)
        status = replicas_run(options);
    else
        status = run_single(options);
    if (!status && fflush(stdout))
        status = status_fail(STATUS_FAILED, "the result could not be written");
    logged = progress_log_end(status);
    return status ? status : logged;
}

static bool is_link(const char *path)
{
    struct stat info;

    return !lstat(path, &info) && S_ISLNK(info.st_mode);
}

/* Writes what a link says to `real`, with the real path of its folder if there is one. */
static bool read_link(const char *path, char real[PATH_MAX])
{
    char target[PATH_MAX], joined[2 * PATH_MAX], folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const ssize_t length = readlink(path, target, sizeof(target));

    if (length <= 0 || length == (ssize_t)sizeof(target))
        return false;
    /* What it says is relative to the folder of the link. */
    snprintf(joined, sizeof(joined), "%.*s%.*s", target[0] == '/' || !slash ? 0 : (int)(slash - path) + 1,
             path, (int)length, target);
    char *base = strrchr(joined, '/');
    if (base)
        *base++ = 0;
    if (realpath(!base ? "." : joined[0] ? joined : "/", folder))
        return snprintf(real, PATH_MAX, "%s/%s", folder, base ? base : joined) < PATH_MAX;
    return base && snprintf(real, PATH_MAX, "%s/%s", joined, base) < PATH_MAX;
}

/* Names the file behind a link: it is replaced or created later, and the link stays. */
static void follow_link(const char **path, char real[PATH_MAX])
{
    enum { LINKS_MAX = 40 }; /* as the kernel has it */
    char last[PATH_MAX];

    if (!*path || !is_link(*path))
        return;
    if (realpath(*path, real)) {
        *path = real;
        return;
    }
    if (errno != ENOENT)
        return;
    for (int i = 0; i < LINKS_MAX && is_link(*path); i++) {
        snprintf(last, sizeof(last), "%s", *path);
        if (!read_link(last, real))
            return;
        *path = real;
    }
}

enum status train_run(const struct train_options *wanted)
{
    static char real[3][PATH_MAX];
    struct train_options options = *wanted;

    follow_link(&options.save, real[0]);
    follow_link(&options.resume, real[1]);
    follow_link(&options.save_weights, real[2]);
    return run_options(&options);
}

/* Joins options, device, memory and trainer to a run, and prints its result. */
#include "harness/train/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/train/checkpoint.h"
#include "harness/train/fit.h"
#include "harness/train/pair.h"
#include "harness/train/replicas.h"
#include "harness/train/shrink_model.h"

/* Options that do not go together, said before anything is opened. */
static enum status check_options(const struct train_options *options)
{
    bool fixed =
        options->alloc == ALLOC_CACHE || options->alloc == ALLOC_ARENA || options->alloc == ALLOC_STATIC;
    char format[16];

    if (options->graph && !fixed)
        return status_fail(STATUS_USAGE, "--graph needs memory that stays where it is: "
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
    if (options->save_every && !options->save)
        return status_fail(STATUS_USAGE, "--save-every needs --save=FILE");
    if (options->pair.given &&
        (options->replicas || options->find_batch || options->auto_accum || options->save || options->resume))
        return status_fail(STATUS_USAGE,
                           "--pair does not go with --replicas, --find-batch, --auto-accum, --save or "
                           "--resume");
    if ((options->pair.given || options->replicas) &&
        (options->prune > 0.0 || options->quantize != QUANTIZE_NONE))
        return status_fail(STATUS_USAGE, "--prune and --quantize go with one model: not with --pair or "
                                         "--replicas");
    if (options->replicas && (options->find_batch || options->auto_accum || options->graph))
        return status_fail(STATUS_USAGE, "--replicas does not go with --find-batch, --auto-accum or --graph");
    return STATUS_OK;
}

void train_read_result(struct trainer *trainer, struct train_result *result)
{
    struct ops_scalars scalars = {0};
    struct pipeline_stats stats = {0};
    uint64_t steps = trainer->step - trainer->first_step;

    pipeline_get_stats(feed_pipeline(trainer->input.feed), &stats);
    result->data_wait_ms = steps ? 1e3 * stats.wait_seconds / (double)steps : 0.0;
    result->options = trainer->options;
    result->options.steps = trainer->step; /* a checkpoint may be further than --steps */
    snprintf(result->device, sizeof(result->device), "%s", trainer->device->name);
    result->loss_first = trainer->loss_first;
    result->loss_last = trainer->loss_last;
    result->val_best = trainer->val_best;
    result->step_ms = trainer_step_ms(trainer);
    result->samples_per_s = trainer_samples_per_s(trainer);
    result->peak_bytes = atomic_load(&trainer->supply->budget->peak);
    memcpy(result->peak_kind, trainer->mem.peak, sizeof(result->peak_kind));
    if (cudaMemcpy(&scalars, trainer->optim.scalars.data, sizeof(scalars), cudaMemcpyDeviceToHost) ==
        cudaSuccess)
        result->skipped = scalars.skipped;
}

void train_print_result(const struct train_result *result)
{
    const struct train_options *options = &result->options;
    char model[16], alloc[16], precision[16];

    /* Nine digits give a float back exactly: two runs can be compared by the bits of their losses. */
    printf("model=%s alloc=%s precision=%s batch=%llu accumulate=%llu steps=%llu step_ms=%.3f "
           "samples_per_s=%.1f data_wait_ms=%.3f loss_first=%.9g loss_last=%.9g",
           train_options_choice("model", options->model, model, sizeof(model)),
           train_options_choice("alloc", options->alloc, alloc, sizeof(alloc)),
           train_options_choice("precision", options->precision, precision, sizeof(precision)),
           (unsigned long long)options->batch, (unsigned long long)options->accumulate,
           (unsigned long long)options->steps, result->step_ms, result->samples_per_s, result->data_wait_ms,
           (double)result->loss_first, (double)result->loss_last);
    if (result->evaluation.rows)
        printf(" val_loss=%.6g val_best=%.6g", result->evaluation.loss, result->val_best);
    if (result->evaluation.accuracy >= 0.0)
        printf(" accuracy=%.5f", result->evaluation.accuracy);
    if (options->precision == PRECISION_FP16)
        printf(" skipped=%.0f", (double)result->skipped);
    printf(" peak_bytes=%zu", result->peak_bytes);
    for (int kind = 0; kind < MEM_KIND_COUNT; kind++)
        printf(" peak_%s=%zu", mem_kind_name((enum mem_kind)kind), result->peak_kind[kind]);
    printf(" device=%s\n", result->device);
}

enum status train_one(struct trainer *trainer, struct train_result *result)
{
    const struct train_options *options = &trainer->options;
    enum status status = STATUS_OK;

    if (options->resume)
        status = checkpoint_load(trainer, options->resume);
    if (!status && options->resume && options->steps && trainer->step >= options->steps && !options->quiet &&
        !trainer->shard)
        fprintf(stderr, "%s is at step %llu: nothing is left to train for --steps=%llu\n", options->resume,
                (unsigned long long)trainer->step, (unsigned long long)options->steps);
    if (!status)
        status = trainer_run(trainer);
    if (!status)
        status = trainer_evaluate(trainer, &result->evaluation);
    if (!status)
        train_read_result(trainer, result);
    return status;
}

/* *trained: the training itself came to its end. */
static enum status run_with_batch(const struct train_options *options, struct cuda_device *device,
                                  struct supply *supply, bool *trained)
{
    struct trainer trainer = {0};
    struct train_result result = {0};
    /* What a trial or a failure left in a cache would be in the way of everything beside it. */
    enum status status = supply_trim(supply, device->stream);

    if (!status)
        status = trainer_open(&trainer, options, device, supply, 0, 0);
    if (!status)
        status = train_one(&trainer, &result);
    *trained = !status;
    if (!status)
        train_print_result(&result);
    if (!status)
        status = shrink_model_evaluate(&trainer);
    trainer_close(&trainer);
    return status;
}

static enum status run_on(struct train_options *options, struct cuda_device *device, struct supply *supply)
{
    enum status status = fit_options(options, device, supply);
    bool trained = false;

    if (status)
        return status;
    status = run_with_batch(options, device, supply, &trained);
    /* What fitted in the trial may not fit between everything else: less is tried, without a restart. */
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

enum status train_run(const struct train_options *options)
{
    enum status status = check_options(options);

    if (!status && options->save)
        status = checkpoint_can_save(options->save);
    if (status)
        return status;
    /* Every operation gives the same bits each time, but which of several convolutions is fastest may differ
     * from run to run. */
    if (options->deterministic)
        setenv("TRAIN_CONV_TUNE", "0", 1);
    if (options->pair.given)
        status = pair_run(options);
    else if (options->replicas)
        status = replicas_run(options);
    else
        status = run_single(options);
    if (!status && fflush(stdout))
        status = status_fail(STATUS_FAILED, "the result could not be written");
    return status;
}

/* The search for a batch: tries trainings with different batches in this process until the largest that
 * fits is known. Short trials find a candidate. With an allocator outside of train (cudaMalloc, a pool),
 * fragmentation may change from step to step, so the candidate must also pass a long trial. */
#include "harness/train/fit.h"

#include <stdio.h>

#include "harness/train/trainer.h"

enum { SHORT_TRIAL = 1, LONG_TRIAL = 4 }; /* rounds of steps and a validation */

/* A search has already found a batch, so only a little memory is missing. */
static uint64_t next_smaller(uint64_t batch)
{
    enum { STEP = 16 };

    return batch - (batch + STEP - 1) / STEP;
}

/* Tries a batch. STATUS_NO_MEMORY is a result here, not a failure. */
static enum status try_batch(const struct train_options *options, struct trainer *trainer, int rounds,
                             bool *fits)
{
    enum status status = trainer_try_batch(trainer, options->batch, options->accumulate, rounds);

    *fits = !status;
    if (!options->quiet && (!status || status == STATUS_NO_MEMORY))
        fprintf(stderr, "batch %llu %s\n", (unsigned long long)options->batch,
                *fits ? "fits" : "does not fit");
    return status == STATUS_NO_MEMORY ? STATUS_OK : status;
}

/* Doubles the batch while it fits, then bisects. The result is 0 if nothing fits. */
static enum status largest_batch(struct train_options *options, struct trainer *trainer)
{
    uint64_t most = options->batch;
    uint64_t good = 0;
    uint64_t bad = most + 1;
    enum status status = STATUS_OK;
    bool fits;

    options->batch = 1;
    while (bad - good > 1 && !status) {
        status = try_batch(options, trainer, SHORT_TRIAL, &fits);
        if (fits)
            good = options->batch;
        else
            bad = options->batch;
        options->batch = bad > most && 2 * good <= most ? 2 * good : good + (bad - good) / 2;
    }
    options->batch = good;
    return status;
}

static enum status find_batch(struct train_options *options, struct trainer *trainer)
{
    enum status status = largest_batch(options, trainer);
    bool fits = false;

    while (!status && !fits && options->batch) {
        status = try_batch(options, trainer, LONG_TRIAL, &fits);
        if (!fits)
            options->batch = next_smaller(options->batch);
    }
    if (!status && !options->batch)
        return status_fail(STATUS_NO_MEMORY, "--find-batch: not even one sample fits into the memory");
    return status;
}

static enum status split_batch(struct train_options *options, struct trainer *trainer)
{
    enum status status = STATUS_OK;
    bool fits = false;

    while (!status) {
        status = try_batch(options, trainer, LONG_TRIAL, &fits);
        if (status || fits)
            break;
        if (options->batch % 2)
            return status_fail(STATUS_NO_MEMORY,
                               "--auto-accum: a batch of %llu does not fit and cannot be halved",
                               (unsigned long long)options->batch);
        options->batch /= 2;
        options->accumulate *= 2;
    }
    return status;
}

enum status fit_options(struct train_options *options, struct cuda_device *device, struct supply *supply)
{
    struct trainer trainer = {0};
    struct train_options probe = *options;
    enum status status;

    if (!options->find_batch && !options->auto_accum)
        return STATUS_OK;
    probe.batch = 1; /* each trial sets it */
    probe.quiet = true;
    status = trainer_open(&trainer, &probe, device, supply, 0, 0);
    if (!status)
        status = options->find_batch ? find_batch(options, &trainer) : split_batch(options, &trainer);
    trainer_close(&trainer);
    return status;
}

bool fit_less(struct train_options *options)
{
    uint64_t old = options->batch;

    if (options->auto_accum && old % 2 == 0) {
        options->batch = old / 2;
        options->accumulate *= 2;
    } else if (options->find_batch && old > 1) {
        options->batch = next_smaller(old);
    } else {
        return false;
    }
    if (!options->quiet)
        fprintf(stderr, "batch %llu does not fit after all: trying %llu%s%s\n", (unsigned long long)old,
                (unsigned long long)options->batch, options->resume ? " from " : "",
                options->resume ? options->resume : "");
    return true;
}

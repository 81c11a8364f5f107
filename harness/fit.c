/* The search for a batch: one model with its optimizer is opened, and passes of different sizes are tried on
 * it until the largest that fits is known. */
#include "fit.h"

#include <stdio.h>

#include "trainer.h"

/* Whether a batch fits; STATUS_NO_MEMORY is an answer, not a failure. */
static enum status try_batch(struct trainer *trainer, uint64_t batch, bool *fits)
{
    enum status status = trainer_try_batch(trainer, batch);

    *fits = !status;
    if (!trainer->options.quiet && (!status || status == STATUS_NO_MEMORY))
        fprintf(stderr, "batch %llu %s\n", (unsigned long long)batch, *fits ? "fits" : "does not fit");
    return status == STATUS_NO_MEMORY ? STATUS_OK : status;
}

/* Doubles while it fits, then halves the gap. */
static enum status largest_batch(struct trainer *trainer, uint64_t most, uint64_t *out)
{
    uint64_t good = 0;
    uint64_t bad = most + 1;
    uint64_t next = most < 1 ? most : 1;
    enum status status = STATUS_OK;
    bool fits;

    while (bad - good > 1 && !status) {
        status = try_batch(trainer, next, &fits);
        if (fits)
            good = next;
        else
            bad = next;
        next = bad > most && 2 * good <= most ? 2 * good : good + (bad - good) / 2;
    }
    *out = good;
    return status;
}

static enum status find_batch(struct options *options, struct trainer *trainer)
{
    uint64_t batch = 0;
    enum status status = largest_batch(trainer, options->batch, &batch);

    if (status)
        return status;
    if (!batch)
        return status_fail(STATUS_NO_MEMORY, "--find-batch: not even one sample fits into the memory");
    options->batch = batch;
    return STATUS_OK;
}

static enum status split_batch(struct options *options, struct trainer *trainer)
{
    uint64_t batch = options->batch;
    uint64_t parts = options->accumulate;
    enum status status = STATUS_OK;
    bool fits = false;

    while (!status) {
        status = try_batch(trainer, batch, &fits);
        if (status || fits)
            break;
        if (batch % 2)
            return status_fail(STATUS_NO_MEMORY,
                               "--auto-accum: a batch of %llu does not fit and cannot be halved",
                               (unsigned long long)batch);
        batch /= 2;
        parts *= 2;
    }
    options->batch = batch;
    options->accumulate = parts;
    return status;
}

enum status fit_options(struct options *options, struct device *device, struct supply *supply)
{
    struct trainer trainer = {0};
    struct options probe = *options;
    enum status status;

    if (!options->find_batch && !options->auto_accum)
        return STATUS_OK;
    probe.batch = 1; /* its data pipeline is not used */
    status = trainer_open(&trainer, &probe, device, supply, 0, 0);
    if (!status)
        status = options->find_batch ? find_batch(options, &trainer) : split_batch(options, &trainer);
    trainer_close(&trainer);
    return status;
}

bool fit_less(struct options *options)
{
    enum { STEP = 16 }; /* a search found the batch already: what is missing is little */
    uint64_t old = options->batch;

    if (options->auto_accum && old % 2 == 0) {
        options->batch = old / 2;
        options->accumulate *= 2;
    } else if (options->find_batch && old > 1) {
        options->batch = old - (old + STEP - 1) / STEP;
    } else {
        return false;
    }
    if (!options->quiet)
        fprintf(stderr, "batch %llu does not fit after all: trying %llu\n", (unsigned long long)old,
                (unsigned long long)options->batch);
    return true;
}

/* The loop around the step: validations and checkpoints between steps. */
#include "harness/train/trainer.h"

#include <stdio.h>

#include "harness/train/checkpoint.h"

static enum status validate_now(struct trainer *trainer)
{
    struct trainer_evaluation evaluation;
    enum status status = trainer_evaluate(trainer, &evaluation);

    if (!status && evaluation.rows && !trainer->options.quiet && !trainer->shard) {
        fprintf(stderr, "step %llu validation loss %.4f", (unsigned long long)trainer->step, evaluation.loss);
        if (evaluation.accuracy >= 0.0)
            fprintf(stderr, " accuracy %.4f", evaluation.accuracy);
        fputc('\n', stderr);
    }
    return status;
}

/* Validates and saves between steps, with the clock stopped. */
static enum status between_steps(struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;
    bool end = trainer->step >= options->steps;
    bool validate = options->validate_every && !end && trainer->step % options->validate_every == 0;
    bool save = options->save && trainer->shard == 0 &&
                (end || (options->save_every && trainer->step % options->save_every == 0));
    enum status status = STATUS_OK;

    if (!validate && !save)
        return STATUS_OK;
    status = trainer_time(trainer, false);
    if (!status)
        status = trainer_read_reports(trainer, true);
    if (!status && validate)
        status = validate_now(trainer);
    if (!status && save)
        status = checkpoint_save(trainer, options->save);
    return status;
}

enum status trainer_run(struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;
    enum status status = STATUS_OK;
    uint64_t warm;

    trainer->started = trainer_now();
    trainer->first_step = trainer->started_step = trainer->step;
    /* Not timed: the first steps, which choose algorithms, and those before the graphs are captured. */
    warm = trainer->step + (options->graph ? 2 * INPUT_SETS : 1);
    while (trainer->step < options->steps && !status) {
        if (trainer->step >= warm || trainer->step + 1 == options->steps)
            status = trainer_time(trainer, true);
        if (!status)
            status = trainer_step(trainer);
        if (!status)
            status = trainer_read_reports(trainer, false);
        if (!status)
            status = between_steps(trainer);
    }
    if (!status)
        status = trainer_time(trainer, false);
    return status ? status : trainer_read_reports(trainer, true);
}

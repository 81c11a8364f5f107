/* The loop around the step: validations and checkpoints between steps. */
#include "harness/train/trainer.h"

#include <math.h>
#include <stdio.h>

#include "harness/train/checkpoint.h"

static bool validates_now(const struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;

    return options->validate_every && trainer->step < options->steps &&
           trainer->step % options->validate_every == 0;
}

static bool saves_now(const struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;
    bool end = trainer->step >= options->steps;

    return options->save && trainer->shard == 0 &&
           (end || (options->save_every && trainer->step % options->save_every == 0));
}

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

bool trainer_due(const struct trainer *trainer)
{
    return validates_now(trainer) || saves_now(trainer);
}

enum status trainer_between(struct trainer *trainer)
{
    enum status status = STATUS_OK;

    if (!trainer_due(trainer))
        return STATUS_OK;
    status = trainer_time(trainer, false);
    if (!status)
        status = trainer_read_reports(trainer, true);
    if (!status && validates_now(trainer))
        status = validate_now(trainer);
    if (!status && saves_now(trainer))
        status = checkpoint_save(trainer, trainer->options.save);
    return status;
}

void trainer_begin(struct trainer *trainer)
{
    trainer->started = trainer->reported = trainer_now();
    trainer->first_step = trainer->started_step = trainer->step;
    trainer->checked_step = trainer->good_step = trainer->step;
}

enum status trainer_advance(struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;
    /* Not timed: the first steps, which choose algorithms, and those before the graphs are captured. */
    uint64_t warm = trainer->first_step + (options->graph ? 2 * INPUT_SETS : 1);
    enum status status = STATUS_OK;

    if (trainer->step >= warm || trainer->step + 1 == options->steps)
        status = trainer_time(trainer, true);
    if (!status)
        status = trainer_step(trainer);
    return status ? status : trainer_read_reports(trainer, false);
}

enum status trainer_end(struct trainer *trainer)
{
    enum status status = trainer_time(trainer, false);

    return status ? status : trainer_read_reports(trainer, true);
}

enum status trainer_run(struct trainer *trainer)
{
    enum status status = STATUS_OK;

    trainer_begin(trainer);
    while (trainer->step < trainer->options.steps && !status) {
        status = trainer_advance(trainer);
        if (!status)
            status = trainer_between(trainer);
    }
    return status ? status : trainer_end(trainer);
}

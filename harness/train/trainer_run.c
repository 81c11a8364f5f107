/* The loop around the step: validations and checkpoints between steps. */
#include "harness/train/trainer.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/now.h"
#include "harness/train/checkpoint.h"
#include "harness/train/dump.h"
#include "harness/train/stop.h"

static bool validates_now(const struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;

    /* Replicas are equal: one validates, and the others wait for it in the next step. */
    return !trainer->shard && options->validate_every && trainer->step < options->steps &&
           trainer->step % options->validate_every == 0;
}

static bool saves_now(const struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;
    bool end = trainer->step >= options->steps;

    return options->save && trainer->shard == 0 &&
           (end || (options->save_every && trainer->step % options->save_every == 0));
}

/* Writes a checkpoint. If that fails, on a full disk for example, the training goes on and *unsaved is set:
 * the next try may succeed. If it was the last one, session_finish says so. */
static enum status write_checkpoint(struct trainer *trainer, const char *path, uint64_t keep, bool *unsaved)
{
    enum status status = checkpoint_save(trainer, path, keep);

    *unsaved = status == STATUS_UNSAVED;
    if (!*unsaved)
        return status;
    progress_log("unsaved", ",\"step\":%llu", (unsigned long long)trainer->step);
    if (trainer->step < trainer->options.steps && !stop_signal())
        status_fail(status, "the training goes on, and tries again when the next checkpoint is due");
    return STATUS_OK;
}

static enum status save(struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;
    enum status status;

    if (!trainer_is_good(trainer))
        return STATUS_FAILED;
    if (trainer->saved_step == trainer->step)
        return STATUS_OK;
    status = write_checkpoint(trainer, options->save, options->keep, &trainer->unsaved);
    if (!status && !trainer->unsaved)
        trainer->saved_step = trainer->step;
    return status;
}

/* Saves FILE.best. If that fails, val_best becomes `before` again, the loss of the old FILE.best. */
static enum status save_best(struct trainer *trainer, double before)
{
    enum status status;
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s.best", trainer->options.save) >= (int)sizeof(path))
        return status_fail(STATUS_FAILED, "--save: the path is too long");
    status = write_checkpoint(trainer, path, 1, &trainer->best_unsaved);
    if (trainer->best_unsaved)
        trainer->val_best = before;
    return status;
}

/* Writes FILE again after a validation, if need be. The last validation comes after the last checkpoint, so
 * that a failure in it loses no step. If it found the lowest loss, FILE must contain it, or a run that
 * resumes from FILE would replace FILE.best by something worse. And if the checkpoint failed, there may be
 * room by now. */
static enum status save_again(struct trainer *trainer, bool best)
{
    const struct train_options *options = &trainer->options;

    if (trainer->unsaved && trainer->step >= options->steps)
        return save(trainer);
    if (!options->save || !best || !(options->save_best || options->validate_every) ||
        trainer->saved_step != trainer->step)
        return STATUS_OK;
    return write_checkpoint(trainer, options->save, 1, &trainer->unsaved);
}

enum status trainer_validate(struct trainer *trainer, struct trainer_evaluation *evaluation)
{
    const struct train_options *options = &trainer->options;
    double before = trainer->val_best;
    enum status status = trainer_evaluate(trainer, evaluation);
    char model[16];

    if (status || !evaluation->rows || trainer->shard || trainer->trial)
        return status;
    progress_validated(&trainer->progress,
                       train_options_choice("model", options->model, model, sizeof(model)), trainer->step,
                       evaluation->loss, evaluation->accuracy);
    if (trainer->small)
        return STATUS_OK;
    if (evaluation->best && options->save && options->save_best)
        status = save_best(trainer, before);
    return status ? status : save_again(trainer, evaluation->best);
}

/* Ends the training because a signal asked for it. Only replica 0 reads signals: the others end with it. */
static enum status stop(struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;
    enum status status = STATUS_OK;

    if (trainer->step > trainer->first_step) {
        status = trainer_time(trainer, false);
        if (!status)
            status = trainer_queue_report(trainer);
        if (!status)
            status = trainer_read_reports(trainer, true);
    }
    if (!status)
        status = save(trainer);
    if (status)
        return status;
    return status_fail(
        trainer->unsaved ? STATUS_UNSAVED : STATUS_STOPPED, "ended by %s at step %llu of %llu%s%s",
        stop_name(), (unsigned long long)trainer->step, (unsigned long long)options->steps,
        trainer->unsaved ? ", which could not be saved to " : "; go on with --resume=", options->save);
}

/* Validates between steps. If a signal interrupts it, the run that resumes has to do it. */
static enum status validate_step(struct trainer *trainer)
{
    struct trainer_evaluation evaluation;
    enum status status = trainer_validate(trainer, &evaluation);

    trainer->missed = stop_signal() && !evaluation.rows ? trainer->step : 0;
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
    /* What was waited for may have ended because a replica is gone. */
    if (!status && !trainer_is_good(trainer))
        status = STATUS_FAILED;
    if (!status && validates_now(trainer))
        status = validate_step(trainer);
    if (!status && saves_now(trainer))
        status = save(trainer);
    return status;
}

static void log_start(const struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;
    char model[16], alloc[16], precision[16];

    if (trainer->shard || trainer->trial)
        return;
    progress_log("start",
                 ",\"model\":\"%s\",\"alloc\":\"%s\",\"precision\":\"%s\",\"batch\":%llu,\"accumulate\":%llu,"
                 "\"step\":%llu,\"steps\":%llu,\"device\":\"%s\"",
                 train_options_choice("model", options->model, model, sizeof(model)),
                 train_options_choice("alloc", options->alloc, alloc, sizeof(alloc)),
                 train_options_choice("precision", options->precision, precision, sizeof(precision)),
                 (unsigned long long)options->batch, (unsigned long long)options->accumulate,
                 (unsigned long long)trainer->step, (unsigned long long)options->steps,
                 trainer->device->name);
}

void trainer_begin(struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;

    trainer->reported = now_s();
    trainer->first_step = trainer->step;
    trainer->mark = NULL;
    /* Not timed: the first steps, which choose algorithms, and those before the graphs are captured. */
    trainer->timed_from = trainer->step + (options->graph ? 2 * INPUT_SETS : 1);
    progress_open(&trainer->progress, options->quiet || trainer->shard || trainer->trial,
                  trainer->shares_terminal, options->report_every);
    log_start(trainer);
    /* A run that goes on from the file that it saves to has that one. */
    trainer->saved_step = options->save && options->resume && !strcmp(options->save, options->resume)
                              ? trainer->step
                              : UINT64_MAX;
    trainer->checked_step = trainer->good_step = trainer->step;
}

enum status trainer_advance(struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;
    /* Nor are the steps of a profile, after which graphs are yet to be captured. */
    uint64_t next = trainer->step + 1 + (options->graph ? INPUT_SETS : 0);
    enum status status = STATUS_OK;

    if (trainer_is_profiled(trainer) && trainer->timed_from < next)
        trainer->timed_from = next;
    if (trainer->step >= trainer->timed_from || trainer->step + 1 == options->steps)
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

/* Returns true if no step was left to train, and the checkpoint that was resumed from is to be in another
 * file. */
static bool only_copies(const struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;

    return options->save && options->resume && options->steps && trainer->step == trainer->first_step &&
           !trainer->shard && !trainer->small && strcmp(options->save, options->resume) != 0;
}

enum status trainer_run(struct trainer *trainer)
{
    enum status status = STATUS_OK;

    trainer->keep_input = trainer->options.dump;
    trainer_begin(trainer);
    if (trainer->missed && trainer->missed == trainer->step && validates_now(trainer))
        status = validate_step(trainer);
    if (!status && trainer->missed && stop_signal())
        status = stop(trainer);
    while (trainer->step < trainer->options.steps && !status) {
        status = trainer_advance(trainer);
        if (!status && trainer->keep_input)
            status = dump_step(trainer);
        if (!status)
            status = trainer_between(trainer);
        if (!status && stop_signal() && !trainer->shard && trainer->step < trainer->options.steps)
            status = stop(trainer);
    }
    if (!status && only_copies(trainer))
        status = save(trainer);
    return status ? status : trainer_end(trainer);
}

/* The figures of steps on their way to the host, the progress lines made of them, and the clock. The host
 * never waits for a figure while steps are queued: it is copied when its step is done, and read when it has
 * arrived. That a loss or gradient was not finite is kept on the device until then (ops_scalars.bad_step). */
#include "harness/train/trainer.h"

#include <stdio.h>

#include "harness/base/card_peak.h"
#include "harness/base/now.h"

static const double report_seconds = 0.1; /* between two reports, so that a bad step is soon noticed */

/* ---- reports ---- */

bool trainer_reports_now(const struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;

    if (trainer->step == trainer->first_step + 1 || trainer->step == options->steps || trainer_due(trainer))
        return true;
    return (options->report_every && trainer->step % options->report_every == 0) ||
           now_s() - trainer->reported >= report_seconds;
}

enum status trainer_queue_report(struct trainer *trainer)
{
    struct trainer_report *report = &trainer->report[trainer->reports++ % TRAINER_REPORTS];
    cudaStream_t stream = trainer->device->stream;
    /* The event of the report before the oldest unread one is still needed to time that one. */
    bool full = trainer->report[trainer->reports % TRAINER_REPORTS].waiting;
    enum status status = report->waiting || full ? trainer_read_reports(trainer, true) : STATUS_OK;

    if (!status)
        status = cuda_device_status(cudaMemcpyAsync(report->figures->totals, trainer->totals.data,
                                                    sizeof(report->figures->totals), cudaMemcpyDeviceToHost,
                                                    stream),
                                    "copying the losses");
    if (!status)
        status = cuda_device_status(cudaMemcpyAsync(&report->figures->scalars, trainer->optim.scalars.data,
                                                    sizeof(report->figures->scalars), cudaMemcpyDeviceToHost,
                                                    stream),
                                    "copying the losses");
    if (!status)
        status = cuda_device_status(cudaEventRecord(report->done, stream), "recording an event");
    report->step = trainer->step;
    report->amount = trainer_amount(trainer);
    report->waiting = true;
    trainer->reported = now_s();
    return status;
}

/* Milliseconds of each step since the mark, by the device's clock; 0 if they are not known. *steps says how
 * many they are, *amount how many samples or tokens one of them had on average. Moves the mark to this
 * report. */
static double step_ms(struct trainer *trainer, const struct trainer_report *report, uint64_t *steps,
                      double *amount)
{
    float ms = 0.0f;

    *steps = 0;
    *amount = 0.0;
    if (!trainer->mark || report->step <= trainer->mark_step)
        return 0.0;
    *steps = report->step - trainer->mark_step;
    if (cudaEventElapsedTime(&ms, trainer->mark, report->done) != cudaSuccess)
        *steps = 0;
    else
        *amount = (double)(report->amount - trainer->mark_amount) / (double)*steps;
    trainer->mark = report->done;
    trainer->mark_step = report->step;
    trainer->mark_amount = report->amount;
    return *steps ? (double)ms / (double)*steps : 0.0;
}

/* Milliseconds that a step would take at the peak of the card. 0 if steps differ, or replicas share it. */
static double peak_ms(const struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;
    double peak = card_peak(trainer->device->name, (enum precision)options->precision);
    bool alone = trainer->shards <= 1 || trainer->reduce.captures;

    return peak > 0.0 && alone && !options->vary ? 1e3 * trainer->step_flops / peak : 0.0;
}

static void print_report(struct trainer *trainer, const struct trainer_report *report)
{
    const struct train_options *options = &trainer->options;
    char model[16], precision[16];
    struct progress_figures figures = {
        .model = train_options_choice("model", options->model, model, sizeof(model)),
        .precision = train_options_choice("precision", options->precision, precision, sizeof(precision)),
        .step = report->step,
        .steps = options->steps,
        .loss = (double)trainer->loss_last,
        .rate = (double)report->figures->scalars.rate,
        .tokens = trainer->tokens > 0,
        .held = supply_held(trainer->supply),
        .peak = atomic_load(&trainer->supply->budget->peak),
        .skipped = (double)report->figures->scalars.skipped,
        .peak_ms = peak_ms(trainer),
    };
    uint64_t timed;

    figures.ms = step_ms(trainer, report, &timed, &figures.per_s);
    figures.per_s *= (double)(trainer->shards ? trainer->shards : 1);
    if (!trainer->shard && !trainer->trial)
        progress_step(&trainer->progress, &figures, timed,
                      report->step == trainer->first_step + 1 || report->step == options->steps);
}

/* Says what happened and what can be done. */
static enum status stop_for_bad_step(struct trainer *trainer)
{
    const char *save = trainer->options.save;
    char replica[32] = "", model[16];

    if (trainer->shards > 1)
        snprintf(replica, sizeof(replica), " (replica %llu)", (unsigned long long)trainer->shard);
    else if (trainer->options.pair.given)
        snprintf(replica, sizeof(replica), " (%s)",
                 train_options_choice("model", trainer->options.model, model, sizeof(model)));
    status_fail(STATUS_NOT_FINITE,
                "the loss or a gradient of step %llu%s is not finite: the training stops%s%s%s",
                (unsigned long long)trainer->bad_step, replica, save ? "; " : "", save ? save : "",
                save ? " is as it was last saved" : "");
    return status_fail(STATUS_NOT_FINITE,
                       "a lower --rate, --warmup or --clip may help; --on-nan=skip skips such updates");
}

/* With --on-nan=skip, ends a training whose last updates were all left out. */
static enum status check_skips(struct trainer *trainer, const struct trainer_report *report)
{
    enum { MOST_IN_A_ROW = 100 };
    float skipped = report->figures->scalars.skipped;
    uint64_t since = report->step - trainer->checked_step;

    if (skipped - trainer->skipped < (float)since)
        trainer->good_step = report->step;
    trainer->checked_step = report->step;
    trainer->skipped = skipped;
    if (trainer->options.on_nan != ON_NAN_SKIP || report->step - trainer->good_step < MOST_IN_A_ROW)
        return STATUS_OK;
    return status_fail(STATUS_NOT_FINITE,
                       "no update since step %llu had a finite loss and finite gradients: the training stops",
                       (unsigned long long)trainer->good_step);
}

static enum status take_report(struct trainer *trainer, const struct trainer_report *report)
{
    const struct trainer_figures *figures = report->figures;

    trainer->loss_last = figures->totals[TOTAL_LOSS] / figures->totals[TOTAL_ROWS];
    if (report->step == trainer->first_step + 1)
        trainer->loss_first = trainer->loss_last;
    trainer->bad_step = figures->scalars.bad_step;
    print_report(trainer, report);
    if (trainer->bad_step && trainer->options.on_nan == ON_NAN_STOP && !trainer->trial)
        return stop_for_bad_step(trainer);
    return check_skips(trainer, report);
}

enum status trainer_read_reports(struct trainer *trainer, bool wait)
{
    enum status status = STATUS_OK;

    /* The oldest first. */
    for (unsigned i = 0; i < TRAINER_REPORTS && !status; i++) {
        struct trainer_report *report = &trainer->report[(trainer->reports + i) % TRAINER_REPORTS];
        cudaError_t error;

        if (!report->waiting)
            continue;
        error = wait ? cudaEventSynchronize(report->done) : cudaEventQuery(report->done);
        if (error == cudaErrorNotReady)
            return STATUS_OK;
        if (error)
            return cuda_device_status(error, "waiting for a step");
        report->waiting = false;
        status = take_report(trainer, report);
    }
    return status;
}

/* ---- the clock ---- */

enum status trainer_time(struct trainer *trainer, bool on)
{
    cudaStream_t stream = trainer->device->stream;
    float ms = 0.0f;
    enum status status;

    if (on == trainer->timing)
        return STATUS_OK;
    trainer->timing = on;
    trainer->mark = on ? trainer->start : trainer->mark;
    trainer->mark_step = on ? trainer->step : trainer->mark_step;
    trainer->mark_amount = on ? trainer_amount(trainer) : trainer->mark_amount;
    if (on)
        return cuda_device_status(cudaEventRecord(trainer->start, stream), "recording an event");
    status = cuda_device_status(cudaEventRecord(trainer->stop, stream), "recording an event");
    if (!status)
        status = cuda_device_status(cudaEventSynchronize(trainer->stop), "waiting for a step");
    if (!status)
        status =
            cuda_device_status(cudaEventElapsedTime(&ms, trainer->start, trainer->stop), "reading the time");
    trainer->timed_ms += (double)ms;
    return status;
}

double trainer_step_ms(const struct trainer *trainer)
{
    return trainer->timed_steps ? trainer->timed_ms / (double)trainer->timed_steps : 0.0;
}

double trainer_samples_per_s(const struct trainer *trainer)
{
    uint64_t shards = trainer->shards ? trainer->shards : 1;

    return trainer->timed_ms > 0.0 ? 1e3 * (double)(trainer->timed_samples * shards) / trainer->timed_ms
                                   : 0.0;
}

double trainer_flops_per_s(const struct trainer *trainer)
{
    return trainer->timed_ms > 0.0 ? 1e3 * trainer->timed_flops / trainer->timed_ms : 0.0;
}

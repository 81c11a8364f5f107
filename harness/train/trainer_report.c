/* The losses of steps on their way to the host, the progress lines made of them, and the clock. The host
 * never waits for a loss while steps are queued: a loss is copied when its step is done, and read when it has
 * arrived. */
#include "harness/train/trainer.h"

#include <stdio.h>

/* ---- reports ---- */

bool trainer_reports_now(const struct trainer *trainer)
{
    enum { LINES = 10 };
    const struct train_options *options = &trainer->options;
    uint64_t every = options->report_every;

    if (!every)
        every = options->steps > LINES ? options->steps / LINES : 1;
    return trainer->step == trainer->first_step + 1 || trainer->step == options->steps ||
           trainer->step % every == 0;
}

enum status trainer_queue_report(struct trainer *trainer)
{
    struct trainer_report *report = &trainer->report[trainer->reports++ % TRAINER_REPORTS];
    enum status status = report->waiting ? trainer_read_reports(trainer, true) : STATUS_OK;

    if (!status)
        status =
            cuda_device_status(cudaMemcpyAsync(report->totals, trainer->totals.data, TOTALS * sizeof(float),
                                               cudaMemcpyDeviceToHost, trainer->device->stream),
                               "copying the losses");
    if (!status)
        status =
            cuda_device_status(cudaEventRecord(report->done, trainer->device->stream), "recording an event");
    report->step = trainer->step;
    report->waiting = true;
    return status;
}

static void print_report(struct trainer *trainer, const struct trainer_report *report)
{
    const double mib = 1024.0 * 1024.0;
    double now = trainer_now();
    double seconds = now - trainer->started;
    double steps = (double)(report->step - trainer->started_step);
    char model[16];

    /* The time of the steps since the previous line. */
    trainer->started = now;
    trainer->started_step = report->step;
    if (trainer->options.quiet || trainer->shard)
        return;
    fprintf(stderr, "%s step %llu/%llu loss %.4f %.1f ms %.1f MiB\n",
            train_options_choice("model", trainer->options.model, model, sizeof(model)),
            (unsigned long long)report->step, (unsigned long long)trainer->options.steps,
            (double)trainer->loss_last, steps > 0.0 ? 1e3 * seconds / steps : 0.0,
            (double)supply_held(trainer->supply) / mib);
}

enum status trainer_read_reports(struct trainer *trainer, bool wait)
{
    /* The oldest first. */
    for (unsigned i = 0; i < TRAINER_REPORTS; i++) {
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
        trainer->loss_last = report->totals[TOTAL_LOSS] / report->totals[TOTAL_ROWS];
        if (report->step == trainer->first_step + 1)
            trainer->loss_first = trainer->loss_last;
        print_report(trainer, report);
    }
    return STATUS_OK;
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
    const struct train_options *options = &trainer->options;
    double ms = trainer_step_ms(trainer);
    uint64_t shards = trainer->shards ? trainer->shards : 1;

    return ms > 0.0 ? 1e3 * (double)(options->batch * options->accumulate * shards) / ms : 0.0;
}

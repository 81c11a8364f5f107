/* The loop around the step: progress, the clock, validation and checkpoints. */
#include "harness/train/trainer.h"

#include <stdio.h>
#include <string.h>

#include "harness/train/checkpoint.h"

enum {
    SYNTHETIC_VAL_BATCHES = 4,
    TRIAL_VAL_BATCHES = INPUT_SETS + 1 /* each set of buffers once, and the last, shorter batch */
};

/* ---- progress ---- */

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

/* ---- validation ---- */

static enum status evaluate_batch(struct trainer *trainer, struct input *input, struct input_set *set,
                                  const struct tensor *totals)
{
    struct model *model = &trainer->model;
    const struct value *output = &model->values[model->output];
    struct model_targets targets;
    enum status status = input_prepare(input, set, &targets);

    if (!status)
        status = model_forward(model, &targets);
    if (!status)
        status = MODEL_OP(model, evaluate, .losses = model->losses.data,
                          .logits = model->loss == LOSS_CLASSES ? output->data.data : NULL,
                          .labels = targets.labels, .total = totals->data, .type = model->type,
                          .rows = model_loss_rows(model), .cols = output->c);
    if (!status)
        status = model_end(model);
    return status ? status : input_done(input, set);
}

static enum status evaluate_all(struct trainer *trainer, struct input *input, uint64_t batch,
                                const struct tensor *totals)
{
    const struct train_options *options = &trainer->options;
    uint64_t rest = dataset_spec(trainer->dataset)->count[DATA_VALIDATION] % batch;
    uint64_t most = options->val_batches;
    enum status status = STATUS_OK;

    if (!most)
        most = options->data ? UINT64_MAX : SYNTHETIC_VAL_BATCHES;
    if (trainer->trial && most > TRIAL_VAL_BATCHES)
        most = TRIAL_VAL_BATCHES;
    for (uint64_t i = 0; i < most && !status; i++) {
        struct input_part part = {.count = trainer->trial && i + 1 == TRIAL_VAL_BATCHES ? rest : 0};
        struct input_set *set = NULL;

        status = input_prefetch(input, &part);
        if (!status)
            status = input_take(input, &set);
        if (status || !set)
            break;
        status = evaluate_batch(trainer, input, set, totals);
    }
    return status;
}

static enum status read_totals(struct trainer *trainer, const struct tensor *totals,
                               struct trainer_evaluation *evaluation)
{
    float host[TOTALS] = {0};
    enum status status = cuda_device_status(
        cudaMemcpyAsync(host, totals->data, sizeof(host), cudaMemcpyDeviceToHost, trainer->device->stream),
        "copying the losses");

    if (!status)
        status =
            cuda_device_status(cudaStreamSynchronize(trainer->device->stream), "waiting for a validation");
    if (host[TOTAL_ROWS] > 0.0f) {
        evaluation->loss = (double)host[TOTAL_LOSS] / (double)host[TOTAL_ROWS];
        evaluation->accuracy =
            trainer->model.loss == LOSS_CLASSES ? (double)host[TOTAL_RIGHT] / (double)host[TOTAL_ROWS] : -1.0;
        evaluation->rows = (uint64_t)host[TOTAL_ROWS];
    }
    return status;
}

/* In static mode a larger batch would replace memory whose address is in a captured graph. */
static uint64_t validation_batch(const struct train_options *options)
{
    bool fixed = options->graph && options->alloc == ALLOC_STATIC;

    if (!options->val_batch || (fixed && options->val_batch > options->batch))
        return options->batch;
    return options->val_batch;
}

enum status trainer_evaluate(struct trainer *trainer, struct trainer_evaluation *evaluation)
{
    const struct train_options *options = &trainer->options;
    struct pipeline_config config = {
        .split = DATA_VALIDATION,
        .batch = validation_batch(options),
        .seed = options->seed,
        .once = true,
        .prepare = options->val_preprocess == PREPROCESS_CPU ? PREPARE_CPU : PREPARE_GPU,
        .workers = (int)options->workers,
        .prefetch = (int)options->prefetch,
        .budget = options->data_budget,
    };
    struct input input = {0};
    struct tensor totals = {0};
    enum status status = STATUS_OK;

    *evaluation = (struct trainer_evaluation){.accuracy = -1.0};
    if (!dataset_spec(trainer->dataset)->count[DATA_VALIDATION])
        return STATUS_OK;
    trainer->model.training = false;
    trainer->model.micro = 0;
    status = input_open(&input, &trainer->model, trainer->dataset, &config);
    if (!status)
        status = mem_need(&trainer->mem, &totals, TOTALS * sizeof(float), MEM_WORKSPACE);
    if (!status)
        status = MODEL_OP(&trainer->model, fill, .out = totals.data, .type = OPS_F32, .count = TOTALS);
    if (!status)
        status = evaluate_all(trainer, &input, config.batch, &totals);
    if (!status)
        status = read_totals(trainer, &totals, evaluation);
    if (!status && evaluation->rows && (trainer->val_best <= 0.0 || evaluation->loss < trainer->val_best))
        trainer->val_best = evaluation->loss;
    if (status)
        cudaStreamSynchronize(trainer->device->stream);
    input_close(&input);
    mem_drop(&trainer->mem, &totals);
    return status;
}

/* ---- the run ---- */

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

/* Validation with the current weights. */
#include "harness/train/trainer.h"

#include <math.h>

#include "harness/train/stop.h"

enum {
    SYNTHETIC_VAL_BATCHES = 4,
    TRIAL_VAL_BATCHES = INPUT_SETS + 1, /* each set of buffers once, and the last, shorter batch */
    MOST_ROWS = 1 << 20 /* that the device counts in floats, one by one: they stand still at 2^24 */
};

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

/* Adds what the device has counted to `sums`, and lets it begin again. */
static enum status take_totals(struct trainer *trainer, const struct tensor *totals, double sums[TOTALS])
{
    float host[TOTALS] = {0};
    enum status status =
        cuda_device_read(trainer->device, host, totals->data, sizeof(host), "waiting for a validation");

    for (int i = 0; i < TOTALS; i++)
        sums[i] += (double)host[i];
    return status ? status
                  : MODEL_OP(&trainer->model, fill, .out = totals->data, .type = OPS_F32, .count = TOTALS);
}

static enum status evaluate_all(struct trainer *trainer, struct input *input, uint64_t batch,
                                const struct tensor *totals, double sums[TOTALS])
{
    const struct train_options *options = &trainer->options;
    uint64_t samples = dataset_spec(trainer->dataset)->count[DATA_VALIDATION];
    uint64_t rest = samples % batch;
    uint64_t all = (samples + batch - 1) / batch;
    uint64_t most = options->val_batches;
    int64_t rows = 0; /* in the totals */
    enum status status = STATUS_OK;

    if (!most)
        most = options->data ? UINT64_MAX : SYNTHETIC_VAL_BATCHES;
    if (trainer->trial && most > TRIAL_VAL_BATCHES)
        most = TRIAL_VAL_BATCHES;
    for (uint64_t i = 0; i < most && !status && !stop_signal(); i++) {
        struct input_part part = {.count = trainer->trial && i + 1 == TRIAL_VAL_BATCHES ? rest : 0};
        struct input_set *set = NULL;

        status = input_prefetch(input, &part);
        if (!status)
            status = input_take(input, &set);
        if (status || !set)
            break;
        status = evaluate_batch(trainer, input, set, totals);
        rows += model_loss_rows(&trainer->model);
        if (!status && rows >= MOST_ROWS) {
            status = take_totals(trainer, totals, sums);
            rows = 0;
        }
        if (!trainer->shard && !trainer->trial)
            progress_validating(&trainer->progress, i + 1, most < all ? most : all);
    }
    return status ? status : take_totals(trainer, totals, sums);
}

static void conclude(const struct trainer *trainer, const double sums[TOTALS],
                     struct trainer_evaluation *evaluation)
{
    if (sums[TOTAL_ROWS] <= 0.0)
        return;
    evaluation->loss = sums[TOTAL_LOSS] / sums[TOTAL_ROWS];
    evaluation->accuracy = trainer->model.loss == LOSS_CLASSES ? sums[TOTAL_RIGHT] / sums[TOTAL_ROWS] : -1.0;
    evaluation->rows = (uint64_t)sums[TOTAL_ROWS];
}

/* In static mode a larger batch would replace memory whose address is in a captured graph. */
static uint64_t validation_batch(const struct train_options *options)
{
    bool fixed = options->graph && options->alloc == ALLOC_STATIC;

    if (!options->val_batch || (fixed && options->val_batch > options->batch))
        return options->batch;
    return options->val_batch;
}

/* Keeps the best loss. One that is not finite ends the training as a step's does. */
static enum status note_loss(struct trainer *trainer, struct trainer_evaluation *evaluation)
{
    uint64_t on_nan = trainer->options.on_nan;
    bool ends;

    if (isfinite(evaluation->loss)) {
        evaluation->best = trainer->val_best <= 0.0 || evaluation->loss < trainer->val_best;
        if (evaluation->best)
            trainer->val_best = evaluation->loss;
        return STATUS_OK;
    }
    /* skip: such updates were left out, but what is left at the end is of no use. */
    ends = on_nan == ON_NAN_STOP || (on_nan == ON_NAN_SKIP && trainer->step >= trainer->options.steps);
    if (!ends || trainer->trial)
        return STATUS_OK;
    return status_fail(STATUS_NOT_FINITE, "the validation loss at step %llu is not finite (see --on-nan)",
                       (unsigned long long)trainer->step);
}

/* Returns how the data of validations is read. A second validation finds decoded samples in the cache. The
 * batches of --val-batches are chosen at random, the same each time, because files are in the order of
 * classes. */
static struct pipeline_config configure(const struct train_options *options)
{
    bool part = options->data && options->val_batches;
    bool again = options->validate_every || options->prune > 0.0 || options->quantize != QUANTIZE_NONE;

    return (struct pipeline_config){
        .split = DATA_VALIDATION,
        .batch = validation_batch(options),
        .seed = options->seed,
        .once = true,
        .shuffle = part ? UINT64_MAX : 0,
        .prepare = options->val_preprocess == PREPROCESS_CPU ? PREPARE_CPU : PREPARE_GPU,
        .workers = (int)options->workers,
        .prefetch = (int)options->prefetch,
        .budget = options->data_budget,
        .cache = again ? options->val_cache : 0,
    };
}

enum status trainer_check_validation(struct trainer *trainer)
{
    struct pipeline_config config = configure(&trainer->options);

    if (!dataset_spec(trainer->dataset)->count[DATA_VALIDATION])
        return STATUS_OK;
    config.coded = trainer->input.decoder;
    return pipeline_check(trainer->dataset, &config);
}

/* Opens the data of validations, or goes back to its start. */
static enum status begin_pass(struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;
    struct pipeline_config config = configure(options);

    if (trainer->val_input.feed)
        return input_seek(&trainer->val_input, &(struct pipeline_position){.seed = options->seed});
    return input_open(&trainer->val_input, &trainer->model, trainer->dataset, &config,
                      (enum decode_place)options->decode);
}

/* Says where memory ran out, what needs less, and that the steps are not lost. */
static void explain_no_memory(const struct trainer *trainer)
{
    const char *save = trainer->saved_step == trainer->step ? trainer->options.save : NULL;

    status_fail(STATUS_NO_MEMORY,
                "that was in the validation at step %llu, with batches of %llu: a smaller --val-batch or "
                "--val-preprocess=cpu needs less%s%s%s",
                (unsigned long long)trainer->step, (unsigned long long)validation_batch(&trainer->options),
                save ? "; go on with --resume=" : "", save ? save : "", save ? ", it has all steps" : "");
}

enum status trainer_evaluate(struct trainer *trainer, struct trainer_evaluation *evaluation)
{
    struct input *input = &trainer->val_input;
    struct tensor totals = {0};
    double sums[TOTALS] = {0};
    enum status status = STATUS_OK;

    *evaluation = (struct trainer_evaluation){.accuracy = -1.0};
    if (!dataset_spec(trainer->dataset)->count[DATA_VALIDATION])
        return STATUS_OK;
    trainer->validating = true;
    trainer->model.training = false;
    trainer->model.micro = 0;
    status = begin_pass(trainer);
    if (!status)
        status = mem_need(&trainer->mem, &totals, TOTALS * sizeof(float), MEM_WORKSPACE);
    if (!status)
        status = MODEL_OP(&trainer->model, fill, .out = totals.data, .type = OPS_F32, .count = TOTALS);
    if (!status)
        status = evaluate_all(trainer, input, validation_batch(&trainer->options), &totals, sums);
    conclude(trainer, sums, evaluation);
    if (stop_signal()) /* it may not have seen all samples */
        evaluation->rows = 0;
    if (!status && evaluation->rows)
        status = note_loss(trainer, evaluation);
    if (status == STATUS_NO_MEMORY && !trainer->trial)
        explain_no_memory(trainer);
    if (status) {
        cudaStreamSynchronize(trainer->device->stream);
        input_close(input);
    } else {
        input_drop(input); /* the device memory; threads, pinned buffers and cache stay */
    }
    mem_drop(&trainer->mem, &totals);
    trainer->validating = status != STATUS_OK;
    return status;
}

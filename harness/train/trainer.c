/* Opening and closing a training, and its step: eager, or captured once and replayed. */
#include "harness/train/trainer.h"

#include <math.h>
#include <string.h>

#include "harness/model/flops.h"
#include "harness/train/checkpoint.h"

/* ---- opening ---- */

static enum status open_dataset(struct dataset **out, const struct train_options *options)
{
    struct data_config config = {
        .path = options->data,
        .format = (enum data_format)options->format,
        .kind = net_data_kind(options),
        .image = (int)options->image,
        .raw = (int)options->raw,
        .length = (int)options->length,
        .classes = (int)(net_data_kind(options) == DATA_TOKENS ? options->vocabulary : options->classes),
        .samples = options->samples,
        .validation = options->validation,
        .no_validation = options->validation <= 0.0,
        .seed = options->seed,
        .corrupt = (enum data_corrupt)options->corrupt,
    };

    return dataset_open(out, &config);
}

enum status trainer_open_dataset(struct dataset **out, const struct train_options *options)
{
    struct train_options filled = *options;
    enum status status = net_fill_options(&filled);

    return status ? status : open_dataset(out, &filled);
}

/* Nothing is trained, and the weights will come as bytes: no room is needed for floats. */
static bool comes_packed(const struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;

    return options->resume && !options->steps && !options->find_batch && !options->auto_accum &&
           trainer->shards <= 1 && checkpoint_is_int8(options->resume);
}

static enum status open_model(struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;
    static const enum ops_type types[] = {OPS_F32, OPS_F32, OPS_BF16, OPS_F16};
    struct model_config config = {
        .device = trainer->device,
        .mem = &trainer->mem,
        .type = types[options->precision],
        .tf32 = options->precision == PRECISION_TF32,
        .checkpointing = options->checkpoint_activations,
        .blank = trainer->trial,
        .packed = comes_packed(trainer),
        .seed = options->seed,
    };
    struct data_spec spec = *dataset_spec(trainer->dataset);
    enum status status;

    if (spec.kind == DATA_TOKENS && (uint64_t)spec.vocabulary > options->vocabulary)
        return status_fail(STATUS_USAGE, "--vocabulary=%llu: the tokens of %s need %d",
                           (unsigned long long)options->vocabulary, options->data, spec.vocabulary);
    /* The vocabulary may be larger than the text needs: round sizes are faster. */
    if (spec.kind == DATA_TOKENS && (uint64_t)spec.vocabulary < options->vocabulary)
        spec.vocabulary = (int)options->vocabulary;
    trainer->device->ops->tune = options->tune;
    model_open(&trainer->model, &config);
    status = net_build(&trainer->model, options, &spec);
    if (!status && !(model_can_hold(&trainer->model, options->batch) &&
                     model_can_hold(&trainer->model, options->val_batch)))
        status = status_fail(
            STATUS_USAGE,
            "--batch=%llu: so many samples of this size have more than 2^31 positions; "
            "use less, and --accumulate",
            (unsigned long long)(options->batch > options->val_batch ? options->batch : options->val_batch));
    return status;
}

static enum status open_input(struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;
    struct pipeline_config config = {
        .split = DATA_TRAIN,
        .batch = options->batch,
        .seed = options->seed,
        .augment = options->augment != AUGMENT_OFF,
        .prepare = options->augment == AUGMENT_CPU ? PREPARE_CPU : PREPARE_GPU,
        .shuffle = options->shuffle,
        .workers = (int)options->workers,
        .prefetch = (int)options->prefetch,
        .budget = options->data_budget,
        .cache = options->data_cache,
        .shard = trainer->shard,
        .shards = trainer->shards,
    };

    return input_open(&trainer->input, &trainer->model, trainer->dataset, &config,
                      (enum decode_place)options->decode);
}

static enum status open_reports(struct trainer *trainer)
{
    enum status status = STATUS_OK;

    for (int i = 0; i < TRAINER_REPORTS && !status; i++) {
        struct trainer_report *report = &trainer->report[i];

        status = cuda_device_status(cudaMallocHost((void **)&report->figures, sizeof(*report->figures)),
                                    "pinned memory for the losses");
        if (!status)
            status = cuda_device_status(cudaEventCreate(&report->done), "creating an event");
    }
    if (!status)
        status = cuda_device_status(cudaEventCreate(&trainer->start), "creating an event");
    if (!status)
        status = cuda_device_status(cudaEventCreate(&trainer->stop), "creating an event");
    return status;
}

/* Opens everything that takes device memory. */
static enum status open_run(struct trainer *trainer)
{
    enum status status = open_model(trainer);

    if (!status)
        status = optim_open(&trainer->optim, &trainer->options, &trainer->model);
    if (!status)
        status = mem_need(&trainer->mem, &trainer->totals, TOTALS * sizeof(float), MEM_OPTIMIZER);
    /* The averaged gradients are the same for all replicas, the losses are not: they must not decide about an
     * update. */
    trainer->optim.loss = trainer->totals.data;
    trainer->optim.skip_loss = trainer->options.on_nan == ON_NAN_SKIP && trainer->shards <= 1;
    if (!status)
        status = open_reports(trainer);
    if (!status)
        status = open_input(trainer);
    return status ? status : trainer_check_validation(trainer);
}

static void close_reports(struct trainer *trainer)
{
    for (int i = 0; i < TRAINER_REPORTS; i++) {
        if (trainer->report[i].done)
            cudaEventDestroy(trainer->report[i].done);
        if (trainer->report[i].figures)
            cudaFreeHost(trainer->report[i].figures);
    }
    if (trainer->start)
        cudaEventDestroy(trainer->start);
    if (trainer->stop)
        cudaEventDestroy(trainer->stop);
    memset(trainer->report, 0, sizeof(trainer->report));
    trainer->start = trainer->stop = trainer->mark = NULL;
}

static void drop_graphs(struct trainer *trainer)
{
    for (int i = 0; i < TRAINER_GRAPHS; i++) {
        if (trainer->graph[i])
            cudaGraphExecDestroy(trainer->graph[i]);
        trainer->graph[i] = NULL;
    }
    supply_pin(trainer->supply, false);
}

static void close_run(struct trainer *trainer)
{
    /* After a failure, queued work may still use the buffers. */
    cudaStreamSynchronize(trainer->device->stream);
    drop_graphs(trainer);
    input_close(&trainer->val_input);
    input_close(&trainer->input);
    close_reports(trainer);
    optim_close(&trainer->optim);
    model_close(&trainer->model);
    mem_drop(&trainer->mem, &trainer->totals);
}

enum status trainer_open(struct trainer *trainer, const struct train_options *options,
                         struct cuda_device *device, struct supply *supply, uint64_t shard, uint64_t shards)
{
    return trainer_open_shard(trainer, options, device, supply,
                              &(struct trainer_shard){.index = shard, .count = shards});
}

enum status trainer_open_shard(struct trainer *trainer, const struct train_options *options,
                               struct cuda_device *device, struct supply *supply,
                               const struct trainer_shard *shard)
{
    enum status status;

    memset(trainer, 0, sizeof(*trainer));
    trainer->options = *options;
    trainer->loss_first = trainer->loss_last = NAN; /* until a step is done */
    trainer->device = device;
    trainer->supply = supply;
    trainer->shard = shard->index;
    trainer->shards = shard->count;
    trainer->dataset = shard->dataset;
    trainer->shares_dataset = shard->dataset;
    mem_open(&trainer->mem, supply, device->stream);
    status = net_fill_options(&trainer->options);
    if (!status && !trainer->dataset)
        status = open_dataset(&trainer->dataset, &trainer->options);
    if (!status && options->save_best && !dataset_spec(trainer->dataset)->count[DATA_VALIDATION])
        status =
            status_fail(STATUS_USAGE, "--save-best compares validations, and no sample is left for them: "
                                      "see --validation and --samples");
    if (!status)
        status = profile_open(&trainer->profile, &trainer->options, &trainer->model, trainer->shard);
    return status ? status : open_run(trainer);
}

enum status trainer_reopen(struct trainer *trainer, uint64_t batch, uint64_t accumulate)
{
    enum status status;

    close_run(trainer);
    trainer->options.batch = batch;
    trainer->options.accumulate = accumulate;
    trainer->step = trainer->micro = trainer->first_micro = 0;
    trainer->timing = false;
    status = supply_trim(trainer->supply, trainer->device->stream);
    return status ? status : open_run(trainer);
}

enum status trainer_forget_steps(struct trainer *trainer)
{
    enum status status =
        cuda_device_status(cudaStreamSynchronize(trainer->device->stream), "waiting for the last step");

    drop_graphs(trainer);
    model_drop_all(&trainer->model);
    return status ? status : supply_trim(trainer->supply, trainer->device->stream);
}

void trainer_close(struct trainer *trainer)
{
    if (!trainer->device)
        return;
    /* Queued work may still record its events. */
    cudaStreamSynchronize(trainer->device->stream);
    profile_close(trainer->profile);
    close_run(trainer);
    if (trainer->dataset && !trainer->shares_dataset)
        dataset_close(trainer->dataset);
    memset(trainer, 0, sizeof(*trainer));
}

/* ---- the step ---- */

/* --vary: chooses how much of a batch to use, from a quarter to all. Depends on the seed and the step only.
 */
static struct input_part part_of(const struct trainer *trainer, uint64_t micro)
{
    enum { QUARTERS = 4 };
    struct rng rng = rng_derive(trainer->options.seed + 1, micro);
    uint64_t batch = trainer->options.batch;
    uint64_t length = (uint64_t)dataset_spec(trainer->dataset)->length;

    if (!trainer->options.vary)
        return (struct input_part){0};
    return (struct input_part){
        .count = batch / QUARTERS + rng_below(&rng, batch - batch / QUARTERS) + 1,
        .length = length ? (int)(length / QUARTERS + rng_below(&rng, length - length / QUARTERS) + 1) : 0,
    };
}

/* Queues the average over replicas and the update. */
static enum status end_step(struct trainer *trainer, bool capturing)
{
    enum status status = STATUS_OK;

    trainer->model.place = (struct model_place){PASS_AVERAGE, NO_VALUE};
    if (trainer->reduce.run)
        status = trainer->reduce.run(trainer->reduce.owner, &trainer->model);
    trainer->model.place.pass = PASS_UPDATE;
    return status ? status : optim_update(&trainer->optim, capturing);
}

/* Returns true if the end of a step is part of its graph. */
static bool captures_end(const struct trainer *trainer)
{
    return !trainer->reduce.run || trainer->reduce.captures;
}

/* Queues all work on one batch, including the update if it is the last of a step. */
static enum status run_batch(struct trainer *trainer, struct input_set *set, bool first, bool last,
                             bool capturing)
{
    struct model *model = &trainer->model;
    bool scaled = trainer->options.precision == PRECISION_FP16;
    struct model_targets targets;
    float scale;
    enum status status = STATUS_OK;

    model->place = (struct model_place){PASS_INPUT, NO_VALUE};
    if (first)
        status = MODEL_OP(model, fill, .out = trainer->totals.data, .type = OPS_F32, .count = TOTALS);
    model->training = true;
    /* Makes dropout differ between replicas and between the parts of a step. */
    model->micro =
        trainer->micro % trainer->options.accumulate + trainer->shard * trainer->options.accumulate;
    if (!status)
        status = input_prepare(&trainer->input, set, &targets);
    if (!status)
        status = model_forward(model, &targets);
    if (!status)
        status = MODEL_OP(model, evaluate, .losses = model->losses.data, .labels = targets.labels,
                          .total = trainer->totals.data, .type = model->type, .rows = model_loss_rows(model),
                          .cols = model->values[model->output].c);
    model->listener =
        (struct model_listener){last ? trainer->reduce.layer_done : NULL, trainer->reduce.owner};
    scale = 1.0f / ((float)model_loss_rows(model) * (float)trainer->options.accumulate);
    if (!status)
        status =
            model_backward(model, &targets, scale, scaled ? &optim_scalars(&trainer->optim)->scale : NULL);
    if (!status)
        status = model_end(model);
    if (!status && last && (!capturing || captures_end(trainer)))
        status = end_step(trainer, capturing);
    return status;
}

static enum status capture(struct trainer *trainer, struct input_set *set, bool first, bool last,
                           cudaGraphExec_t *out)
{
    cudaStream_t stream = trainer->device->stream;
    cudaGraph_t graph = NULL;
    enum status status = cuda_device_status(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed),
                                            "starting a capture");
    enum status ended;

    if (status)
        return status;
    status = run_batch(trainer, set, first, last, true);
    ended = cuda_device_status(cudaStreamEndCapture(stream, &graph), "ending a capture");
    status = status ? status : ended;
    if (!status)
        status = cuda_device_status(cudaGraphInstantiate(out, graph, 0), "making a graph of a step");
    if (graph)
        cudaGraphDestroy(graph);
    supply_pin(trainer->supply, true);
    return status;
}

/* One graph per set of input buffers and part of an accumulated step. The first batches run without a
 * graph, so that all memory has been taken before a capture. */
static enum status run_graph(struct trainer *trainer, struct input_set *set, bool first, bool last)
{
    size_t which = (size_t)(set - trainer->input.set) + (first ? 2u : 0u) + (last ? 4u : 0u);
    enum status status = STATUS_OK;

    if (trainer->micro < trainer->graph_from || trainer_is_profiled(trainer))
        return run_batch(trainer, set, first, last, false);
    if (!trainer->graph[which])
        status = capture(trainer, set, first, last, &trainer->graph[which]);
    if (!status)
        status = cuda_device_status(cudaGraphLaunch(trainer->graph[which], trainer->device->stream),
                                    "starting a graph");
    if (!status && last && !captures_end(trainer))
        status = end_step(trainer, false);
    return status;
}

/* Counts this batch and what it needs; what a sample needs changes only with its length. */
static void count_batch(struct trainer *trainer, const struct input_set *set)
{
    if (trainer->sample_flops <= 0.0 || trainer->flops_length != set->length) {
        struct flops flops = flops_of_sample(&trainer->model, set->length);

        trainer->sample_flops = (double)flops.forward + (double)flops.backward;
        trainer->flops_length = set->length;
    }
    trainer->step_flops += trainer->sample_flops * (double)set->count;
    trainer->samples += set->count;
    trainer->tokens += set->count * (uint64_t)set->length;
}

static enum status step_batch(struct trainer *trainer, bool first, bool last)
{
    struct input_part part = part_of(trainer, trainer->micro);
    struct input_part next = part_of(trainer, trainer->micro + 1);
    struct input_set *set = NULL;
    enum status status = input_prefetch(&trainer->input, &part);

    if (!status)
        status = input_take(&trainer->input, &set);
    if (!status)
        count_batch(trainer, set);
    /* The copy of the next batch overlaps the work on this one. */
    if (!status)
        status = input_prefetch(&trainer->input, &next);
    if (!status)
        status = trainer->options.graph ? run_graph(trainer, set, first, last)
                                        : run_batch(trainer, set, first, last, false);
    if (!status && !trainer->options.graph && !trainer->keep_input)
        status = input_done(&trainer->input, set);
    trainer->micro++;
    return status;
}

enum status trainer_step(struct trainer *trainer)
{
    uint64_t parts = trainer->options.accumulate;
    struct profile *profile = trainer->trial ? NULL : trainer->profile;
    uint64_t left = trainer->options.steps - trainer->step;
    uint64_t before = trainer->samples;
    enum status status = profile_begin_step(profile, trainer->step, left);

    if (!status)
        status = optim_set_rate(&trainer->optim, optim_rate(&trainer->options, trainer->step));
    if (!trainer_is_good(trainer))
        return STATUS_FAILED;
    if (trainer->options.graph) {
        trainer->graph_from = trainer->first_micro + INPUT_SETS * parts;
        trainer->optim.keep_grads = true;
    }
    trainer->step_flops = 0.0;
    for (uint64_t i = 0; i < parts && !status; i++)
        status = step_batch(trainer, i == 0, i + 1 == parts);
    if (!status)
        status = profile_end_step(profile, left - 1);
    if (status)
        return status;
    trainer->step++;
    trainer->timed_steps += trainer->timing;
    trainer->timed_samples += trainer->timing ? trainer->samples - before : 0;
    trainer->timed_flops += trainer->timing ? trainer->step_flops : 0.0;
    return trainer_reports_now(trainer) ? trainer_queue_report(trainer) : STATUS_OK;
}

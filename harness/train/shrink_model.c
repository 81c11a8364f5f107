/* Pruning and quantization, of matrices only: biases and norms are small and sensitive. Pruned weights stay
 * floats on the device, zeros included, and products compute with them; their reported size is what the file
 * takes. Quantized ones are bytes on the device (param_pack) and in the file; their size is from the memory
 * accounting. The trained weights are lost: this runs last. */
#include "harness/train/shrink_model.h"

#include <stdio.h>

#include "harness/train/checkpoint.h"
#include "harness/train/prune_model.h"
#include "harness/train/stop.h"
#include "harness/train/trainer.h"

struct footprint {
    struct trainer_evaluation evaluation;
    uint64_t parameters; /* bytes */
    size_t held;         /* bytes held from the device, all kinds together */
    size_t workspace;    /* peak during the evaluation, including unpacked weights */
};

/* Validates. A validation that a signal interrupts has not seen all samples, and is no result. */
static enum status evaluate(struct trainer *trainer, struct trainer_evaluation *evaluation)
{
    enum status status = trainer_evaluate(trainer, evaluation);

    progress_clear(&trainer->progress);
    if (!status && stop_signal())
        status =
            status_fail(STATUS_STOPPED, "ended by %s before the smaller model was evaluated", stop_name());
    return status;
}

/* Packs every matrix and gives the freed memory back to the device. */
static enum status pack_all(struct trainer *trainer)
{
    struct model *model = &trainer->model;
    enum status status = STATUS_OK;

    for (int p = 0; p < model->param_count && !status; p++) {
        if (param_can_pack(&model->params[p]) && !model->params[p].bytes.data)
            status = param_pack(&model->params[p], trainer->device, model->mem);
    }
    return status ? status : trainer_forget_steps(trainer);
}

static void say(const struct trainer *trainer, const char *what, const struct footprint *before,
                const struct footprint *after)
{
    const double kib = 1024.0;

    if (trainer->options.quiet)
        return;
    fprintf(stderr, "%s: parameters %.1f KiB before, %.1f KiB after", what, (double)before->parameters / kib,
            (double)after->parameters / kib);
    if (before->evaluation.rows)
        fprintf(stderr, "; loss %.4f before, %.4f after", before->evaluation.loss, after->evaluation.loss);
    if (before->evaluation.accuracy >= 0.0)
        fprintf(stderr, "; accuracy %.4f before, %.4f after", before->evaluation.accuracy,
                after->evaluation.accuracy);
    fputc('\n', stderr);
}

static void print_rest(const struct footprint *before, const struct footprint *after)
{
    printf(" bytes_before=%llu bytes_after=%llu", (unsigned long long)before->parameters,
           (unsigned long long)after->parameters);
    if (before->evaluation.rows)
        printf(" val_loss_before=%.6g val_loss_after=%.6g", before->evaluation.loss, after->evaluation.loss);
    if (before->evaluation.accuracy >= 0.0)
        printf(" accuracy_before=%.5f accuracy_after=%.5f", before->evaluation.accuracy,
               after->evaluation.accuracy);
}

/* Ends the result line with the size of the file that was written, if one was. */
static void print_file(const struct trainer *trainer, uint64_t bytes)
{
    if (trainer->options.save)
        printf(" file_bytes=%llu", (unsigned long long)bytes);
    putchar('\n');
}

/* Trains on for --prune-steps steps; updates keep the zeros. Without a graph: those of the training were
 * captured with other tables of parameters. */
static enum status tune(struct trainer *trainer)
{
    enum status status = trainer_forget_steps(trainer);

    trainer->options.graph = false;
    trainer->options.steps = trainer->step + trainer->options.prune_steps;
    while (trainer->step < trainer->options.steps && !status && !stop_signal()) {
        status = trainer_step(trainer);
        if (!status)
            status = trainer_read_reports(trainer, false);
    }
    return status ? status : trainer_read_reports(trainer, true);
}

static void print_tuned(const struct trainer *trainer, const struct trainer_evaluation *tuned)
{
    printf(" tune_steps=%llu", (unsigned long long)trainer->options.prune_steps);
    if (tuned->rows)
        printf(" val_loss_tuned=%.6g", tuned->loss);
    if (tuned->accuracy >= 0.0)
        printf(" accuracy_tuned=%.5f", tuned->accuracy);
}

static void say_pruned(const struct trainer *trainer, const struct prune_model_sizes *sizes,
                       const struct footprint *before, const struct footprint *after,
                       const struct trainer_evaluation *tuned)
{
    if (trainer->options.quiet)
        return;
    say(trainer, "prune", before, after);
    if (trainer->options.prune_steps && tuned->rows)
        fprintf(stderr, "prune: loss %.4f after %llu more steps with the zeros kept\n", tuned->loss,
                (unsigned long long)trainer->options.prune_steps);
    fprintf(
        stderr,
        "prune: %.1f %% of the matrices are zero. This is a study of what that costs: memory and products "
        "on the device stay dense, only a file is smaller\n",
        sizes->weights ? 100.0 * (double)sizes->zeros / (double)sizes->weights : 0.0);
}

static enum status prune(struct trainer *trainer)
{
    struct trainer_evaluation tuned = {.accuracy = -1.0};
    struct footprint before = {0}, after = {0};
    struct prune_model_sizes sizes = {0};
    uint64_t file_bytes = 0;
    char pattern[16];
    enum status status = evaluate(trainer, &before.evaluation);

    if (!status)
        status = prune_model(trainer);
    if (!status)
        status = evaluate(trainer, &after.evaluation);
    if (!status && trainer->options.prune_steps)
        status = tune(trainer);
    if (!status && trainer->options.prune_steps)
        status = evaluate(trainer, &tuned);
    if (!status)
        status = prune_model_count(trainer, &sizes);
    if (!status && trainer->options.save)
        status = checkpoint_save_small(trainer, true, &file_bytes);
    if (status)
        return status;
    before.parameters = sizes.dense;
    after.parameters = sizes.sparse;
    printf("shrink=prune pattern=%s fraction=%g zeros=%.4f products=dense",
           train_options_choice("prune-pattern", trainer->options.prune_pattern, pattern, sizeof(pattern)),
           trainer->options.prune, sizes.weights ? (double)sizes.zeros / (double)sizes.weights : 0.0);
    print_rest(&before, &after);
    if (trainer->options.prune_steps)
        print_tuned(trainer, &tuned);
    print_file(trainer, file_bytes);
    say_pruned(trainer, &sizes, &before, &after, &tuned);
    return STATUS_OK;
}

/* Validates, and records the device memory in use. */
static enum status measure(struct trainer *trainer, struct footprint *footprint)
{
    enum status status;

    footprint->parameters = trainer->mem.live[MEM_PARAMETERS];
    footprint->held = supply_held(trainer->supply);
    trainer->mem.peak[MEM_WORKSPACE] = trainer->mem.live[MEM_WORKSPACE];
    status = evaluate(trainer, &footprint->evaluation);
    footprint->workspace = trainer->mem.peak[MEM_WORKSPACE];
    return status;
}

static enum status quantize(struct trainer *trainer)
{
    struct footprint before, after;
    uint64_t file_bytes = 0;
    /* The graphs of the steps read the weights, and pin the memory that is to be given back. */
    enum status status = trainer_forget_steps(trainer);

    if (!status)
        status = measure(trainer, &before);
    if (!status)
        status = pack_all(trainer);
    if (!status)
        status = measure(trainer, &after);
    if (!status && trainer->options.save)
        status = checkpoint_save_small(trainer, false, &file_bytes);
    if (status == STATUS_NO_MEMORY)
        status_fail(status, "--quantize=int8: the training is done, but its evaluation ran out of memory");
    if (status)
        return status;
    printf("shrink=int8");
    print_rest(&before, &after);
    printf(" held_before=%zu held_after=%zu workspace_before=%zu workspace_after=%zu", before.held,
           after.held, before.workspace, after.workspace);
    print_file(trainer, file_bytes);
    say(trainer, "int8", &before, &after);
    return STATUS_OK;
}

enum status shrink_model_evaluate(struct trainer *trainer)
{
    enum status status = STATUS_OK;

    if (trainer->options.prune > 0.0 && trainer->small)
        return status_fail(STATUS_FAILED, "--prune starts from a full checkpoint, not from --resume=%s",
                           trainer->options.resume);
    if (trainer->options.prune > 0.0)
        status = prune(trainer);
    if (!status && trainer->options.quantize == QUANTIZE_INT8)
        status = quantize(trainer);
    return status;
}

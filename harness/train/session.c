/* One training session, and the line that reports it. */
#include "harness/train/session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/card_peak.h"
#include "harness/base/now.h"
#include "harness/train/checkpoint.h"
#include "harness/train/option_notes.h"
#include "harness/train/progress.h"
#include "harness/train/stop.h"
#include "harness/train/weights.h"

void session_read_result(struct trainer *trainer, struct session_result *result)
{
    struct ops_scalars scalars = {0};
    struct pipeline_stats stats = {0}, val_stats = {0};
    uint64_t steps = trainer->step - trainer->first_step;

    pipeline_get_stats(feed_pipeline(trainer->input.feed), &stats);
    result->corrupt = stats.corrupt;
    if (trainer->val_input.feed) {
        pipeline_get_stats(feed_pipeline(trainer->val_input.feed), &val_stats);
        result->corrupt += val_stats.corrupt;
    }
    result->format = dataset_format_name(trainer->dataset);
    result->decoder = trainer->input.decoder;
    result->decoded = trainer->input.decoded;
    result->run_steps = steps;
    result->data_wait_ms = steps ? 1e3 * stats.wait_seconds / (double)steps : 0.0;
    result->options = trainer->options;
    result->options.steps = trainer->step; /* a checkpoint may be further than --steps */
    snprintf(result->device, sizeof(result->device), "%s", trainer->device->name);
    result->loss_first = trainer->loss_first;
    result->loss_last = trainer->loss_last;
    result->val_best = trainer->val_best;
    result->unsaved = trainer->unsaved;
    result->best_unsaved = trainer->best_unsaved;
    result->saved_steps = trainer->saved_step == trainer->step;
    result->step_ms = trainer_step_ms(trainer);
    result->samples_per_s = trainer_samples_per_s(trainer);
    /* simgpu has no kernels: how fast the host is says nothing of a card. */
    result->flops_per_s = trainer->device->kernels ? trainer_flops_per_s(trainer) : 0.0;
    result->cards = 1;
    result->peak_bytes = atomic_load(&trainer->supply->budget->peak);
    memcpy(result->peak_kind, trainer->mem.peak, sizeof(result->peak_kind));
    if (cudaMemcpy(&scalars, trainer->optim.scalars.data, sizeof(scalars), cudaMemcpyDeviceToHost) ==
        cudaSuccess)
        result->skipped = scalars.skipped;
}

void session_print_summary(FILE *out, const struct session_result *result, double seconds)
{
    const double tera = 1e12;
    double peak = card_peak(result->device, (enum precision)result->options.precision);
    bool large = result->peak_bytes >= (size_t)1 << 30;
    double unit = ldexp(1.0, large ? 30 : 20);
    const char *name = large ? "GiB" : "MiB";

    fprintf(out, "\n  time        %.1f s, %llu steps\n", seconds, (unsigned long long)result->run_steps);
    if (result->run_steps)
        fprintf(out, "  speed       %.2f ms a step, %.0f samples/s, %.2f ms a step waiting for data\n",
                result->step_ms, result->samples_per_s, result->data_wait_ms);
    if (result->flops_per_s > 0.0)
        fprintf(out, "              %.1f TFLOP/s", result->flops_per_s / tera);
    if (result->flops_per_s > 0.0 && peak > 0.0)
        fprintf(out, ", %.1f %% of the card's peak", 100.0 * result->flops_per_s / peak);
    if (result->flops_per_s > 0.0)
        fputc('\n', out);
    if (result->evaluation.rows)
        fprintf(out, "  validation  loss %.4f", progress_plain(result->evaluation.loss));
    if (result->evaluation.rows && result->val_best > 0.0)
        fprintf(out, ", best %.4f", result->val_best);
    if (result->evaluation.accuracy >= 0.0)
        fprintf(out, ", accuracy %.2f %%", 100.0 * result->evaluation.accuracy);
    fprintf(out, "%s  memory      peak %.3f %s\n", result->evaluation.rows ? "\n" : "",
            (double)result->peak_bytes / unit, name);
    for (int kind = 0; kind < MEM_KIND_COUNT; kind++)
        fprintf(out, "    %-12s %9.3f %s\n", mem_kind_name((enum mem_kind)kind),
                (double)result->peak_kind[kind] / unit, name);
    fputc('\n', out);
}

void session_print_result(const struct session_result *result)
{
    const struct train_options *options = &result->options;
    char model[16], alloc[16], precision[16], speed[64];

    /* Nine digits give a float back exactly: two runs can be compared by the bits of their losses. */
    printf("model=%s alloc=%s precision=%s batch=%llu accumulate=%llu steps=%llu step_ms=%.3f "
           "samples_per_s=%.1f data_wait_ms=%.3f loss_first=%.9g loss_last=%.9g",
           train_options_choice("model", options->model, model, sizeof(model)),
           train_options_choice("alloc", options->alloc, alloc, sizeof(alloc)),
           train_options_choice("precision", options->precision, precision, sizeof(precision)),
           (unsigned long long)options->batch, (unsigned long long)options->accumulate,
           (unsigned long long)options->steps, result->step_ms, result->samples_per_s, result->data_wait_ms,
           progress_plain((double)result->loss_first), progress_plain((double)result->loss_last));
    if (result->run_steps < options->steps)
        printf(" from=%llu", (unsigned long long)(options->steps - result->run_steps));
    if (result->flops_per_s > 0.0)
        fputs(card_peak_words(result->device, (enum precision)options->precision, result->flops_per_s,
                              result->cards, speed),
              stdout);
    if (result->evaluation.rows)
        printf(" val_loss=%.6g val_best=%.6g", progress_plain(result->evaluation.loss),
               result->val_best > 0.0 ? result->val_best : (double)NAN);
    if (result->evaluation.accuracy >= 0.0)
        printf(" accuracy=%.5f", result->evaluation.accuracy);
    if (options->precision == PRECISION_FP16 || options->on_nan == ON_NAN_SKIP)
        printf(" skipped=%.0f", (double)result->skipped);
    if (result->format && !strcmp(result->format, "folder"))
        printf(" decode=%s decoded_on_gpu=%llu", result->decoder ? "gpu" : "cpu",
               (unsigned long long)result->decoded);
    if (result->corrupt)
        printf(" corrupt=%llu", (unsigned long long)result->corrupt);
    printf(" peak_bytes=%zu", result->peak_bytes);
    for (int kind = 0; kind < MEM_KIND_COUNT; kind++)
        printf(" peak_%s=%zu", mem_kind_name((enum mem_kind)kind), result->peak_kind[kind]);
    printf(" device=%s\n", result->device);
}

static enum status end_profile(const struct train_options *options, struct profile *const *profiles,
                               int count)
{
    char model[16], precision[16], title[64];
    enum status status;

    if (!options->profile)
        return STATUS_OK;
    snprintf(title, sizeof(title), "train %s %s",
             train_options_choice("model", options->model, model, sizeof(model)),
             train_options_choice("precision", options->precision, precision, sizeof(precision)));
    status = profile_write(options->profile, title, profiles, count);
    return status || options->quiet ? status : profile_print(profiles[0], stderr);
}

enum status session_finish(const struct session_result *result, struct profile *const *profiles, int count)
{
    const char *save = result->options.save;
    enum status status;

    session_print_result(result);
    status = end_profile(&result->options, profiles, count);
    if (!status && result->unsaved)
        status =
            status_fail(STATUS_UNSAVED,
                        result->saved_steps
                            ? "the loss of the last validation could not be added to %s, which has all steps"
                            : "the last checkpoint could not be written: %s, if it exists, is an older one",
                        save);
    if (!status && result->best_unsaved)
        status = status_fail(STATUS_UNSAVED,
                             "%s.best is not the checkpoint with the lowest loss: that one "
                             "could not be written",
                             save);
    return status;
}

/* Names options about validation that do nothing with this data. */
static void note_validation(const struct trainer *trainer)
{
    const struct train_options *options = &trainer->options;
    const struct data_spec *spec = dataset_spec(trainer->dataset);

    if (options->quiet || trainer->shard)
        return;
    if (options->validate_every && !spec->count[DATA_VALIDATION])
        fprintf(stderr,
                "note: --validate-every=%llu has no effect here: no sample is left for validation "
                "(see --validation and --samples)\n",
                (unsigned long long)options->validate_every);
    if (options->data && spec->kind != DATA_TOKENS && !spec->divided && spec->count[DATA_VALIDATION])
        option_notes_unused(options, "validation", "data without a part for validation", stderr);
}

enum status session_run(struct trainer *trainer, struct session_result *result)
{
    const struct train_options *options = &trainer->options;
    double start = now_s();
    enum status status = STATUS_OK;

    if (options->load_weights)
        status = weights_load(trainer, options->load_weights);
    if (options->resume)
        status = checkpoint_load(trainer, options->resume);
    if (!status && trainer->reduce.begin)
        status = trainer->reduce.begin(trainer->reduce.owner, trainer);
    if (!status && options->resume && options->steps && trainer->step >= options->steps && !options->quiet &&
        !trainer->shard)
        fprintf(stderr, "%s is at step %llu: nothing is left to train for --steps=%llu\n", options->resume,
                (unsigned long long)trainer->step, (unsigned long long)options->steps);
    if (!status)
        note_validation(trainer);
    if (!status)
        status = trainer_run(trainer);
    if (status == STATUS_NO_MEMORY && !trainer->validating && !options->find_batch && !options->auto_accum)
        status_fail(status,
                    "a smaller --batch (now %llu) with --accumulate, --precision=bf16 or "
                    "--checkpoint-activations needs less; --find-batch finds the largest that fits",
                    (unsigned long long)options->batch);
    if (!status && !trainer_is_good(trainer))
        status = STATUS_FAILED;
    if (!status && options->save_weights && !trainer->shard)
        status = weights_save(trainer, options->save_weights);
    /* Replicas are equal: one validates. */
    if (!status && !trainer->shard)
        status = trainer_validate(trainer, &result->evaluation);
    if (!status && stop_signal() && !trainer->shard)
        status = status_fail(trainer->unsaved ? STATUS_UNSAVED : STATUS_STOPPED,
                             "ended by a signal before the last validation was done; %s%s",
                             trainer->unsaved                       ? "the steps could not be saved to "
                             : trainer->saved_step == trainer->step ? "go on with --resume="
                                                                    : "nothing was saved to ",
                             options->save);
    if (!status)
        session_read_result(trainer, result);
    if (!status && trainer->progress.terminal)
        session_print_summary(stderr, result, now_s() - start);
    return status;
}

/* One session of an open trainer, from the checkpoint that it resumes to its result line. A single model
 * and replicas call session_run; a pair steps its two trainers itself and uses only the results. */
#ifndef HARNESS_SESSION_H
#define HARNESS_SESSION_H

#include <stdio.h>

#include "harness/base/cuda_device.h"
#include "harness/base/status.h"
#include "harness/base/train_options.h"
#include "harness/memory/mem.h"
#include "harness/train/trainer.h"

/* The contents of a model's result line. */
struct session_result {
    struct train_options options; /* with the sizes, batch and accumulation in use */
    char device[CUDA_DEVICE_NAME_BYTES];
    uint64_t run_steps; /* steps of this run; options.steps also counts those before a resume */
    float loss_first, loss_last;
    double step_ms; /* by the device's clock, without the first steps (warm-up) */
    double samples_per_s;
    double flops_per_s;                   /* operations that the model needed; 0: on simgpu */
    int cards;                            /* that computed them */
    double data_wait_ms;                  /* per step, that the host waited for samples */
    struct trainer_evaluation evaluation; /* at the end */
    double val_best;                      /* lowest loss of all validations; --save-best: that of FILE.best */
    bool unsaved, best_unsaved;           /* the last try to write FILE, or FILE.best, has failed */
    bool saved_steps;                     /* FILE has all steps, from a try before that */
    size_t peak_bytes;                    /* taken from the device by this process */
    size_t peak_kind[MEM_KIND_COUNT];
    const char *format; /* of the data */
    uint64_t decoded;   /* pictures that the device has decoded, in training */
    bool decoder;       /* it decodes JPEG files */
    uint64_t corrupt;   /* files that --corrupt=skip left out */
    float skipped;      /* updates left out, by the loss scale or by --on-nan=skip */
};

/* Loads the checkpoint of --resume, trains, validates, and fills *result. */
enum status session_run(struct trainer *trainer, struct session_result *result);

/* Fills *result, except its evaluation, from a trainer that has run. */
void session_read_result(struct trainer *trainer, struct session_result *result);

/* Prints a summary of a run that took `seconds`, for people. */
void session_print_summary(FILE *out, const struct session_result *result, double seconds);

/* Prints the result line on stdout. */
void session_print_result(const struct session_result *result);

/* Prints the result line. With --profile, writes its file from the profiles of a job's replicas, and prints
 * the first one's table on stderr. Returns STATUS_UNSAVED if the last checkpoint could not be written. */
enum status session_finish(const struct session_result *result, struct profile *const *profiles, int count);

#endif

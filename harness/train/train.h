/* One run of `train` from options to result. Everything it opens it closes, also when it fails half-way. */
#ifndef HARNESS_TRAIN_H
#define HARNESS_TRAIN_H

#include "harness/base/cuda_device.h"
#include "harness/memory/mem.h"
#include "harness/base/train_options.h"
#include "harness/base/status.h"
#include "harness/train/trainer.h"

/* What the result line of one model says. */
struct train_result {
    struct train_options options; /* with the sizes, the batch and the accumulation that were used */
    char device[CUDA_DEVICE_NAME_BYTES];
    float loss_first, loss_last;
    double step_ms; /* by the device's clock, without the first steps, which warm up */
    double samples_per_s;
    double data_wait_ms;                  /* per step: the host waited for samples */
    struct trainer_evaluation evaluation; /* at the end */
    double val_best;                      /* of all validations */
    size_t peak_bytes;                    /* taken from the device by this process */
    size_t peak_kind[MEM_KIND_COUNT];
    float skipped; /* updates left out because of the loss scale */
};

/* Runs what the options ask for and prints the result lines on stdout. */
enum status train_run(const struct train_options *options);

/* The run of an open trainer: resume, batch search, steps, validation. */
enum status train_one(struct trainer *trainer, struct train_result *result);

void train_read_result(struct trainer *trainer, struct train_result *result);
void train_print_result(const struct train_result *result);

#endif

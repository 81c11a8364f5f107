/* One training: model, optimizer, data and memory, and the step that joins them. It only queues work; the
 * host runs ahead of the device and waits where a validation, a checkpoint or the end needs a figure. A
 * trainer belongs to one thread; several may share a device, a supply of memory, or neither. */
#ifndef HARNESS_TRAINER_H
#define HARNESS_TRAINER_H

#include "harness/train/input.h"
#include "harness/model/net.h"
#include "harness/model/optim.h"

/* What op_evaluate sums up. */
enum { TOTAL_LOSS, TOTAL_RIGHT, TOTAL_ROWS, TOTALS };
enum { TRAINER_REPORTS = 8, TRAINER_GRAPHS = 8 };

/* The totals of a step, on their way to the host. */
struct trainer_report {
    float *totals; /* pinned */
    cudaEvent_t done;
    uint64_t step;
    bool waiting;
};

struct trainer_evaluation {
    double loss, accuracy; /* accuracy is negative where there are no classes */
    uint64_t rows;
};

/* Averages gradients over replicas; NULL without them. Called between backward and update. */
struct trainer_reduce {
    enum status (*run)(void *owner, struct model *model);
    void *owner;
};

struct trainer {
    struct train_options options; /* with every size filled in */
    struct cuda_device *device;
    struct supply *supply;
    struct dataset *dataset;
    struct mem mem;
    struct model model;
    struct optim optim;
    struct input input;
    struct tensor totals;
    struct trainer_report report[TRAINER_REPORTS];
    unsigned reports;
    uint64_t shard, shards; /* of replicas */
    struct trainer_reduce reduce;

    uint64_t step;  /* updates done */
    uint64_t micro; /* batches taken */
    float loss_first, loss_last;
    double val_best;     /* the lowest loss of any validation, 0 before the first */
    uint64_t first_step; /* of this run */
    double started;      /* host seconds at the last progress line, and the step of that */
    uint64_t started_step;

    cudaEvent_t start, stop;
    uint64_t timed_steps;
    double timed_ms;
    bool timing;
    cudaGraphExec_t graph[TRAINER_GRAPHS];
    uint64_t graph_from; /* micro batches before the first capture */
    bool trial; /* weights are not drawn, and a validation is a few batches, of every size there is */
};

/* device and supply must outlive the trainer. trainer_close also after a failure. */
enum status trainer_open(struct trainer *trainer, const struct train_options *options,
                         struct cuda_device *device, struct supply *supply, uint64_t shard, uint64_t shards);
void trainer_close(struct trainer *trainer);

/* From the start again with another batch: everything but the dataset is closed, what the supply can spare
 * goes back to the device, and everything is opened anew. */
enum status trainer_reopen(struct trainer *trainer, uint64_t batch, uint64_t accumulate);

/* There will be no more steps: graphs, activations and gradients go, and what the supply can spare goes back
 * to the device. Waits. */
enum status trainer_forget_steps(struct trainer *trainer);

/* Queues one update. */
enum status trainer_step(struct trainer *trainer);

/* After a step: prints and remembers the losses that have arrived; wait: all of them. */
enum status trainer_read_reports(struct trainer *trainer, bool wait);

/* Starts and stops the clock of step_ms; stopping waits for the device. */
enum status trainer_time(struct trainer *trainer, bool on);

/* The validation set with the weights as they are. Waits. */
enum status trainer_evaluate(struct trainer *trainer, struct trainer_evaluation *evaluation);

/* Opens the trainer again and does in a few steps everything that a training with this batch does with device
 * memory, to learn whether it fits; rounds: how many times. STATUS_NO_MEMORY comes without a message. The
 * trainer is of no use for anything else afterwards. */
enum status trainer_try_batch(struct trainer *trainer, uint64_t batch, uint64_t accumulate, int rounds);

/* All steps that the options ask for, with validations and checkpoints between them. */
enum status trainer_run(struct trainer *trainer);

double trainer_step_ms(const struct trainer *trainer);
double trainer_samples_per_s(const struct trainer *trainer);

/* Host seconds, for progress lines. */
double trainer_now(void);

#endif

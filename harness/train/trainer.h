/* One training: model, optimizer, data and memory, and the step that joins them. Calls only queue work; the
 * host runs ahead of the device and waits where a validation, a checkpoint or the end needs a figure. A
 * trainer belongs to one thread; several may share a device or a supply of memory. */
#ifndef HARNESS_TRAINER_H
#define HARNESS_TRAINER_H

#include "harness/train/input.h"
#include "harness/train/progress.h"
#include "harness/model/net.h"
#include "harness/model/optim.h"
#include "harness/profile/profile.h"

/* The sums that op_evaluate computes. */
enum { TOTAL_LOSS, TOTAL_RIGHT, TOTAL_ROWS, TOTALS };
enum { TRAINER_REPORTS = 8, TRAINER_GRAPHS = 8 };

/* The figures of a step that the host reads. */
struct trainer_figures {
    float totals[TOTALS];
    struct ops_scalars scalars;
};

/* The figures of a step, being copied to the host. */
struct trainer_report {
    struct trainer_figures *figures; /* pinned */
    cudaEvent_t done;
    uint64_t step;
    uint64_t amount; /* of samples or tokens until then */
    bool waiting;
};

struct trainer_evaluation {
    double loss, accuracy; /* accuracy is negative where there are no classes */
    uint64_t rows;
    bool best; /* lower than all before */
};

struct trainer;

/* Averages gradients over replicas. `run` is NULL without replicas. */
struct trainer_reduce {
    /* Before the first step, with the weights that it starts from. May be NULL. */
    enum status (*begin)(void *owner, struct trainer *trainer);
    /* After the backward pass and before the update: queues the rest. */
    enum status (*run)(void *owner, struct model *model);
    /* During the backward pass, as a model_listener. May be NULL. */
    enum status (*layer_done)(void *owner, struct model *model, int layer);
    /* Returns false after a replica has failed: the weights may be wrong, and must not be saved. */
    bool (*good)(void *owner);
    bool captures; /* `run` and `layer_done` only queue work on streams, and may be part of a graph */
    void *owner;
};

/* The share of one replica. */
struct trainer_shard {
    uint64_t index, count;
    struct dataset *dataset; /* of trainer_open_dataset, shared and not closed; NULL: opens its own */
};

struct trainer {
    struct train_options options; /* with every size set */
    struct cuda_device *device;
    struct supply *supply;
    struct dataset *dataset;
    struct mem mem;
    struct model model;
    struct optim optim;
    struct input input;
    struct input
        val_input; /* opened by the first validation; its threads and pinned buffers stay until the end */
    struct tensor totals;
    struct trainer_report report[TRAINER_REPORTS];
    unsigned reports;
    uint64_t shard, shards; /* of replicas */
    bool shares_dataset;
    struct trainer_reduce reduce;

    uint64_t step;  /* updates done */
    uint64_t micro; /* batches taken */
    float loss_first, loss_last;
    double val_best;            /* the lowest finite loss of any validation, 0 before the first */
    uint64_t first_step;        /* of this run */
    uint64_t saved_step;        /* of what FILE holds; UINT64_MAX: not known */
    bool unsaved, best_unsaved; /* the last try to write FILE, or FILE.best, has failed */
    uint64_t missed;            /* the step whose validation a signal interrupted; 0: none */
    struct progress progress;
    bool shares_terminal;             /* another training of this process prints progress too */
    double reported;                  /* host seconds when a report was queued last */
    float skipped;                    /* updates left out, by the last report, whose step is checked_step */
    uint64_t checked_step, good_step; /* good_step: the last report after which an update was done */
    uint64_t bad_step; /* the first update whose loss or gradients were not finite; 0: none is known */

    cudaEvent_t start, stop;
    cudaEvent_t mark; /* start, or a report's `done`: when mark_step was done; NULL: not timed */
    uint64_t mark_step;
    uint64_t timed_from; /* step */
    uint64_t timed_steps;
    double timed_ms;
    uint64_t samples, tokens; /* of this replica in all steps queued; tokens: 0 for pictures */
    uint64_t timed_samples;
    uint64_t mark_amount; /* samples or tokens until mark_step */
    double sample_flops;  /* of one sample of flops_length tokens, forward and backward */
    int flops_length;
    double step_flops, timed_flops; /* of the last step queued, and of the timed ones */
    bool timing;
    cudaGraphExec_t graph[TRAINER_GRAPHS];
    uint64_t first_micro;    /* `micro` before the first batch: not 0 after a resume */
    uint64_t graph_from;     /* the first capture is at this `micro`, or after the steps of a profile */
    struct profile *profile; /* NULL: none is asked for */
    bool small;              /* loaded from a small checkpoint: no update is possible */
    bool validating;         /* a validation runs, or has failed */
    bool keep_input;         /* a step does not release its batch: dump_step does */
    bool trial; /* weights stay zero, and a validation is a few batches, the shorter last one among them */
};

/* `device` and `supply` must outlive the trainer. Call trainer_close also after a failure. */
enum status trainer_open(struct trainer *trainer, const struct train_options *options,
                         struct cuda_device *device, struct supply *supply, uint64_t shard, uint64_t shards);
enum status trainer_open_shard(struct trainer *trainer, const struct train_options *options,
                               struct cuda_device *device, struct supply *supply,
                               const struct trainer_shard *shard);
void trainer_close(struct trainer *trainer);

/* Opens the dataset that the options ask for. Any thread may read it. */
enum status trainer_open_dataset(struct dataset **out, const struct train_options *options);

/* Returns how much of the data this replica has read: tokens of a text, else samples. --vary uses less than
 * whole batches. */
static inline uint64_t trainer_amount(const struct trainer *trainer)
{
    return trainer->tokens ? trainer->tokens : trainer->samples;
}

/* Returns true unless a replica has failed. The answer is reliable only after waiting for the device. */
static inline bool trainer_is_good(const struct trainer *trainer)
{
    return !trainer->reduce.good || trainer->reduce.good(trainer->reduce.owner);
}

/* Returns true until the steps of --profile are done. Trials have none. */
static inline bool trainer_is_profiled(const struct trainer *trainer)
{
    return !trainer->trial && profile_is_pending(trainer->profile);
}

/* Starts over with another batch: closes everything but the dataset, gives the supply's unused memory back
 * to the device, and opens everything again. */
enum status trainer_reopen(struct trainer *trainer, uint64_t batch, uint64_t accumulate);

/* Call after the last step: frees graphs, activations and gradients, and gives the supply's unused memory
 * back to the device. Waits for the device. */
enum status trainer_forget_steps(struct trainer *trainer);

/* Queues one update. */
enum status trainer_step(struct trainer *trainer);

/* Returns true if the host needs the loss of the step that was queued last. */
bool trainer_reports_now(const struct trainer *trainer);

/* Queues the copy of the last step's losses to the host. */
enum status trainer_queue_report(struct trainer *trainer);

/* Call after a step: stores the losses that have arrived, and prints them if it is time to. `wait`: waits for
 * all of them. Returns STATUS_NOT_FINITE if a loss or gradient was not finite and --on-nan=stop. */
enum status trainer_read_reports(struct trainer *trainer, bool wait);

/* Starts or stops the clock of step_ms. Stopping waits for the device. */
enum status trainer_time(struct trainer *trainer, bool on);

/* Returns STATUS_OK if --data-budget has room for the batches of a validation. Call before the first step, so
 * that a training does not fail after the last. */
enum status trainer_check_validation(struct trainer *trainer);

/* Validates with the current weights. Waits for the device. When a signal has asked for the end, *evaluation
 * has no rows. */
enum status trainer_evaluate(struct trainer *trainer, struct trainer_evaluation *evaluation);

/* The same as a part of the training: prints the result, and keeps the best checkpoint for --save-best. */
enum status trainer_validate(struct trainer *trainer, struct trainer_evaluation *evaluation);

/* Tests whether a batch fits: reopens the trainer and runs `rounds` times a few steps with everything that
 * takes device memory in a training. Returns STATUS_NO_MEMORY, without a message, if it does not fit.
 * Afterwards only another trial or trainer_close is valid. */
enum status trainer_try_batch(struct trainer *trainer, uint64_t batch, uint64_t accumulate, int rounds);

/* Runs all steps that the options ask for, with validations and checkpoints. Returns STATUS_STOPPED, after a
 * checkpoint, when a signal has asked for the end (stop.h). */
enum status trainer_run(struct trainer *trainer);

/* The parts of trainer_run, for a caller that runs several in turn: trainer_begin, then trainer_advance (one
 * step) and trainer_between (a validation or a checkpoint, if it is time for one) until all steps are done,
 * then trainer_end. trainer_due says beforehand whether trainer_between will do something. */
void trainer_begin(struct trainer *trainer);
enum status trainer_advance(struct trainer *trainer);
bool trainer_due(const struct trainer *trainer);
enum status trainer_between(struct trainer *trainer);
enum status trainer_end(struct trainer *trainer);

double trainer_step_ms(const struct trainer *trainer);
double trainer_samples_per_s(const struct trainer *trainer);

/* Returns the floating point operations per second that the model needed in the timed steps (flops.h). */
double trainer_flops_per_s(const struct trainer *trainer);

#endif

/* The pair. Each model has its own trainer; what they share is chosen by --pair-mode and --pair-memory. */
#include "harness/train/pair.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "harness/base/now.h"
#include "harness/train/session.h"

struct half {
    struct train_options options;
    struct cuda_device own_device;
    struct supply own_supply;
    struct cuda_device *device;
    struct supply *supply;
    struct trainer trainer;
    struct session_result result;
    pthread_t thread;
    int index;           /* of the CUDA device */
    atomic_bool *failed; /* one of the pair has */
    enum status status;
};

/* Returns false once the other model has failed: this one ends at its next step. */
static bool is_good(void *owner)
{
    return !atomic_load((atomic_bool *)owner);
}

static enum status open_half(struct half *half, const struct train_options *options, int number,
                             struct half *first, struct budget *budget, atomic_bool *failed)
{
    bool own_stream = number == 0 || options->pair_mode != PAIR_INTERLEAVED;
    bool own_memory = number == 0 || options->pair_memory == PAIR_PRIVATE;
    enum status status = STATUS_OK;

    half->options = *options;
    half->options.model = options->pair.model[number];
    half->options.seed += (uint64_t)number;
    half->index = (int)options->device;
    half->failed = failed;
    half->device = own_stream ? &half->own_device : &first->own_device;
    half->supply = own_memory ? &half->own_supply : &first->own_supply;
    /* Two arenas share the memory that is free at the start. */
    if (options->pair_memory == PAIR_PRIVATE && number == 0)
        half->options.fraction /= TRAIN_OPTIONS_PAIR;
    if (own_stream)
        status = cuda_device_open(&half->own_device, options->device);
    if (!status && own_memory)
        status =
            supply_open(&half->own_supply, (enum alloc_mode)options->alloc, half->options.fraction, budget);
    if (options->pair_memory == PAIR_PRIVATE)
        half->own_supply.tag = number == 0 ? "first model's cache" : "second model's cache";
    if (!status)
        status = trainer_open(&half->trainer, &half->options, half->device, half->supply, 0, 0);
    half->trainer.shares_terminal = true;
    half->trainer.reduce = (struct trainer_reduce){.good = is_good, .owner = half->failed};
    return status;
}

/* Stops both clocks for a validation: it must not count as time of the other's steps. */
static enum status between(struct half *halves)
{
    enum status status = STATUS_OK;
    bool due = false;

    for (int i = 0; i < TRAIN_OPTIONS_PAIR; i++)
        due = due || trainer_due(&halves[i].trainer);
    for (int i = 0; i < TRAIN_OPTIONS_PAIR && due && !status; i++)
        status = trainer_time(&halves[i].trainer, false);
    for (int i = 0; i < TRAIN_OPTIONS_PAIR && due && !status; i++)
        status = trainer_between(&halves[i].trainer);
    return status;
}

static enum status run_in_turn(struct half *halves)
{
    enum status status = STATUS_OK;
    uint64_t steps = halves[0].options.steps;

    for (int i = 0; i < TRAIN_OPTIONS_PAIR; i++)
        trainer_begin(&halves[i].trainer);
    for (uint64_t step = 0; step < steps && !status; step++) {
        for (int i = 0; i < TRAIN_OPTIONS_PAIR && !status; i++)
            status = trainer_advance(&halves[i].trainer);
        if (!status)
            status = between(halves);
    }
    for (int i = 0; i < TRAIN_OPTIONS_PAIR && !status; i++)
        status = trainer_end(&halves[i].trainer);
    return status;
}

static void *run_thread(void *arg)
{
    struct half *half = arg;

    half->status = cuda_device_status(cudaSetDevice(half->index), "cudaSetDevice");
    if (!half->status)
        half->status = trainer_run(&half->trainer);
    if (half->status)
        atomic_store(half->failed, true);
    return NULL;
}

static enum status run_threads(struct half *halves)
{
    enum status status = STATUS_OK;
    int started = 0;

    while (started < TRAIN_OPTIONS_PAIR &&
           pthread_create(&halves[started].thread, NULL, run_thread, &halves[started]) == 0)
        started++;
    for (int i = 0; i < started; i++) {
        pthread_join(halves[i].thread, NULL);
        /* The one that failed has a status above that of the one it ended. */
        status = halves[i].status > status ? halves[i].status : status;
    }
    if (started < TRAIN_OPTIONS_PAIR && !status)
        status = status_fail(STATUS_FAILED, "a thread for the pair cannot be started");
    return status;
}

static void print_pair(const struct train_options *options, const struct half *halves, double seconds,
                       const struct budget *budget)
{
    char mode[16], memory[16];
    double samples = 0.0;

    for (int i = 0; i < TRAIN_OPTIONS_PAIR; i++) {
        session_print_result(&halves[i].result);
        samples += (double)halves[i].trainer.samples;
    }
    printf("pair=%s pair_memory=%s seconds=%.3f samples_per_s=%.1f peak_bytes=%zu device=%s\n",
           train_options_choice("pair-mode", options->pair_mode, mode, sizeof(mode)),
           train_options_choice("pair-memory", options->pair_memory, memory, sizeof(memory)), seconds,
           seconds > 0.0 ? samples / seconds : 0.0, atomic_load(&budget->peak), halves[0].device->name);
}

enum status pair_run(const struct train_options *options)
{
    struct budget budget = {.limit = options->budget};
    atomic_bool failed = false;
    static struct half halves[TRAIN_OPTIONS_PAIR];
    enum status status = STATUS_OK;
    double start, seconds;

    for (int i = 0; i < TRAIN_OPTIONS_PAIR && !status; i++)
        status = open_half(&halves[i], options, i, &halves[0], &budget, &failed);
    start = now_s();
    if (!status)
        status = options->pair_mode == PAIR_THREADS ? run_threads(halves) : run_in_turn(halves);
    seconds = now_s() - start;
    for (int i = 0; i < TRAIN_OPTIONS_PAIR && !status; i++) {
        status = trainer_validate(&halves[i].trainer, &halves[i].result.evaluation);
        if (!status)
            session_read_result(&halves[i].trainer, &halves[i].result);
    }
    if (!status)
        print_pair(options, halves, seconds, &budget);
    for (int i = TRAIN_OPTIONS_PAIR - 1; i >= 0; i--)
        trainer_close(&halves[i].trainer);
    for (int i = TRAIN_OPTIONS_PAIR - 1; i >= 0; i--) {
        supply_close(&halves[i].own_supply);
        cuda_device_close(&halves[i].own_device);
    }
    return status;
}

/* The trial of a batch size: a real training of a few steps, with data pipeline, updates, graphs and
 * validations, because each of them takes memory or changes its fragmentation. A checkpoint takes no device
 * memory. */
#include "harness/train/trainer.h"

enum {
    FIRST_STEPS =
        INPUT_SETS + 1, /* with each set of buffers, then once with everything as a step leaves it */
    GRAPH_STEPS = 2 * INPUT_SETS, /* as they are, then captured, with each set of buffers */
    LATER_STEPS = INPUT_SETS,     /* after a validation, before another */
    VARIED_STEPS = 8,
    TRIAL_PARTS = 3 /* of an accumulated step: the first, a middle one, the last */
};

/* With naive and async, every tensor comes from an allocator outside of train, whose fragmentation depends
 * on all earlier calls. The memory taken here is unavailable to the trial, so that a training has some
 * reserve over its trial. */
static enum status hold_spare(struct trainer *trainer, struct tensor *spare)
{
    enum { LARGEST_SHARE = 8, SMALLEST_SHARE = 64 };
    const size_t some = (size_t)4 << 20; /* two chunks of gpucap's pool */
    size_t limit = trainer->supply->budget->limit;
    size_t room = 0;
    size_t total;
    size_t bytes;
    enum status status;

    if (trainer->options.alloc != ALLOC_NAIVE && trainer->options.alloc != ALLOC_ASYNC)
        return STATUS_OK;
    status = cuda_device_status(cudaMemGetInfo(&room, &total), "cudaMemGetInfo");
    if (status)
        return status;
    room = limit && limit < room ? limit : room;
    bytes = room / SMALLEST_SHARE > some ? room / SMALLEST_SHARE : some;
    bytes = bytes < room / LARGEST_SHARE ? bytes : room / LARGEST_SHARE;
    return mem_need(&trainer->mem, spare, bytes, MEM_WORKSPACE);
}

static enum status try_steps(struct trainer *trainer, uint64_t count, bool vary)
{
    trainer->options.vary = vary;
    trainer->options.steps = trainer->step + count;
    return trainer_run(trainer);
}

static enum status try_training(struct trainer *trainer, uint64_t validate_every, bool vary, int rounds)
{
    uint64_t first = trainer->options.graph ? GRAPH_STEPS : FIRST_STEPS;
    struct trainer_evaluation unused;
    enum status status;

    trainer->options.save = NULL;
    trainer->options.validate_every = validate_every && validate_every < first ? validate_every : first;
    status = try_steps(trainer, (uint64_t)rounds * first + LATER_STEPS, false);
    /* The whole batch must also fit after smaller ones. */
    if (!status && vary)
        status = try_steps(trainer, (uint64_t)rounds * VARIED_STEPS, true);
    if (!status && vary)
        status = try_steps(trainer, LATER_STEPS, false);
    return status ? status : trainer_evaluate(trainer, &unused);
}

enum status trainer_try_batch(struct trainer *trainer, uint64_t batch, uint64_t accumulate, int rounds)
{
    const struct train_options wanted = trainer->options;
    struct tensor spare = {0};
    enum status status;

    if (!model_can_hold(&trainer->model, batch))
        return STATUS_NO_MEMORY;
    trainer->trial = true;
    status_expect_no_memory(true);
    status = trainer_reopen(trainer, batch, accumulate < TRIAL_PARTS ? accumulate : TRIAL_PARTS);
    if (!status)
        status = hold_spare(trainer, &spare);
    if (!status)
        status = try_training(trainer, wanted.validate_every, wanted.vary, rounds);
    mem_drop(&trainer->mem, &spare);
    status_expect_no_memory(false);
    trainer->options = wanted;
    if (status == STATUS_NO_MEMORY)
        cudaGetLastError();
    return status;
}

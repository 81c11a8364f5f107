/* The training loop. The host runs ahead of the device and waits only where a loss is read: at the first and
 * last step and about ten times between. */
#include "train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mlp.h"
#include "staging.h"

enum { REPORTS = 10 };

struct train {
    const struct options *options;
    struct device device;
    struct mem mem;
    struct data *data;
    struct staging staging;
    struct mlp mlp;
    struct mlp_batch batch;
    float *losses; /* pinned, [batch] */
    cudaEvent_t start, stop;
};

static enum status open_data(struct train *train)
{
    const struct options *options = train->options;

    if (options->data)
        return data_open_mnist(&train->data, options->data, options->seed);
    return data_open_synthetic(&train->data, options->seed);
}

static enum status open_all(struct train *train)
{
    const struct options *options = train->options;
    enum status status = open_data(train);

    train->batch.count = (int)options->batch;
    if (!status)
        status = device_open(&train->device, options->device);
    if (!status)
        status = device_status(cudaEventCreate(&train->start), "creating an event");
    if (!status)
        status = device_status(cudaEventCreate(&train->stop), "creating an event");
    if (!status)
        status = staging_open(&train->staging, &train->device, train->data, options->batch);
    if (!status)
        status = device_status(cudaMallocHost((void **)&train->losses, options->batch * sizeof(float)),
                               "pinned memory for the losses");
    if (!status)
        status = mem_open(&train->mem, (enum alloc_mode)options->alloc, options->fraction);
    if (!status)
        status = mlp_open(&train->mlp, &train->device, &train->mem, &options->hidden, train->data->features,
                          train->data->classes, options->seed);
    return status;
}

/* In the reverse order; each part may have stayed zero. The stream is drained first: work still queued after
 * a failure uses the buffers. */
static void close_all(struct train *train)
{
    if (train->device.stream)
        cudaStreamSynchronize(train->device.stream);
    mem_drop(&train->mem, &train->batch.x);
    mem_drop(&train->mem, &train->batch.labels);
    mlp_close(&train->mlp);
    mem_close(&train->mem);
    if (train->losses)
        cudaFreeHost(train->losses);
    staging_close(&train->staging);
    if (train->stop)
        cudaEventDestroy(train->stop);
    if (train->start)
        cudaEventDestroy(train->start);
    device_close(&train->device);
    if (train->data)
        train->data->close(train->data);
}

/* Waits for the step, then the mean of its losses. */
static enum status read_loss(struct train *train, float *loss)
{
    size_t count = train->options->batch;
    double sum = 0.0;
    enum status status =
        device_status(cudaMemcpyAsync(train->losses, train->mlp.losses.data, count * sizeof(float),
                                      cudaMemcpyDeviceToHost, train->device.stream),
                      "copying the losses");

    if (!status)
        status = device_status(cudaStreamSynchronize(train->device.stream), "waiting for a step");
    if (status)
        return status;
    for (size_t i = 0; i < count; i++)
        sum += train->losses[i];
    *loss = (float)(sum / (double)count);
    return STATUS_OK;
}

static enum status run_step(struct train *train, bool report, float *loss)
{
    const struct options *options = train->options;
    enum status status = staging_next(&train->staging, &train->mem, &train->batch.x, &train->batch.labels);

    if (!status)
        status = mlp_forward(&train->mlp, &train->batch);
    if (!status)
        status = mlp_backward(&train->mlp, &train->batch);
    if (!status)
        status = mlp_update(&train->mlp, (float)options->rate, (float)options->momentum);
    if (!status)
        status = mem_done(&train->mem, &train->batch.x);
    if (!status)
        status = mem_done(&train->mem, &train->batch.labels);
    if (!status && report)
        status = read_loss(train, loss);
    if (!status)
        status = mem_done(&train->mem, &train->mlp.losses);
    return status;
}

static enum status run_steps(struct train *train, struct train_result *result)
{
    const struct options *options = train->options;
    uint64_t every = options->steps > REPORTS ? options->steps / REPORTS : 1;
    uint64_t timed_from = options->steps > 1 ? 1 : 0;
    enum status status = STATUS_OK;

    for (uint64_t step = 0; step < options->steps && !status; step++) {
        bool last = step + 1 == options->steps;
        bool report = step == 0 || last || (!options->quiet && (step + 1) % every == 0);

        if (step == timed_from)
            status = device_status(cudaEventRecord(train->start, train->device.stream), "recording an event");
        if (!status)
            status = run_step(train, report, &result->loss_last);
        if (!status && step == 0)
            result->loss_first = result->loss_last;
        if (!status && report && !options->quiet)
            fprintf(stderr, "step %llu/%llu loss %.4f\n", (unsigned long long)step + 1,
                    (unsigned long long)options->steps, (double)result->loss_last);
    }
    return status;
}

static enum status read_time(struct train *train, struct train_result *result)
{
    uint64_t timed = train->options->steps > 1 ? train->options->steps - 1 : 1;
    float ms = 0.0f;
    enum status status =
        device_status(cudaEventRecord(train->stop, train->device.stream), "recording an event");

    if (!status)
        status = device_status(cudaEventSynchronize(train->stop), "waiting for the last step");
    if (!status)
        status = device_status(cudaEventElapsedTime(&ms, train->start, train->stop), "reading the time");
    result->step_ms = (double)ms / (double)timed;
    return status;
}

enum status train_run(const struct options *options, struct train_result *result)
{
    struct train train = {.options = options};
    enum status status = open_all(&train);

    memset(result, 0, sizeof(*result));
    if (!status)
        status = run_steps(&train, result);
    if (!status)
        status = read_time(&train, result);
    result->peak_bytes = train.mem.peak;
    snprintf(result->device, sizeof(result->device), "%s", train.device.name);
    close_all(&train);
    return status;
}

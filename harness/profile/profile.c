/* Measuring: the steps before the first one measured, which say how many events are needed; the events; and
 * reading them. Nothing here waits for the device but profile_end_step of the last step. See profile.h. */
#include "harness/profile/profile.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/profile/profile_nvtx.h"
#include "harness/profile/profile_state.h"

/* Steps before the first one measured, where there are so many: the first ones choose algorithms and take
 * memory. */
enum { WARM_STEPS = 3 };

static const uint64_t ns_per_s = 1000000000;

enum status profile_open(struct profile **out, const struct train_options *options, struct model *model,
                         uint64_t replica)
{
    struct profile *profile;

    *out = NULL;
    if (!options->profile && !options->nvtx)
        return STATUS_OK;
    profile = calloc(1, sizeof(*profile));
    if (!profile)
        return status_fail(STATUS_NO_MEMORY, "no host memory for the profile");
    profile->options = options;
    profile->model = model;
    profile->replica = replica;
    profile->nvtx = options->nvtx || options->profile;
    profile->state = options->profile ? PROFILE_WAITS : PROFILE_IS_DONE;
    *out = profile;
    return STATUS_OK;
}

static void drop_events(struct profile *profile)
{
    for (size_t i = 0; i < profile->span_room; i++) {
        if (profile->spans[i].begin)
            cudaEventDestroy(profile->spans[i].begin);
        if (profile->spans[i].end)
            cudaEventDestroy(profile->spans[i].end);
        profile->spans[i].begin = profile->spans[i].end = NULL;
    }
    for (size_t s = 0; s < profile->step_room; s++) {
        if (profile->steps[s].begin)
            cudaEventDestroy(profile->steps[s].begin);
        if (profile->steps[s].end)
            cudaEventDestroy(profile->steps[s].end);
        profile->steps[s].begin = profile->steps[s].end = NULL;
    }
}

void profile_close(struct profile *profile)
{
    if (!profile)
        return;
    profile_unwatch(profile);
    drop_events(profile);
    free(profile->spans);
    free(profile->steps);
    free(profile->names);
    free(profile);
}

bool profile_is_pending(const struct profile *profile)
{
    return profile && profile->state != PROFILE_IS_DONE;
}

/* ---- events ---- */

static int make_two(cudaEvent_t *begin, cudaEvent_t *end)
{
    int error = cudaEventCreate(begin);

    return error ? error : (int)cudaEventCreate(end);
}

/* Room for so many spans, with events. */
static int make_spans(struct profile *profile, size_t room)
{
    struct profile_span *larger;
    int error = 0;

    if (room <= profile->span_room)
        return 0;
    larger = realloc(profile->spans, room * sizeof(*larger));
    if (!larger)
        return OPS_OUT_OF_MEMORY;
    profile->spans = larger;
    for (size_t i = profile->span_room; i < room && !error; i++) {
        profile->spans[i] = (struct profile_span){0};
        profile->span_room = i + 1;
        error = make_two(&profile->spans[i].begin, &profile->spans[i].end);
    }
    return error;
}

/* Makes room for the steps to be measured. Those seen so far say how many operations a step has. */
static enum status prepare(struct profile *profile, uint64_t left)
{
    uint64_t steps = profile->options->profile_steps < left ? profile->options->profile_steps : left;
    int error = 0;

    if (profile->steps || !steps)
        return STATUS_OK;
    profile->steps = calloc((size_t)steps, sizeof(*profile->steps));
    if (!profile->steps)
        return status_fail(STATUS_NO_MEMORY, "no host memory for the profile");
    profile->step_room = (size_t)steps;
    for (size_t s = 0; s < profile->step_room && !error; s++)
        error = make_two(&profile->steps[s].begin, &profile->steps[s].end);
    if (!error)
        error = make_spans(profile, profile->most_spans * (size_t)steps + 1);
    return cuda_device_status(error, "events for the profile");
}

/* Begins a span, or only counts it. */
static int begin_span(struct profile *profile, cudaStream_t stream, const struct profile_span *what)
{
    const struct mem *mem = profile->model->mem;
    struct profile_span *span;
    int error;

    profile->step_spans++;
    if (profile->state != PROFILE_MEASURES)
        return 0;
    /* With --vary, a step may have more than those before it. */
    error = profile->span_count < profile->span_room ? 0 : make_spans(profile, 2 * profile->span_room);
    if (error)
        return error;
    span = &profile->spans[profile->span_count++];
    span->operation = what->operation;
    span->bucket = what->bucket;
    span->bytes = what->bytes;
    span->place = profile->model->place;
    span->aside = stream != profile->model->device->stream;
    memcpy(span->live, mem->live, sizeof(span->live));
    span->held = supply_held(mem->supply);
    return cudaEventRecord(span->begin, stream);
}

static int end_span(struct profile *profile, cudaStream_t stream)
{
    if (profile->state != PROFILE_MEASURES)
        return 0;
    return cudaEventRecord(profile->spans[profile->span_count - 1].end, stream);
}

/* ---- NVTX ---- */

enum { RANGE_STEP = 1, RANGE_PASS, RANGE_LAYER };

static void close_ranges(struct profile *profile, int keep)
{
    for (; profile->ranges > keep; profile->ranges--)
        profile_nvtx_pop();
}

/* Opens the ranges of the pass and the layer that are being queued. */
static void open_ranges(struct profile *profile)
{
    const struct model_place *now = &profile->model->place;

    if (profile->ranges > RANGE_STEP && profile->range.pass != now->pass)
        close_ranges(profile, RANGE_STEP);
    if (profile->ranges > RANGE_PASS && profile->range.layer != now->layer)
        close_ranges(profile, RANGE_PASS);
    if (profile->ranges < RANGE_PASS) {
        profile_nvtx_push(profile_pass_name(now->pass));
        profile->ranges++;
    }
    if (profile->ranges < RANGE_LAYER && now->layer != NO_VALUE) {
        profile_nvtx_push(profile_layer_name(profile, now->layer));
        profile->ranges++;
    }
    profile->range = *now;
}

/* ---- during a step ---- */

int profile_begin_operation(struct profile *profile, cudaStream_t stream, const char *name)
{
    if (!profile->within)
        return 0;
    if (profile->nvtx) {
        open_ranges(profile);
        profile_nvtx_push(name);
    }
    return begin_span(profile, stream,
                      &(struct profile_span){.operation = name, .bucket = PROFILE_NO_BUCKET});
}

int profile_end_operation(struct profile *profile, cudaStream_t stream)
{
    if (!profile->within)
        return 0;
    if (profile->nvtx)
        profile_nvtx_pop();
    return end_span(profile, stream);
}

enum status profile_begin_average(struct profile *profile, cudaStream_t stream, int bucket, size_t bytes)
{
    if (!profile || !profile->within)
        return STATUS_OK;
    return cuda_device_status(
        begin_span(profile, stream,
                   &(struct profile_span){.operation = "all_reduce", .bucket = bucket, .bytes = bytes}),
        "recording an event");
}

enum status profile_end_average(struct profile *profile, cudaStream_t stream)
{
    if (!profile || !profile->within)
        return STATUS_OK;
    return cuda_device_status(end_span(profile, stream), "recording an event");
}

/* ---- steps ---- */

/* Measures from now on, if enough steps have been seen. A short training is measured at its end, but for its
 * first step if there is another. */
static enum status start(struct profile *profile, uint64_t left)
{
    uint64_t wanted = profile->options->profile_steps;
    uint64_t all = left + profile->seen;
    uint64_t skipped = all > wanted ? all - wanted : 0;
    uint64_t least = all > 1 ? 1 : 0;
    enum status status;

    skipped = skipped < WARM_STEPS ? skipped : WARM_STEPS;
    if (profile->seen < (skipped > least ? skipped : least))
        return STATUS_OK;
    status = prepare(profile, left);
    profile->state = PROFILE_MEASURES;
    return status;
}

enum status profile_begin_step(struct profile *profile, uint64_t step, uint64_t left)
{
    enum status status = STATUS_OK;

    if (!profile || (profile->state == PROFILE_IS_DONE && !profile->nvtx))
        return STATUS_OK;
    if (!profile->names)
        status = profile_make_names(profile);
    if (!status && profile->state == PROFILE_WAITS)
        status = start(profile, left);
    if (status)
        return status;
    profile_watch(profile);
    profile->within = true;
    profile->step_spans = 0;
    profile->model->place = (struct model_place){PASS_INPUT, NO_VALUE};
    if (profile->nvtx) {
        profile_nvtx_push("step");
        profile->ranges = RANGE_STEP;
    }
    if (profile->state != PROFILE_MEASURES)
        return STATUS_OK;
    profile->steps[profile->step_count].number = step + 1;
    profile->steps[profile->step_count].first = profile->span_count;
    return cuda_device_status(
        cudaEventRecord(profile->steps[profile->step_count].begin, profile->model->device->stream),
        "recording an event");
}

/* Nanoseconds from one event to another, which comes after it. */
static int between(cudaEvent_t from, cudaEvent_t to, uint64_t *ns)
{
    float ms = 0.0f;
    int error = cudaEventElapsedTime(&ms, from, to);

    *ns = ms > 0.0f ? (uint64_t)((double)ms * 1e6) : 0;
    return error;
}

/* Each step's times are counted from its own beginning first: a float of milliseconds has seven digits. */
static int read_step(struct profile *profile, struct profile_step *step)
{
    int error = between(step->begin, step->end, &step->end_ns);

    step->end_ns += step->begin_ns;
    for (size_t i = step->first; i < step->first + step->count && !error; i++) {
        struct profile_span *span = &profile->spans[i];

        error = between(step->begin, span->begin, &span->begin_ns);
        if (!error)
            error = between(step->begin, span->end, &span->end_ns);
        span->begin_ns += step->begin_ns;
        span->end_ns += step->begin_ns;
    }
    return error;
}

static enum status read_events(struct profile *profile)
{
    struct profile_step *steps = profile->steps;
    struct timespec now;
    uint64_t now_ns;
    int error = cudaEventSynchronize(steps[profile->step_count - 1].end);

    clock_gettime(CLOCK_MONOTONIC, &now);
    for (size_t s = 0; s < profile->step_count && !error; s++) {
        if (s > 0)
            error = between(steps[s - 1].begin, steps[s].begin, &steps[s].begin_ns);
        if (s > 0)
            steps[s].begin_ns += steps[s - 1].begin_ns;
        if (!error)
            error = read_step(profile, &steps[s]);
    }
    now_ns = (uint64_t)now.tv_sec * ns_per_s + (uint64_t)now.tv_nsec;
    profile->origin_ns = now_ns - steps[profile->step_count - 1].end_ns;
    drop_events(profile);
    return cuda_device_status(error, "reading the profile's events");
}

enum status profile_end_step(struct profile *profile, uint64_t left)
{
    struct profile_step *step;
    enum status status = STATUS_OK;

    if (!profile || !profile->within)
        return STATUS_OK;
    profile->within = false;
    close_ranges(profile, 0);
    profile->seen++;
    profile->most_spans =
        profile->step_spans > profile->most_spans ? profile->step_spans : profile->most_spans;
    /* Early, so that the host is ahead of the device again when it measures. */
    if (profile->state == PROFILE_WAITS)
        status = prepare(profile, left);
    if (profile->state == PROFILE_MEASURES) {
        step = &profile->steps[profile->step_count++];
        step->count = profile->span_count - step->first;
        status = cuda_device_status(cudaEventRecord(step->end, profile->model->device->stream),
                                    "recording an event");
        if (!status && (profile->step_count == profile->step_room || !left)) {
            status = read_events(profile);
            profile->state = PROFILE_IS_DONE;
        }
    }
    if (profile->state == PROFILE_IS_DONE && !profile->options->nvtx) {
        profile->nvtx = false;
        profile_unwatch(profile);
    }
    return status;
}

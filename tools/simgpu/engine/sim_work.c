/* sim_work: a piece of work of a stream. See sim_work.h. Never takes the engine's lock. */
#include "tools/simgpu/engine/sim_work.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POLL_NS 20000 /* time between two reads of a value that a stream waits for */

struct sim_work *sim_work_new(enum sim_work_kind kind)
{
    struct sim_work *work = calloc(1, sizeof(*work));

    if (work)
        work->kind = kind;
    return work;
}

/* Adjusts the pointers at the head of a kernel's buffer, which point into the buffer itself. */
static void move_arguments(struct sim_work *clone, const struct sim_work *work)
{
    void **to = clone->owned, **from = work->owned;
    unsigned int i;

    for (i = 0; i < work->kernel.count; i++)
        to[i] = (char *)clone->owned + ((char *)from[i] - (char *)work->owned);
}

struct sim_work *sim_work_clone(const struct sim_work *work)
{
    struct sim_work *clone = malloc(sizeof(*clone));

    if (!clone)
        return NULL;
    *clone = *work;
    if (!work->owned)
        return clone;
    clone->owned = malloc(work->owned_size);
    if (!clone->owned) {
        free(clone);
        return NULL;
    }
    memcpy(clone->owned, work->owned, work->owned_size);
    if (work->kind == WORK_KERNEL)
        move_arguments(clone, work);
    if (work->kind == WORK_COPY)
        clone->copy.from = clone->owned;
    return clone;
}

bool sim_work_stage(struct sim_work *work)
{
    struct sim_work_copy *copy = &work->copy, staging = *copy;
    struct sim_work now = {.kind = WORK_COPY};
    size_t size = copy->width * copy->height * copy->depth;

    work->owned = malloc(size);
    if (!work->owned)
        return false;
    work->owned_size = size;
    staging.to = work->owned;
    staging.to_pitch = copy->width;
    staging.to_slice = copy->width * copy->height;
    now.copy = staging;
    sim_work_run(&now);
    copy->from = work->owned;
    copy->from_pitch = staging.to_pitch;
    copy->from_slice = staging.to_slice;
    return true;
}

void sim_work_delete(struct sim_work *work)
{
    if (work)
        free(work->owned);
    free(work);
}

static void run_copy(const struct sim_work_copy *copy)
{
    size_t y, z;

    if (copy->height == 1 && copy->depth == 1) {
        memmove(copy->to, copy->from, copy->width);
        return;
    }
    for (z = 0; z < copy->depth; z++)
        for (y = 0; y < copy->height; y++)
            memmove(copy->to + z * copy->to_slice + y * copy->to_pitch,
                    copy->from + z * copy->from_slice + y * copy->from_pitch, copy->width);
}

static void fill_row(const struct sim_work_fill *fill, char *to)
{
    uint16_t value16 = (uint16_t)fill->value;
    size_t i;

    switch (fill->element) {
    case 1:
        memset(to, (int)(fill->value & 0xff), fill->width);
        break;
    case 2:
        for (i = 0; i < fill->width; i++)
            memcpy(to + i * 2, &value16, 2);
        break;
    default:
        for (i = 0; i < fill->width; i++)
            memcpy(to + i * 4, &fill->value, 4);
    }
}

static bool reached(const struct sim_work_value *wanted)
{
    uint64_t now =
        wanted->wide
            ? atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)wanted->address, memory_order_acquire)
            : atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)wanted->address, memory_order_acquire);

    switch (wanted->flags & 3u) {
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == wanted->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & wanted->value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
        return ~(now | wanted->value) != 0;
    default: /* GEQ, with wrap-around as cuda.h defines it */
        return wanted->wide ? (int64_t)(now - wanted->value) >= 0 : (int32_t)(now - wanted->value) >= 0;
    }
}

static void write_value(const struct sim_work_value *written)
{
    if (written->wide)
        atomic_store_explicit((_Atomic uint64_t *)(uintptr_t)written->address, written->value,
                              memory_order_release);
    else
        atomic_store_explicit((_Atomic uint32_t *)(uintptr_t)written->address, (uint32_t)written->value,
                              memory_order_release);
}

static void raise_value(const struct sim_work_value *raised)
{
    _Atomic uint64_t *at = (_Atomic uint64_t *)(uintptr_t)raised->address;
    uint64_t seen = atomic_load(at);

    while (seen < raised->value && !atomic_compare_exchange_weak(at, &seen, raised->value))
        ;
}

static void await_value(const struct sim_work_value *wanted)
{
    struct timespec pause = {.tv_nsec = POLL_NS};

    while (!reached(wanted))
        nanosleep(&pause, NULL);
}

static void run_batch(const struct sim_work *work)
{
    const struct sim_work_step *steps = work->owned;
    unsigned int i;

    for (i = 0; i < work->steps; i++)
        if (steps[i].kind != WORK_NOTHING)
            sim_work_run(&(struct sim_work){.kind = steps[i].kind, .value = steps[i].value});
}

void sim_work_run(const struct sim_work *work)
{
    size_t y;

    switch (work->kind) {
    case WORK_NOTHING:
        break;
    case WORK_COPY:
        run_copy(&work->copy);
        break;
    case WORK_FILL:
        for (y = 0; y < work->fill.height; y++)
            fill_row(&work->fill, work->fill.to + y * work->fill.pitch);
        break;
    case WORK_HOST:
        work->host.function(work->host.data);
        break;
    case WORK_CALLBACK:
        work->callback.function(work->callback.stream, CUDA_SUCCESS, work->callback.data);
        break;
    case WORK_KERNEL:
        work->kernel.function(work->owned, &work->kernel.grid, &work->kernel.block);
        break;
    case WORK_WRITE:
        write_value(&work->value);
        break;
    case WORK_RAISE:
        raise_value(&work->value);
        break;
    case WORK_AWAIT:
        await_value(&work->value);
        break;
    case WORK_BATCH:
        run_batch(work);
        break;
    }
}

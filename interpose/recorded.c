/* recorded: see recorded.h. */
#include "interpose/recorded.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/account/blocks.h"
#include "interpose/account/device.h"
#include "interpose/base/process.h"
#include "interpose/library.h"
#include "interpose/pool/pools.h"
#include "interpose/see/events.h"
#include "interpose/see/recorder.h"

/* A card with a context of this process, whether limited or not. */
static struct seen {
    _Atomic(CUcontext) context; /* the latest; NULL: none */
    atomic_flag naming;         /* a thread writes the next ones */
    char uuid[RULES_UUID_TEXT]; /* written once, before `named` */
    struct measure_card card;
    atomic_bool named;
} cards[DEVICE_MAX];

/* ---- what is there when a recording begins ---- */

struct listing {
    void (*add)(struct recording_event *event);
    int device;
};

static void list_block(const struct pool_live *block, void *argument)
{
    const struct listing *listing = argument;
    struct recording_event event = {.device = (uint16_t)listing->device,
                                    .kind = RECORDING_MALLOC,
                                    .address = block->address,
                                    .bytes = block->asked,
                                    .tag = block->tag};

    listing->add(&event);
}

static void list_pool(struct pool *pool, void *argument)
{
    struct listing *listing = argument;

    listing->device = pool->ordinal;
    pool_each_live(pool, list_block, listing);
    struct recording_event held = {
        .head.type = RECORDING_GROW, .device = (uint16_t)pool->ordinal, .other = pool_held_on(pool->ordinal)};
    listing->add(&held);
}

static uint8_t kind_of(enum blocks_kind kind)
{
    switch (kind) {
    case BLOCKS_MANAGED:
        return RECORDING_MANAGED;
    case BLOCKS_ASYNC:
        return RECORDING_ASYNC;
    case BLOCKS_HANDLE:
        return RECORDING_VMM;
    case BLOCKS_ARRAY:
    case BLOCKS_MIPMAP:
        return RECORDING_ARRAY;
    default:
        return RECORDING_MALLOC;
    }
}

static void list_counted(const struct block *block, void *argument)
{
    const struct listing *listing = argument;
    struct recording_event event = {.device = (uint16_t)block->device,
                                    .kind = kind_of(block->kind),
                                    .address = block->key,
                                    .bytes = block->bytes};

    listing->add(&event);
}

static void (*add_limit)(struct recording_event *event); /* the recorder's thread alone */

static void list_limit(struct device *device)
{
    struct recording_event event = {.head.type = RECORDING_LIMIT,
                                    .device = (uint16_t)device->ordinal,
                                    .bytes = atomic_load(&device->limit),
                                    .other = device_limit_kind(device)};

    add_limit(&event);
}

static void list_live(void (*add)(struct recording_event *event))
{
    struct listing listing = {.add = add};

    add_limit = add;
    device_each(list_limit);
    pools_each(list_pool, &listing);
    blocks_each(list_counted, &listing);
}

/* ---- the driver's figure ---- */

static void sample(void (*used)(int device, uint64_t bytes))
{
    for (int i = 0; i < DEVICE_MAX; i++) {
        uint64_t bytes;

        if (atomic_load(&cards[i].context) && atomic_load(&cards[i].named) &&
            measure_used(&cards[i].card, &bytes) == 0)
            used(i, bytes);
    }
}

static void name_card(CUdevice ordinal)
{
    char name[128] = "", text[RULES_UUID_TEXT];
    size_t total = 0;
    CUuuid uuid;

    if (atomic_load(&cards[ordinal].named) || driver.cuDeviceGetUuid_v2(&uuid, ordinal) != CUDA_SUCCESS)
        return;
    driver.cuDeviceTotalMem_v2(&total, ordinal);
    driver.cuDeviceGetName(name, sizeof name, ordinal);
    device_format_uuid(&uuid, text);
    recorder_name_device(ordinal, name, text, total);
    if (atomic_flag_test_and_set(&cards[ordinal].naming))
        return;
    memcpy(cards[ordinal].uuid, text, sizeof text);
    cards[ordinal].card.uuid = cards[ordinal].uuid;
    atomic_store(&cards[ordinal].named, true);
}

void recorded_context_made(CUdevice ordinal, CUcontext context)
{
    if (ordinal < 0 || ordinal >= DEVICE_MAX)
        return;
    atomic_store(&cards[ordinal].context, context);
    atomic_store(&cards[ordinal].card.present, true);
    if (events_are_on())
        name_card(ordinal);
}

void recorded_context_ended(CUcontext context)
{
    for (int i = 0; context && i < DEVICE_MAX; i++) {
        if (atomic_load(&cards[i].context) != context)
            continue;
        atomic_store(&cards[i].context, NULL);
        events_note_bytes(RECORDING_CONTEXT, i, 0, (uint64_t)i + 1);
    }
}

/* ---- begin ---- */

static int start(const char *file, bool stacks, bool late)
{
    const struct recorder_settings settings = {.file = file,
                                               .job = library_options()->group,
                                               .stacks = stacks,
                                               .list_live = late ? list_live : NULL,
                                               .sample = sample};

    for (int i = 0; i < DEVICE_MAX; i++) {
        if (atomic_load(&cards[i].context))
            name_card(i);
    }
    return recorder_start(&settings);
}

int recorded_start(const char *file, bool stacks)
{
    return start(file, stacks, true);
}

/* Runs before NVML's exit handlers, for one last figure. */
static void at_exit(void)
{
    if (!process_is_copy())
        recorder_sync();
}

void recorded_begin(const struct options *options)
{
    if (options->record[0] && start(options->record, options->stacks, false) == 0)
        atexit(at_exit);
}

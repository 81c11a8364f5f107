/* recorded: see recorded.h. */
#include "interpose/recorded.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/account/blocks.h"
#include "interpose/account/device.h"
#include "interpose/account/drivers_pools.h"
#include "interpose/account/inquiry.h"
#include "interpose/base/process.h"
#include "interpose/base/sums.h"
#include "interpose/library.h"
#include "interpose/pool/pools.h"
#include "interpose/see/events.h"
#include "interpose/see/live.h"
#include "interpose/see/owner.h"
#include "interpose/see/recorder.h"
#include "interpose/see/tags.h"

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

static void list_block(uint64_t address, const struct mark *mark, void *argument)
{
    const struct listing *listing = argument;
    struct recording_event event = {.device = (uint16_t)listing->device,
                                    .kind = RECORDING_MALLOC,
                                    .address = address,
                                    .bytes = mark_asked(mark),
                                    .tag = mark->tag};

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

static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER; /* held while the recorder asks the driver */
static bool exiting; /* the driver must not be called any more; guarded by driver_lock */

/* Returns what idles in the driver's own pools of a card. */
static uint64_t driver_idle_on(int ordinal)
{
    uint64_t idle = RECORDER_UNKNOWN;

    pthread_mutex_lock(&driver_lock);
    if (!exiting)
        idle = drivers_pools_idle_on(ordinal);
    pthread_mutex_unlock(&driver_lock);
    return idle;
}

static void sample(void (*used)(int device, uint64_t bytes, uint64_t idle))
{
    for (int i = 0; i < DEVICE_MAX; i++) {
        uint64_t bytes;

        if (atomic_load(&cards[i].context) && atomic_load(&cards[i].named) &&
            measure_used(&cards[i].card, &bytes) == 0)
            used(i, bytes, driver_idle_on(i));
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
    driver.cuDeviceGetName(name, sizeof(name), ordinal);
    device_format_uuid(&uuid, text);
    recorder_name_device(ordinal, name, text, total);
    if (atomic_flag_test_and_set(&cards[ordinal].naming))
        return;
    memcpy(cards[ordinal].uuid, text, sizeof(text));
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

/* ---- figures ---- */

static const char *const kinds[] = {
    [0] = "other",
    [RECORDING_MALLOC] = "malloc",
    [RECORDING_ASYNC] = "async",
    [RECORDING_VMM] = "handle",
    [RECORDING_ARRAY] = "array",
    [RECORDING_GRAPH] = "graph",
    [RECORDING_MANAGED] = "managed",
    [RECORDING_IMPORT] = "imported",
};

bool recorded_owners(void (*visit)(const struct recorded_owner *row, void *argument), void *argument)
{
    uint64_t in_pools[DEVICE_MAX] = {0};
    struct live_row live;

    if (!recorder_sync())
        return false;
    for (size_t i = 0; live_row(i, &live); i++) {
        const unsigned kind = live.kind < sizeof(kinds) / sizeof(*kinds) ? live.kind : 0;
        const struct recorded_owner row = {
            live.device, owner_name(live.owner), kinds[kind], tags_name(live.tag), live.bytes, live.blocks,
            live.peak};

        if (live.bytes || live.blocks)
            visit(&row, argument);
        if (live.kind == RECORDING_MALLOC)
            in_pools[live.device % DEVICE_MAX] += live.bytes;
    }
    for (int i = 0; i < DEVICE_MAX; i++) {
        const uint64_t held = pool_held_on(i);
        const struct recorded_owner rows[] = {
            {i, "gpucap", "idle", "", sums_minus(held, in_pools[i]), 0, 0},
            {i, "driver", "idle", "", recorder_driver_idle(i), 0, 0},
            {i, "driver", "context", "", recorder_context_bytes(i), 0, 0},
        };

        for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
            if (rows[k].bytes)
                visit(&rows[k], argument);
        }
    }
    return true;
}

/* ---- begin ---- */

/* Runs before the driver's and NVML's exit handlers, for one last figure. */
static void at_exit(void)
{
    if (process_is_copy())
        return;
    recorder_sync();
    if (process_lock_at_exit(&driver_lock)) {
        exiting = true;
        pthread_mutex_unlock(&driver_lock);
    }
}

static int start(const char *file, bool stacks, bool late)
{
    static atomic_flag registered = ATOMIC_FLAG_INIT;
    const struct recorder_settings settings = {.file = file,
                                               .job = library_options()->group,
                                               .stacks = stacks,
                                               .list_live = late ? list_live : NULL,
                                               .sample = sample};

    if (!atomic_flag_test_and_set(&registered) && atexit(at_exit)) {
        pthread_mutex_lock(&driver_lock);
        exiting = true; /* without the handler, the driver could be called after its end */
        pthread_mutex_unlock(&driver_lock);
    }
    for (int i = 0; i < DEVICE_MAX; i++) {
        if (atomic_load(&cards[i].context))
            name_card(i);
    }
    return recorder_start(&settings);
}

void recorded_begin(const struct options *options)
{
    if (options->record[0])
        start(options->record, options->stacks, false);
}

/* ---- requests of the command ---- */

struct answer {
    char text[INQUIRY_ANSWER];
    size_t used;
};

static void add_line(const struct recorded_owner *row, void *argument)
{
    struct answer *answer = argument;
    const size_t room = sizeof(answer->text) - answer->used;
    const int length =
        snprintf(answer->text + answer->used, room, "%d\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%s\t%s\t%s\n",
                 row->device, row->bytes, row->blocks, row->peak, row->kind, row->owner, row->tag);

    if (length > 0 && (size_t)length < room)
        answer->used += (size_t)length;
    else
        answer->text[answer->used] = '\0'; /* no room for this one */
}

/* Starts a recording. The request is "start on|off FILE". */
static void start_by_request(const char *words, struct answer *answer)
{
    char path[RECORDING_WRITE_PATH] = "";
    const bool stacks = !strncmp(words, "on ", 3);
    const char *file = strchr(words, ' ');
    const int rc = file ? start(file + 1, stacks, true) : -EINVAL;

    /* Lists what is live before it answers. Later it would also list what the program allocates after the
     * answer. */
    if (rc == 0)
        recorder_sync();
    if (rc == 0 && recorder_runs(path))
        snprintf(answer->text, sizeof(answer->text), "recording to %s\n", path);
    else if (rc == -EALREADY && recorder_runs(path))
        snprintf(answer->text, sizeof(answer->text), "error: it records to %s already\n", path);
    else
        snprintf(answer->text, sizeof(answer->text), "error: %s\n", recorder_why());
}

static void stop_by_request(struct answer *answer)
{
    char path[RECORDING_WRITE_PATH];

    if (!recorder_runs(path)) {
        snprintf(answer->text, sizeof(answer->text), "error: it does not record\n");
        return;
    }
    recorder_sync(); /* one last figure */
    recorder_stop();
    snprintf(answer->text, sizeof(answer->text), "recorded to %s\n", path);
}

void recorded_serve(const char *folder)
{
    static struct answer answer; /* guarded by lock: a thread of each card may serve */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    char text[INQUIRY_QUESTION];

    if (!inquiry_take(folder, text))
        return;
    pthread_mutex_lock(&lock);
    answer.used = 0;
    snprintf(answer.text, sizeof(answer.text), "error: it does not know this request\n");
    if (!strncmp(text, "start ", 6)) {
        start_by_request(text + 6, &answer);
    } else if (!strcmp(text, "stop")) {
        stop_by_request(&answer);
    } else if (!strcmp(text, "owners")) {
        answer.text[0] = '\0';
        if (!recorded_owners(add_line, &answer))
            snprintf(answer.text, sizeof(answer.text),
                     "error: it does not record; `gpucap record start %ld` begins a recording\n",
                     (long)getpid());
    }
    inquiry_answer(folder, answer.text);
    pthread_mutex_unlock(&lock);
}

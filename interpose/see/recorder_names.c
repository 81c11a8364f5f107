/* recorder_names: see recorder_names.h. */
#include "interpose/see/recorder_names.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "interpose/base/files.h"
#include "interpose/see/events.h"
#include "interpose/see/owner.h"
#include "interpose/see/recorder.h"
#include "interpose/see/stacks.h"
#include "interpose/see/tags.h"

#define TEXT_MAX    4096 /* bytes of a name */
#define DEVICES_MAX 64
#define MODULES_MAX 4096

static bool owner_written[OWNER_MAX], tag_written[TAGS_MAX], stack_written[STACKS_MAX + 1];
static uint32_t threads_written[EVENTS_THREADS]; /* by number; 0: none */
static unsigned thread_turn;
static uint64_t modules_written[MODULES_MAX]; /* start addresses */
static size_t module_count;
static unsigned modules_as_of; /* owner_reads when they were last written */
static uint32_t last_thread;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct card {
    char text[256]; /* name, zero, UUID, zero, total; guarded by lock until `length` is set */
    _Atomic size_t length;
    bool written; /* the recorder's thread alone */
} cards[DEVICES_MAX];

void recorder_names_clear(void)
{
    memset(owner_written, 0, sizeof(owner_written));
    memset(tag_written, 0, sizeof(tag_written));
    memset(stack_written, 0, sizeof(stack_written));
    memset(threads_written, 0, sizeof(threads_written));
    module_count = modules_as_of = last_thread = 0;
    for (int i = 0; i < DEVICES_MAX; i++)
        cards[i].written = false;
}

static int add_name(struct recording_write *file, enum recording_type type, uint32_t id, const char *text,
                    size_t length)
{
    struct {
        struct recording_name name;
        char text[TEXT_MAX + 8];
    } record;
    const size_t bytes = length < TEXT_MAX ? length : TEXT_MAX;
    const size_t size = (sizeof(record.name) + bytes + 1 + 7) & ~(size_t)7;
    const int rc = recording_write_reserve(file, size);

    if (rc)
        return rc;
    memset(&record, 0, size);
    record.name.head.type = (uint16_t)type;
    record.name.head.size = (uint16_t)size;
    record.name.id = id;
    memcpy(record.text, text, bytes);
    recording_write_add(file, &record, size);
    return 0;
}

int recorder_names_program(struct recording_write *file, const char *job)
{
    char text[TEXT_MAX];
    size_t used;

    if (gethostname(text, 256))
        text[0] = '\0';
    text[255] = '\0';
    used = strlen(text) + 1;
    used += (size_t)snprintf(text + used, 256, "%.200s", job) + 1;
    const ssize_t length = files_read("/proc/self/cmdline", text + used, sizeof(text) - used);
    for (ssize_t i = 0; i + 1 < length; i++) {
        if (!text[used + (size_t)i])
            text[used + (size_t)i] = ' ';
    }
    return add_name(file, RECORDING_PROGRAM, 0, text, used + (length > 0 ? (size_t)length : 0));
}

static int name_owner(struct recording_write *file, uint16_t owner)
{
    char text[TEXT_MAX];

    if (owner >= OWNER_MAX || owner_written[owner])
        return 0;
    owner_written[owner] = true;
    const int name = snprintf(text, OWNER_NAME, "%s", owner_name(owner));
    const size_t used = (size_t)name + 1;
    const int more = snprintf(text + used, sizeof(text) - used, "%s", owner_path(owner));
    const size_t most = sizeof(text) - used - 1;
    return add_name(file, RECORDING_OWNER, owner, text, used + ((size_t)more < most ? (size_t)more : most));
}

static int name_tag(struct recording_write *file, uint16_t tag)
{
    if (tag == 0 || tag >= TAGS_MAX || tag_written[tag])
        return 0;
    tag_written[tag] = true;
    return add_name(file, RECORDING_TAG, tag, tags_name(tag), strlen(tags_name(tag)));
}

static int name_thread(struct recording_write *file, uint32_t thread)
{
    char place[48], text[32];

    if (thread == last_thread) /* as most events */
        return 0;
    last_thread = thread;
    for (unsigned i = 0; i < EVENTS_THREADS; i++) {
        if (threads_written[i] == thread)
            return 0;
    }
    threads_written[thread_turn++ % EVENTS_THREADS] = thread;
    snprintf(place, sizeof(place), "/proc/self/task/%" PRIu32 "/comm", thread);
    ssize_t length = files_read(place, text, sizeof(text));
    if (length > 0 && text[length - 1] == '\n')
        length--;
    return length > 0 ? add_name(file, RECORDING_THREAD, thread, text, (size_t)length) : 0;
}

void recorder_names_forget_thread(uint32_t thread)
{
    last_thread = 0;
    for (unsigned i = 0; i < EVENTS_THREADS; i++) {
        if (threads_written[i] == thread)
            threads_written[i] = 0;
    }
}

/* ---- cards ---- */

void recorder_name_device(int device, const char *name, const char *uuid, uint64_t total)
{
    if (device < 0 || device >= DEVICES_MAX)
        return;
    struct card *card = &cards[device];
    pthread_mutex_lock(&lock);
    if (!card->length) {
        size_t used = (size_t)snprintf(card->text, 128, "%.120s", name) + 1;

        used += (size_t)snprintf(card->text + used, 64, "%.60s", uuid) + 1;
        card->length = used + (size_t)snprintf(card->text + used, 32, "%" PRIu64, total);
    }
    pthread_mutex_unlock(&lock);
}

static int name_device(struct recording_write *file, uint16_t device)
{
    if (device >= DEVICES_MAX || cards[device].written || !cards[device].length)
        return 0;
    cards[device].written = true;
    return add_name(file, RECORDING_DEVICE, device, cards[device].text, cards[device].length);
}

/* ---- stacks ---- */

/* Writes the mappings of code that the file does not have. */
static int name_modules(struct recording_write *file)
{
    char text[TEXT_MAX];
    struct owner_map module;
    const unsigned now = atomic_load(&owner_reads);
    int rc = 0;

    if (now == modules_as_of)
        return 0;
    modules_as_of = now;
    for (size_t i = 0; rc == 0 && owner_module(i, &module); i++) {
        bool written = module_count == MODULES_MAX;

        for (size_t k = 0; k < module_count && !written; k++)
            written = modules_written[k] == module.start;
        if (written)
            continue;
        modules_written[module_count++] = module.start;
        const int length = snprintf(text, sizeof(text), "%" PRIx64 " %" PRIx64 " %" PRIx64 " %s",
                                    module.start, module.end, module.offset, module.path);
        rc = add_name(file, RECORDING_MODULE, 0, text,
                      (size_t)length < sizeof(text) ? (size_t)length : sizeof(text) - 1);
    }
    return rc;
}

static int name_stack(struct recording_write *file, uint32_t stack)
{
    struct {
        struct recording_stack head;
        uint64_t frames[STACKS_FRAMES];
    } record = {.head.head.type = RECORDING_STACK, .head.id = stack};

    if (stack == 0 || stack > STACKS_MAX || stack_written[stack])
        return 0;
    stack_written[stack] = true;
    const size_t frames = stacks_read(stack, record.frames);
    const size_t size = sizeof(record.head) + frames * sizeof(*record.frames);
    record.head.head.size = (uint16_t)size;
    int rc = name_modules(file);
    if (rc == 0)
        rc = recording_write_reserve(file, size);
    if (rc == 0)
        recording_write_add(file, &record, size);
    return rc;
}

int recorder_names_of(struct recording_write *file, const struct recording_event *event)
{
    int rc = name_thread(file, event->thread);

    rc = rc ? rc : name_owner(file, event->owner);
    rc = rc ? rc : name_tag(file, event->tag);
    rc = rc ? rc : name_device(file, event->device);
    return rc ? rc : name_stack(file, event->stack);
}

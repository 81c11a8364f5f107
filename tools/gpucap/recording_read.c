/* recording_read: see recording_read.h. */
#include "tools/gpucap/recording_read.h"

#include "tools/gpucap/recording_unpack.h"
#include "tools/gpucap/words.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_ROOM   1024
#define REMARK_PARTS 6

static int fail(char why[RECORDING_WHY], const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail(char why[RECORDING_WHY], const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why, RECORDING_WHY, format, args);
    va_end(args);
    return -1;
}

void *recording_room(void **entries, size_t count, size_t *room, size_t size)
{
    if (count == *room) {
        const size_t more = *room ? 2 * *room : FIRST_ROOM;
        void *grown = realloc(*entries, more * size);

        if (!grown)
            return NULL;
        *entries = grown;
        *room = more;
    }
    return (char *)*entries + count * size;
}

/* ---- records ---- */

enum outcome { TAKEN, ODD, NO_MEMORY };

/* Returns true if the `bytes` of such events are added up. */
static bool adds_up(uint16_t type)
{
    return type != RECORDING_LIMIT && type != RECORDING_END;
}

static enum outcome take_event(struct recording *recording, const unsigned char *bytes, size_t size)
{
    struct recording_event event;

    if (size < sizeof(event))
        return ODD;
    memcpy(&event, bytes, sizeof(event));
    if (event.time_ns >= RECORDING_BYTES_MAX ||
        (adds_up(event.head.type) && event.bytes >= RECORDING_BYTES_MAX))
        return ODD;
    if (event.head.type == RECORDING_DROPPED)
        recording->dropped += event.bytes;
    if (event.head.type == RECORDING_END)
        recording->ended = true;
    if (recording->count >= RECORDING_EVENTS_MAX ||
        !recording_room((void **)&recording->events, recording->count, &recording->room, sizeof(event)))
        return NO_MEMORY;
    recording->events[recording->count++] = event;
    return TAKEN;
}

static struct recording_names *names_of(struct recording *recording, uint16_t type)
{
    switch (type) {
    case RECORDING_OWNER:
        return &recording->owners;
    case RECORDING_TAG:
        return &recording->tags;
    case RECORDING_THREAD:
        return &recording->threads;
    case RECORDING_PROGRAM:
        return &recording->program;
    case RECORDING_DEVICE:
        return &recording->devices;
    case RECORDING_MODULE:
        return &recording->modules;
    default:
        return NULL;
    }
}

/* Cleans several texts, each ended by a zero byte. */
static void clean_texts(char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += strlen(text + at) + 1)
        words_clean(text + at);
}

/* The caller has checked that the record has an id. */
static enum outcome take_name(struct recording *recording, struct recording_names *names,
                              const unsigned char *bytes, size_t size)
{
    const size_t length = size - sizeof(struct recording_name);
    struct recording_text entry = {.bytes = (uint32_t)length};

    if (recording->names_bytes + size > RECORDING_NAMES_MAX ||
        !recording_room((void **)&names->entries, names->count, &names->room, sizeof(entry)))
        return NO_MEMORY;
    memcpy(&entry.id, bytes + offsetof(struct recording_name, id), sizeof(entry.id));
    entry.text = malloc(length + 2);
    if (!entry.text)
        return NO_MEMORY;
    memcpy(entry.text, bytes + sizeof(struct recording_name), length);
    entry.text[length] = entry.text[length + 1] = '\0';
    clean_texts(entry.text, length);
    recording->names_bytes += size;
    names->entries[names->count++] = entry;
    return TAKEN;
}

static enum outcome take_stack(struct recording *recording, const unsigned char *bytes, size_t size)
{
    struct recording_stacks *stacks = &recording->stacks;
    const size_t length = size - sizeof(struct recording_stack);
    struct recording_frames entry = {.count = (uint32_t)(length / sizeof(uint64_t))};

    if (recording->names_bytes + size > RECORDING_NAMES_MAX ||
        !recording_room((void **)&stacks->entries, stacks->count, &stacks->room, sizeof(entry)))
        return NO_MEMORY;
    memcpy(&entry.id, bytes + offsetof(struct recording_stack, id), sizeof(entry.id));
    entry.frames = malloc(length + 1);
    if (!entry.frames)
        return NO_MEMORY;
    memcpy(entry.frames, bytes + sizeof(struct recording_stack), entry.count * sizeof(uint64_t));
    recording->names_bytes += size;
    stacks->entries[stacks->count++] = entry;
    return TAKEN;
}

static enum outcome take_record(struct recording *recording, uint16_t type, const unsigned char *bytes,
                                size_t size)
{
    struct recording_names *names = names_of(recording, type);

    if (names)
        return take_name(recording, names, bytes, size);
    if (type == RECORDING_STACK)
        return take_stack(recording, bytes, size);
    if (type >= RECORDING_ALLOC && type <= RECORDING_DRIVER)
        return take_event(recording, bytes, size);
    return TAKEN; /* a type of a later version */
}

/* Takes the records of one block. Returns false without memory. */
static bool take_records(struct recording *recording, const unsigned char *plain, size_t count)
{
    size_t at = 0;

    while (count - at >= sizeof(struct recording_record)) {
        struct recording_record record;

        memcpy(&record, plain + at, sizeof(record));
        if (record.size < sizeof(struct recording_name) || record.size % 8 || record.size > count - at) {
            recording->odd++; /* where the next one begins is not known */
            return true;
        }
        const enum outcome outcome = take_record(recording, record.type, plain + at, record.size);
        if (outcome == NO_MEMORY)
            return false;
        recording->odd += outcome == ODD;
        at += record.size;
    }
    return true;
}

/* ---- order ---- */

/* Merges the sorted halves [0, middle) and [middle, count) of `events`; equal times keep their order. */
static void merge(struct recording_event *events, struct recording_event *spare, size_t middle, size_t count)
{
    size_t left = 0, right = middle, to = 0;

    memcpy(spare, events, middle * sizeof(*events));
    while (left < middle && right < count)
        events[to++] = events[right].time_ns < spare[left].time_ns ? events[right++] : spare[left++];
    memcpy(events + to, spare + left, (middle - left) * sizeof(*events));
}

static void sort_events(struct recording_event *events, struct recording_event *spare, size_t count)
{
    if (count < 2)
        return;
    const size_t middle = count / 2;
    sort_events(events, spare, middle);
    sort_events(events + middle, spare, count - middle);
    if (events[middle].time_ns < events[middle - 1].time_ns)
        merge(events, spare, middle, count);
}

static bool order_events(struct recording *recording)
{
    struct recording_event *spare = malloc((recording->count / 2 + 1) * sizeof(*spare));

    if (!spare)
        return false;
    sort_events(recording->events, spare, recording->count);
    free(spare);
    return true;
}

/* Entries begin with their id. */
static int by_id(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static void order_names(struct recording *recording)
{
    struct recording_names *all[] = {&recording->owners,  &recording->tags,    &recording->threads,
                                     &recording->devices, &recording->program, &recording->modules};

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        if (all[i]->count && all[i] != &recording->modules) /* which have no ids, and keep their order */
            qsort(all[i]->entries, all[i]->count, sizeof(*all[i]->entries), by_id);
    }
    if (recording->stacks.count)
        qsort(recording->stacks.entries, recording->stacks.count, sizeof(*recording->stacks.entries), by_id);
}

/* ---- a file ---- */

bool recording_is(const char *path)
{
    char magic[sizeof(RECORDING_MAGIC)];
    struct stat status;
    /* The opening of a FIFO would wait for a writer. */
    FILE *file = stat(path, &status) == 0 && S_ISREG(status.st_mode) ? fopen(path, "rbe") : NULL;
    const bool is =
        file && fread(magic, sizeof(magic), 1, file) == 1 && !memcmp(magic, RECORDING_MAGIC, sizeof(magic));

    if (file)
        fclose(file);
    return is;
}

static int check_head(struct recording *recording, const void *bytes, size_t count, char why[RECORDING_WHY])
{
    struct recording_head *head = &recording->head;

    if (count < sizeof(*head) || memcmp(bytes, RECORDING_MAGIC, sizeof(head->magic)) != 0)
        return fail(why, "is no recording of gpucap");
    memcpy(head, bytes, sizeof(*head));
    if (head->version != RECORDING_VERSION)
        return fail(why, "is of version %u; this gpucap reads version %d", head->version, RECORDING_VERSION);
    if (head->head_bytes < sizeof(*head) || head->head_bytes > count)
        return fail(why, "is damaged: its first block would begin at byte %u", head->head_bytes);
    return 0;
}

/* Reads blocks until the end or until what follows is none. -1 without memory. */
static int read_blocks(struct recording *recording, const unsigned char *bytes, size_t count)
{
    size_t at = recording->head.head_bytes;
    unsigned char *plain = malloc(RECORDING_BLOCK_MAX);
    int status = plain ? 0 : -1;

    while (status == 0 && count - at >= sizeof(struct recording_block)) {
        struct recording_block head;

        memcpy(&head, bytes + at, sizeof(head));
        if (!recording_block_is_possible(&head) || head.stored > count - at - sizeof(head))
            break;
        recording->blocks++;
        switch (recording_unpack(&head, bytes + at + sizeof(head), plain)) {
        case RECORDING_UNPACK_GOOD:
            status = take_records(recording, plain, head.plain) ? 0 : -1;
            break;
        case RECORDING_UNPACK_DAMAGED:
            recording->damaged++;
            recording->damaged_events += head.plain / sizeof(struct recording_event);
            break;
        case RECORDING_UNPACK_FOREIGN:
            recording->foreign++;
            break;
        }
        at += sizeof(head) + head.stored;
    }
    recording->missing = count - at;
    free(plain);
    return status;
}

static int check_content(const struct recording *recording, char why[RECORDING_WHY])
{
    if (recording->foreign == recording->blocks && recording->blocks)
        return fail(why, "is compressed, and this gpucap was built without zstd (Debian: libzstd-dev)");
    if (recording->damaged == recording->blocks && recording->missing + recording->blocks)
        return fail(why, "is damaged: not one of its blocks can be read");
    return 0;
}

int recording_parse(struct recording *recording, const void *bytes, size_t count, char why[RECORDING_WHY])
{
    memset(recording, 0, sizeof(*recording));
    if (check_head(recording, bytes, count, why))
        return -1;
    if (read_blocks(recording, bytes, count) || !order_events(recording)) {
        const bool many = recording->count >= RECORDING_EVENTS_MAX;

        recording_close(recording);
        return fail(why, many ? "has more than %llu events" : "does not fit into memory",
                    (unsigned long long)RECORDING_EVENTS_MAX);
    }
    order_names(recording);
    if (check_content(recording, why)) {
        recording_close(recording);
        return -1;
    }
    return 0;
}

int recording_open(struct recording *recording, const char *path, char why[RECORDING_WHY])
{
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat stat = {0};

    if (file < 0)
        return fail(why, "cannot be read: %s", strerror(errno));
    if (fstat(file, &stat) || !S_ISREG(stat.st_mode) || stat.st_size == 0) {
        close(file);
        return fail(why, S_ISDIR(stat.st_mode)   ? "is a folder; name the recordings in it"
                         : S_ISREG(stat.st_mode) ? "is empty: nothing was recorded in it"
                                                 : "is no recording of gpucap");
    }
    /* A copy, and not the file itself: another process may cut it off while it is read. */
    void *bytes = malloc((size_t)stat.st_size);
    size_t count = 0;
    ssize_t got = bytes ? 1 : -1;
    while (got > 0 && count < (size_t)stat.st_size) {
        got = read(file, (char *)bytes + count, (size_t)stat.st_size - count);
        count += got > 0 ? (size_t)got : 0;
    }
    close(file);
    const int status = got < 0 ? fail(why, "cannot be read: %s", strerror(errno))
                               : recording_parse(recording, bytes, count, why);
    free(bytes);
    return status;
}

static void forget_names(struct recording_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->entries[i].text);
    free(names->entries);
}

void recording_close(struct recording *recording)
{
    forget_names(&recording->owners);
    forget_names(&recording->tags);
    forget_names(&recording->threads);
    forget_names(&recording->devices);
    forget_names(&recording->program);
    forget_names(&recording->modules);
    for (size_t i = 0; i < recording->stacks.count; i++)
        free(recording->stacks.entries[i].frames);
    free(recording->stacks.entries);
    free(recording->events);
    memset(recording, 0, sizeof(*recording));
}

/* ---- questions ---- */

bool recording_remark(const struct recording *recording, char text[RECORDING_WHY])
{
    const struct {
        uint64_t number;
        const char *one, *many;
    } parts[REMARK_PARTS] = {
        {recording->missing, "the last byte is no whole block", "the last %llu bytes are no whole block"},
        {recording->damaged, "a damaged block was left out", "%llu damaged blocks were left out"},
        {recording->damaged_events, "an event is missing, and figures after it may be wrong",
         "up to %llu events are missing, and figures after them may be wrong"},
        {recording->foreign, "a block is compressed in a way that this gpucap cannot read",
         "%llu blocks are compressed in a way that this gpucap cannot read"},
        {recording->odd, "a record makes no sense and was left out",
         "%llu records make no sense and were left out"},
        {recording->dropped, "the recorder lost an event because it could not keep up",
         "the recorder lost %llu events because it could not keep up"},
    };
    size_t used = 0;

    *text = '\0';
    if (!recording->ended)
        used += (size_t)snprintf(
            text, RECORDING_WHY,
            "the recording was not closed: the program was killed or still runs, or the disk was full");
    for (int i = 0; i < REMARK_PARTS; i++) {
        if (!parts[i].number || used >= RECORDING_WHY - 1)
            continue;
        if (used)
            used += (size_t)snprintf(text + used, RECORDING_WHY - used, "; ");
        if (used < RECORDING_WHY)
            used += (size_t)snprintf(text + used, RECORDING_WHY - used,
                                     parts[i].number == 1 ? parts[i].one : parts[i].many,
                                     (unsigned long long)parts[i].number);
    }
    return *text;
}

const char *recording_text(const struct recording_names *names, uint32_t id, unsigned index)
{
    if (!names->count)
        return "";
    const struct recording_text *entry =
        bsearch(&id, names->entries, names->count, sizeof(*names->entries), by_id);
    if (!entry)
        return "";
    const char *text = entry->text;
    for (; index && text < entry->text + entry->bytes; index--)
        text += strlen(text) + 1;
    return index || text > entry->text + entry->bytes ? "" : text;
}

const struct recording_frames *recording_stack(const struct recording *recording, uint32_t id)
{
    if (!recording->stacks.count)
        return NULL;
    return bsearch(&id, recording->stacks.entries, recording->stacks.count,
                   sizeof(*recording->stacks.entries), by_id);
}

const char *recording_program(const struct recording *recording, enum recording_program part)
{
    if (!recording->program.count)
        return "";
    return recording_text(&recording->program, recording->program.entries[0].id, part);
}

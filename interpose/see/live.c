/* live: see live.h. Open addressing with linear probing and backward-shift deletion, as blocks.c. */
#include "interpose/see/live.h"

#include <pthread.h>
#include <sys/mman.h>

#define FIRST_CAPACITY 4096 /* places; a power of two */

/* A number is an address, a handle or an array: separate name spaces. */
enum { SPACE_NONE, SPACE_ADDRESS, SPACE_HANDLE, SPACE_ARRAY, SPACE_GRAPH };

struct place {
    uint64_t number, bytes;
    uint32_t row;
    uint32_t space; /* SPACE_NONE: empty */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The table belongs to the recorder's thread; the rows are guarded by lock. */
static struct place *table;
static uint64_t capacity, count;
static struct live_row rows[LIVE_ROWS];
static size_t row_count;

static uint32_t space_of(unsigned kind)
{
    switch (kind) {
    case RECORDING_VMM:
        return SPACE_HANDLE;
    case RECORDING_ARRAY:
        return SPACE_ARRAY;
    case RECORDING_GRAPH:
        return SPACE_GRAPH;
    default:
        return SPACE_ADDRESS;
    }
}

static uint64_t home(uint32_t space, uint64_t number)
{
    uint64_t h = (number ^ (uint64_t)space << 56) * UINT64_C(0x9e3779b97f4a7c15);

    h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return h >> 32 & (capacity - 1);
}

static void insert(const struct place *place)
{
    uint64_t i = home(place->space, place->number);

    while (table[i].space != SPACE_NONE)
        i = (i + 1) & (capacity - 1);
    table[i] = *place;
}

static bool make_room(void)
{
    struct place *old = table;
    const uint64_t old_capacity = capacity, wanted = old ? 2 * old_capacity : FIRST_CAPACITY;

    if (2 * (count + 1) <= capacity)
        return true;
    void *memory =
        mmap(NULL, wanted * sizeof(*table), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    table = memory;
    capacity = wanted;
    for (uint64_t i = 0; i < old_capacity; i++) {
        if (old[i].space != SPACE_NONE)
            insert(&old[i]);
    }
    if (old)
        munmap(old, old_capacity * sizeof(*old));
    return true;
}

static struct place *find(uint32_t space, uint64_t number)
{
    if (!table)
        return NULL;
    for (uint64_t i = home(space, number); table[i].space != SPACE_NONE; i = (i + 1) & (capacity - 1)) {
        if (table[i].number == number && table[i].space == space)
            return &table[i];
    }
    return NULL;
}

static void erase(struct place *place)
{
    uint64_t hole = (uint64_t)(place - table);

    for (uint64_t i = (hole + 1) & (capacity - 1); table[i].space != SPACE_NONE;
         i = (i + 1) & (capacity - 1)) {
        const uint64_t h = home(table[i].space, table[i].number);

        if (((i - h) & (capacity - 1)) >= ((i - hole) & (capacity - 1))) {
            table[hole] = table[i];
            hole = i;
        }
    }
    table[hole].space = SPACE_NONE;
    count--;
}

static bool is_row(const struct live_row *row, const struct recording_event *event)
{
    return row->device == event->device && row->owner == event->owner && row->tag == event->tag &&
           row->kind == event->kind;
}

/* Returns the row of an event. The caller holds the lock. Most events belong to the row of the one before. */
static uint32_t row_of(const struct recording_event *event)
{
    static uint32_t last;

    if (last < row_count && is_row(&rows[last], event))
        return last;
    for (last = 0; last < row_count; last++) {
        if (is_row(&rows[last], event))
            return last;
    }
    if (row_count == LIVE_ROWS)
        return last = 0;
    rows[row_count++] = (struct live_row){
        .device = event->device, .owner = event->owner, .tag = event->tag, .kind = event->kind};
    return last;
}

static void add_to_row(uint32_t number, uint64_t bytes)
{
    struct live_row *row = &rows[number];

    row->bytes += bytes;
    row->blocks++;
    if (row->bytes > row->peak)
        row->peak = row->bytes;
}

static void remove_from_row(const struct place *place)
{
    rows[place->row].bytes -= place->bytes;
    rows[place->row].blocks--;
}

void live_add(const struct recording_event *event)
{
    const uint32_t space = space_of(event->kind);
    struct place *known = find(space, event->address);

    if (!known && !make_room())
        return;
    pthread_mutex_lock(&lock);
    const uint32_t row = row_of(event);
    if (known)
        remove_from_row(known);
    add_to_row(row, event->bytes);
    pthread_mutex_unlock(&lock);
    const struct place place = {event->address, event->bytes, row, space};
    if (known) {
        *known = place;
    } else {
        insert(&place);
        count++;
    }
}

/* Removes a block and fills in the event of its release. */
static void take(struct place *place, struct recording_event *event)
{
    pthread_mutex_lock(&lock);
    const struct live_row *row = &rows[place->row];
    event->device = row->device;
    event->kind = row->kind;
    event->owner = row->owner;
    event->tag = row->tag;
    remove_from_row(place);
    pthread_mutex_unlock(&lock);
    event->address = place->number;
    event->bytes = place->bytes;
    erase(place);
}

bool live_take(struct recording_event *event)
{
    struct place *place = find(space_of(event->kind), event->address);

    if (place)
        take(place, event);
    return place != NULL;
}

/* Continues where the last block was found, as blocks_take_of_context does. */
bool live_take_within(uint64_t start, uint64_t bytes, struct recording_event *event)
{
    static uint64_t cursor;

    for (uint64_t n = 0; n < capacity; n++, cursor++) {
        struct place *place = &table[cursor & (capacity - 1)];

        if (place->space == SPACE_ADDRESS && place->number - start < bytes) {
            take(place, event); /* may move a later block into this place */
            return true;
        }
    }
    return false;
}

void live_each(void (*visit)(struct recording_event *event))
{
    for (uint64_t i = 0; i < capacity; i++) {
        if (table[i].space == SPACE_NONE)
            continue;
        const struct live_row row = rows[table[i].row]; /* only this thread writes the rows */
        struct recording_event event = {.head.type = RECORDING_ALLOC,
                                        .device = row.device,
                                        .kind = row.kind,
                                        .address = table[i].number,
                                        .bytes = table[i].bytes,
                                        .owner = row.owner,
                                        .tag = row.tag};

        visit(&event);
    }
}

bool live_row(size_t index, struct live_row *row)
{
    pthread_mutex_lock(&lock);
    const bool is_there = index < row_count;
    if (is_there)
        *row = rows[index];
    pthread_mutex_unlock(&lock);
    return is_there;
}

void live_clear(void)
{
    pthread_mutex_lock(&lock);
    row_count = 0;
    pthread_mutex_unlock(&lock);
    if (table)
        munmap(table, capacity * sizeof(*table));
    table = NULL;
    capacity = count = 0;
}

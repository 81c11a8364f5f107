/* live: see live.h. */
#include "interpose/see/live.h"

#include <pthread.h>

#include "interpose/base/table.h"

/* A number is an address, a handle or an array: separate name spaces. */
enum { SPACE_ADDRESS = 1, SPACE_HANDLE, SPACE_ARRAY, SPACE_GRAPH };

struct place {
    uint64_t number;
    uint32_t space;
    uint32_t row;
    uint64_t bytes;
};
static const struct table_of places = {sizeof(struct place), true};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The table belongs to the recorder's thread; the rows are guarded by lock. */
static struct table table;
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

static struct place *find(const struct recording_event *event)
{
    return table_find(&table, &places,
                      &(struct place){.number = event->address, .space = space_of(event->kind)});
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
    struct place *known = find(event);

    if (!known && table_prepare(&table, &places, 1))
        return;
    pthread_mutex_lock(&lock);
    const uint32_t row = row_of(event);
    if (known)
        remove_from_row(known);
    add_to_row(row, event->bytes);
    pthread_mutex_unlock(&lock);
    const struct place place = {event->address, space_of(event->kind), row, event->bytes};
    if (known)
        *known = place;
    else
        table_put(&table, &places, &place);
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
    table_erase(&table, &places, place);
}

bool live_take(struct recording_event *event)
{
    struct place *place = find(event);

    if (place)
        take(place, event);
    return place != NULL;
}

/* Continues where the last block was found, as blocks_take_of_context does. */
bool live_take_within(uint64_t start, uint64_t bytes, struct recording_event *event)
{
    static uint64_t cursor;

    for (uint64_t n = 0; n < table.capacity; n++, cursor++) {
        struct place *place = table_at(&table, &places, cursor);

        if (place->space == SPACE_ADDRESS && place->number - start < bytes) {
            take(place, event); /* may move a later block into this place */
            return true;
        }
    }
    return false;
}

void live_each(void (*visit)(struct recording_event *event))
{
    const struct place *place;

    for (uint64_t at = 0; (place = table_next(&table, &places, &at));) {
        const struct live_row row = rows[place->row]; /* only this thread writes the rows */
        struct recording_event event = {.head.type = RECORDING_ALLOC,
                                        .device = row.device,
                                        .kind = row.kind,
                                        .address = place->number,
                                        .bytes = place->bytes,
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
    table_close(&table, &places);
}

/* recording_columns: see recording_columns.h. */
#include "tools/gpucap/recording_columns.h"

#include <stdlib.h>
#include <string.h>

#define CONTEXT 0
#define OTHERS  (COLUMNS_NAMED + 1)
#define UNNAMED (COLUMNS_NAMED + 2)

struct ids {
    uint16_t ids[COLUMNS_NAMED];
    size_t count;
    enum timeline_by by;
};

/* Chooses the groups that have most at the peak. */
static void choose_groups(struct columns *columns, const struct timeline *timeline, struct ids *ids)
{
    struct timeline_share *shares;
    const size_t count = timeline_shares(timeline, timeline->live_peak, ids->by, &shares);

    columns->names[CONTEXT] = "CUDA context";
    columns->names[OTHERS] = "others";
    columns->names[UNNAMED] = "not named";
    for (size_t i = 0; i < count && i < COLUMNS_NAMED; i++) {
        columns->names[i + 1] = timeline_name(timeline->recording, ids->by, shares[i].id);
        ids->ids[ids->count++] = shares[i].id;
    }
    free(shares);
}

static size_t group_of(const struct ids *ids, const struct timeline_block *block)
{
    const uint16_t id = timeline_id(block, ids->by);

    for (size_t i = 0; i < ids->count; i++) {
        if (ids->ids[i] == id)
            return i + 1;
    }
    return OTHERS;
}

static int column_of(const struct columns *columns, const struct timeline *timeline, uint64_t time_ns)
{
    const double share = (double)time_ns / (double)(timeline->end_ns + 1);
    const int column = (int)(share * columns->width);

    return column < columns->width ? column : columns->width - 1;
}

static void take_block(uint64_t now[COLUMNS_GROUPS], const struct timeline *timeline, const struct ids *ids,
                       const struct timeline_step *step)
{
    const struct timeline_block *block = &timeline->blocks[step->block];

    if (block->kind == RECORDING_IMPORT)
        return;
    now[group_of(ids, block)] += step->change == TIMELINE_ALLOC ? step->value : -step->value;
}

static void keep(struct columns *columns, int at, const uint64_t now[COLUMNS_GROUPS],
                 const struct timeline_state *state, uint64_t *highest)
{
    struct columns_column *column = &columns->columns[at];
    const uint64_t named = timeline_named(state), used = timeline_used(state);

    column->used = used > column->used ? used : column->used;
    column->limit = state->limit;
    columns->peak = used > columns->peak ? used : columns->peak;
    if (named < *highest)
        return;
    *highest = named;
    memcpy(column->bytes, now, sizeof(column->bytes));
}

static void fill(struct columns *columns, const struct timeline *timeline, const struct ids *ids)
{
    struct timeline_state state = TIMELINE_START;
    uint64_t now[COLUMNS_GROUPS] = {0}, highest = 0;
    int at = 0;

    columns->columns[0].limit = state.limit; /* the first step may be in a later one */
    for (size_t i = 0; i <= timeline->step_count; i++) {
        const int next = i < timeline->step_count ? column_of(columns, timeline, timeline->steps[i].time_ns)
                                                  : columns->width - 1;

        while (at < next) { /* a column begins with what the one before ended with */
            highest = 0;
            keep(columns, ++at, now, &state, &highest);
        }
        if (i == timeline->step_count)
            break;
        if (timeline->steps[i].change <= TIMELINE_FREE)
            take_block(now, timeline, ids, &timeline->steps[i]);
        timeline_advance(&state, timeline, &timeline->steps[i]);
        now[CONTEXT] = state.context;
        now[UNNAMED] = state.unnamed;
        for (int g = 0; g < COLUMNS_GROUPS; g++)
            columns->most[g] = now[g] > columns->most[g] ? now[g] : columns->most[g];
        keep(columns, at, now, &state, &highest);
    }
}

static void mark_wait(struct columns *columns, const struct timeline *timeline,
                      const struct recording_event *wait)
{
    const uint64_t begin = wait->other < wait->time_ns ? wait->time_ns - wait->other : 0;
    const int last = column_of(columns, timeline, wait->time_ns);

    for (int i = column_of(columns, timeline, begin); i <= last; i++)
        columns->columns[i].waits++;
}

bool columns_open(struct columns *columns, const struct timeline *timeline, enum timeline_by by, int width)
{
    struct ids ids = {.by = by};

    memset(columns, 0, sizeof(*columns));
    columns->width = width;
    columns->columns = calloc((size_t)width, sizeof(*columns->columns));
    if (!columns->columns)
        return false;
    choose_groups(columns, timeline, &ids);
    fill(columns, timeline, &ids);
    for (size_t i = 0; i < timeline->mark_count; i++) {
        const struct recording_event *mark = timeline->marks[i];

        if (mark->head.type == RECORDING_REFUSAL)
            columns->columns[column_of(columns, timeline, mark->time_ns)].refusals++;
        else if (mark->head.type == RECORDING_WAIT)
            mark_wait(columns, timeline, mark);
    }
    return true;
}

void columns_close(struct columns *columns)
{
    free(columns->columns);
    memset(columns, 0, sizeof(*columns));
}

/* recording_model: see recording_model.h. */
#include "recording_model.h"

#include "recording_live.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM   1024
#define CONTEXTS_MAX 256 /* of one device; more are nonsense */

/* ---- building ---- */

struct builder {
    struct model *model;
    struct live_map map;
    struct model_state state;
    struct {
        uint64_t context, bytes;
    } contexts[CONTEXTS_MAX];
    size_t context_count;
    bool failed;
};

static void *room_for_one(void **entries, size_t count, size_t *room, size_t size)
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

static void add_step(struct builder *builder, struct model_step step)
{
    struct model *model = builder->model;
    struct model_step *to =
        room_for_one((void **)&model->steps, model->step_count, &model->step_room, sizeof *to);

    if (!to) {
        builder->failed = true;
        return;
    }
    *to = step;
    model->step_count++;
    model_advance(&builder->state, model, to);
}

static void end_block(struct builder *builder, uint32_t index, uint64_t time_ns)
{
    struct model_block *block = &builder->model->blocks[index];

    block->end_ns = time_ns;
    add_step(builder, (struct model_step){time_ns, block->bytes, index, MODEL_FREE, 0});
}

static void add_block(struct builder *builder, const struct recording_event *event)
{
    struct model *model = builder->model;
    uint32_t before;

    if (event->bytes > RECORDING_BYTES_MAX - builder->state.live || model->block_count >= UINT32_MAX)
        return; /* the sum would be nonsense */
    if (live_map_remove(&builder->map, event->address, event->kind, &before)) {
        model->lost++;
        end_block(builder, before, event->time_ns);
    }
    struct model_block *block =
        room_for_one((void **)&model->blocks, model->block_count, &model->block_room, sizeof *block);
    if (!block || !live_map_add(&builder->map, event->address, event->kind, (uint32_t)model->block_count)) {
        builder->failed = true;
        return;
    }
    *block = (struct model_block){
        .start_ns = event->time_ns,
        .end_ns = MODEL_NEVER,
        .address = event->address,
        .bytes = event->bytes,
        .stream = event->other,
        .stack = event->stack,
        .thread = event->thread,
        .owner = event->owner,
        .tag = event->tag,
        .kind = event->kind,
    };
    add_step(builder, (struct model_step){event->time_ns, event->bytes, (uint32_t)model->block_count++,
                                          MODEL_ALLOC, 0});
}

static void free_block(struct builder *builder, const struct recording_event *event)
{
    uint32_t index;

    if (live_map_remove(&builder->map, event->address, event->kind, &index))
        end_block(builder, index, event->time_ns);
    else
        builder->model->unmatched++;
}

/* All contexts together. */
static void set_context(struct builder *builder, const struct recording_event *event)
{
    size_t i = 0;
    uint64_t sum = 0;

    while (i < builder->context_count && builder->contexts[i].context != event->other)
        i++;
    if (i == CONTEXTS_MAX)
        return;
    builder->context_count += i == builder->context_count;
    builder->contexts[i].context = event->other;
    builder->contexts[i].bytes = event->bytes;
    for (i = 0; i < builder->context_count; i++)
        sum += builder->contexts[i].bytes;
    if (sum < RECORDING_BYTES_MAX)
        add_step(builder, (struct model_step){event->time_ns, sum, 0, MODEL_CONTEXT, 0});
}

/* The driver's own figure: what it has beyond all that is known. */
static void set_unnamed(struct builder *builder, const struct recording_event *event)
{
    const uint64_t known = model_used(&builder->state) - builder->state.unnamed;
    const uint64_t beyond = event->bytes > known ? event->bytes - known : 0;

    if (beyond != builder->state.unnamed)
        add_step(builder, (struct model_step){event->time_ns, beyond, 0, MODEL_UNNAMED, 0});
}

static void add_mark(struct builder *builder, const struct recording_event *event)
{
    struct model *model = builder->model;
    const struct recording_event **to =
        room_for_one((void **)&model->marks, model->mark_count, &model->mark_room, sizeof *to);

    if (!to) {
        builder->failed = true;
        return;
    }
    *to = event;
    model->mark_count++;
}

static void take_event(struct builder *builder, const struct recording_event *event)
{
    switch (event->head.type) {
    case RECORDING_ALLOC:
        add_block(builder, event);
        break;
    case RECORDING_FREE:
        free_block(builder, event);
        break;
    case RECORDING_GROW:
    case RECORDING_TRIM:
        if (event->other < RECORDING_BYTES_MAX)
            add_step(builder, (struct model_step){event->time_ns, event->other, 0, MODEL_HELD, 0});
        break;
    case RECORDING_CONTEXT:
        set_context(builder, event);
        break;
    case RECORDING_USED:
        set_unnamed(builder, event);
        break;
    case RECORDING_LIMIT:
        add_step(builder, (struct model_step){event->time_ns,
                                              event->bytes < RECORDING_BYTES_MAX ? event->bytes : MODEL_NO, 0,
                                              MODEL_LIMIT, (uint8_t)event->other});
        break;
    case RECORDING_STITCH:
    case RECORDING_LEND:
    case RECORDING_BORROW:
    case RECORDING_WAIT:
    case RECORDING_REFUSAL:
        add_mark(builder, event);
        break;
    default:
        break;
    }
}

static void find_peaks(struct model *model)
{
    struct model_state state = MODEL_START;
    uint64_t most_used = 0, live_then = 0, most_live = 0;

    for (size_t i = 0; i < model->step_count; i++) {
        model_advance(&state, model, &model->steps[i]);
        const uint64_t used = model_used(&state), named = model_named(&state);
        if (used > most_used || (used == most_used && named > live_then)) {
            most_used = used;
            live_then = named;
            model->peak = i + 1;
        }
        if (named > most_live) {
            most_live = named;
            model->live_peak = i + 1;
        }
    }
}

bool model_open(struct model *model, const struct recording *recording, uint16_t device)
{
    struct builder builder = {.model = model, .state = MODEL_START};

    memset(model, 0, sizeof *model);
    model->recording = recording;
    model->device = device;
    if (recording->count)
        model->end_ns = recording->events[recording->count - 1].time_ns;
    for (size_t i = 0; i < recording->count && !builder.failed; i++) {
        if (recording->events[i].device == device)
            take_event(&builder, &recording->events[i]);
    }
    live_map_close(&builder.map);
    if (builder.failed) {
        model_close(model);
        return false;
    }
    find_peaks(model);
    return true;
}

void model_close(struct model *model)
{
    free(model->blocks);
    free(model->steps);
    free((void *)model->marks);
    memset(model, 0, sizeof *model);
}

static bool names_device(uint16_t type)
{
    return type != RECORDING_END && type != RECORDING_DROPPED;
}

size_t model_devices(const struct recording *recording, uint16_t *devices, size_t room)
{
    size_t count = 0;

    for (size_t i = 0; i < recording->count; i++) {
        const uint16_t device = recording->events[i].device;
        size_t at = 0;

        if (!names_device(recording->events[i].head.type))
            continue;
        while (at < count && devices[at] < device)
            at++;
        if ((at < count && devices[at] == device) || count == room)
            continue;
        memmove(devices + at + 1, devices + at, (count - at) * sizeof *devices);
        devices[at] = device;
        count++;
    }
    return count;
}

/* ---- stepping ---- */

/* What is opened from another process counts there. */
static bool counts_here(const struct model_block *block)
{
    return block->kind != RECORDING_IMPORT;
}

void model_advance(struct model_state *state, const struct model *model, const struct model_step *step)
{
    const uint64_t pooled = model->blocks && model->block_count > step->block &&
                                    model->blocks[step->block].kind == RECORDING_MALLOC
                                ? step->value
                                : 0;

    switch (step->change) {
    case MODEL_ALLOC:
    case MODEL_FREE:
        if (!counts_here(&model->blocks[step->block]))
            break;
        state->live += step->change == MODEL_ALLOC ? step->value : -step->value;
        state->pool_live += step->change == MODEL_ALLOC ? pooled : -pooled;
        break;
    case MODEL_HELD:
        state->held = step->value;
        break;
    case MODEL_CONTEXT:
        state->context = step->value;
        break;
    case MODEL_UNNAMED:
        state->unnamed = step->value;
        break;
    case MODEL_LIMIT:
        state->limit = step->value;
        state->limit_kind = step->limit;
        break;
    default:
        break;
    }
}

struct model_state model_state_after(const struct model *model, size_t steps)
{
    struct model_state state = MODEL_START;

    for (size_t i = 0; i < steps && i < model->step_count; i++)
        model_advance(&state, model, &model->steps[i]);
    return state;
}

size_t model_steps_until(const struct model *model, uint64_t time_ns)
{
    size_t low = 0, high = model->step_count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (model->steps[middle].time_ns <= time_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t model_idle(const struct model_state *state)
{
    return state->held > state->pool_live ? state->held - state->pool_live : 0;
}

uint64_t model_named(const struct model_state *state)
{
    return state->live + state->context + state->unnamed;
}

uint64_t model_used(const struct model_state *state)
{
    return model_named(state) + model_idle(state);
}

/* ---- who holds it ---- */

static uint16_t id_of(const struct model_block *block, enum model_by by)
{
    return by == MODEL_BY_OWNER ? block->owner : by == MODEL_BY_TAG ? block->tag : block->kind;
}

static int largest_share(const void *a, const void *b)
{
    const struct model_share *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

size_t model_shares(const struct model *model, size_t steps, enum model_by by, struct model_share **shares)
{
    size_t last = 0, count = 0;

    for (size_t i = 0; i < model->block_count; i++)
        last = id_of(&model->blocks[i], by) > last ? id_of(&model->blocks[i], by) : last;
    struct model_share *all = calloc(last + 1, sizeof *all);

    *shares = all;
    if (!all)
        return 0;
    for (size_t i = 0; i < steps && i < model->step_count; i++) {
        const struct model_step *step = &model->steps[i];

        if (step->change > MODEL_FREE || !counts_here(&model->blocks[step->block]))
            continue;
        struct model_share *share = &all[id_of(&model->blocks[step->block], by)];
        share->bytes += step->change == MODEL_ALLOC ? step->value : -step->value;
        share->blocks += step->change == MODEL_ALLOC ? 1U : -1U;
    }
    for (size_t id = 0; id <= last; id++) {
        if (!all[id].bytes)
            continue;
        all[count] = all[id];
        all[count++].id = (uint16_t)id;
    }
    qsort(all, count, sizeof *all, largest_share);
    return count;
}

static int largest_block(const void *a, const void *b, void *context)
{
    const struct model_block *blocks = context;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;

    if (blocks[i].bytes != blocks[j].bytes)
        return blocks[i].bytes < blocks[j].bytes ? 1 : -1;
    return (i > j) - (i < j);
}

size_t model_live_blocks(const struct model *model, size_t steps, uint32_t **indices)
{
    bool *live = calloc(model->block_count + 1, sizeof *live);
    size_t count = 0;

    *indices = NULL;
    for (size_t i = 0; live && i < steps && i < model->step_count; i++) {
        const struct model_step *step = &model->steps[i];

        if (step->change > MODEL_FREE)
            continue;
        live[step->block] = step->change == MODEL_ALLOC;
        count += step->change == MODEL_ALLOC ? 1U : (size_t)-1;
    }
    uint32_t *found = live ? malloc((count + 1) * sizeof *found) : NULL;
    if (!found) {
        free(live);
        return 0;
    }
    count = 0;
    for (size_t i = 0; i < model->block_count; i++) {
        if (live[i])
            found[count++] = (uint32_t)i;
    }
    free(live);
    qsort_r(found, count, sizeof *found, largest_block, model->blocks);
    *indices = found;
    return count;
}

static const char *kind_name(uint16_t kind)
{
    static const char *const names[] = {
        [0] = "other",
        [RECORDING_MALLOC] = "cudaMalloc",
        [RECORDING_ASYNC] = "cudaMallocAsync",
        [RECORDING_VMM] = "cuMemCreate",
        [RECORDING_ARRAY] = "array",
        [RECORDING_GRAPH] = "graph",
        [RECORDING_MANAGED] = "managed",
        [RECORDING_IMPORT] = "imported",
    };

    return kind < sizeof names / sizeof *names ? names[kind] : "of a later version";
}

const char *model_name(const struct recording *recording, enum model_by by, uint16_t id)
{
    if (by == MODEL_BY_KIND)
        return kind_name(id);
    const char *name = recording_text(by == MODEL_BY_OWNER ? &recording->owners : &recording->tags, id, 0);
    if (*name)
        return name;
    if (id)
        return by == MODEL_BY_OWNER ? "unknown library" : "unknown tag";
    return by == MODEL_BY_OWNER ? "program" : "no tag";
}

enum model_by model_best_by(const struct model *model, size_t steps)
{
    struct model_share *shares;
    const size_t count = model_shares(model, steps, MODEL_BY_TAG, &shares);
    uint64_t tagged = 0, all = 0;

    for (size_t i = 0; i < count; i++) {
        all += shares[i].bytes;
        tagged += shares[i].id ? shares[i].bytes : 0;
    }
    free(shares);
    return tagged > all / 2 ? MODEL_BY_TAG : MODEL_BY_OWNER;
}

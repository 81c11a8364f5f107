/* page_track: one process on one device, as the page reads it.
 *
 * Two elements: a JSON object with names, marks and sizes of columns, and the columns one behind another, in
 * base64. Numbers in columns are of variable length (page_bytes.h). The columns:
 * - times: for each step, nanoseconds since the step before
 * - codes: for each step, 0 a new block, 1 held, 2 context, 3 unnamed, 4 limit, 5 idle in the driver's pools;
 *   FIRST_FREE + n: the release of the block that came n blocks before the newest one
 * - figures: for each step with a code of 1 to 5, bytes; for a limit one more, because 0 means none
 * - sizes: for each block, bytes
 * - places: for each block, the signed difference to the address of the block before, shifted by `shift`
 * - metas: for each block, its index in `metas`, a list of [owner, tag, kind, stack, thread, stream]
 */
#include "tools/gpucap/page.h"

#include "tools/gpucap/page_bytes.h"
#include "tools/gpucap/recording_frames.h"
#include "tools/gpucap/recording_words.h"
#include "tools/gpucap/why_apart.h"

#include <inttypes.h>
#include <stdlib.h>

#define FIRST_FREE 6
#define MARKS_MAX                                                                                            \
    20000 /* of one track: more cannot be told apart, and the page says how many are left out                \
           */
#define METAS_FIRST 256

enum { TIMES, CODES, FIGURES, SIZES, PLACES, METAS, COLUMNS };

/* ---- what blocks have in common ---- */

struct meta {
    uint64_t stream;
    uint32_t stack, thread;
    uint16_t owner, tag;
    uint8_t kind;
};

struct metas {
    struct meta *entries;
    uint32_t *slots; /* open addressing: index + 1 of an entry, 0: empty */
    size_t count, slot_count;
    bool failed;
};

static uint64_t hash(const struct meta *meta)
{
    uint64_t sum = meta->stream * UINT64_C(0x9e3779b97f4a7c15);

    sum = (sum ^ meta->stack ^ ((uint64_t)meta->thread << 32)) * UINT64_C(0xbf58476d1ce4e5b9);
    sum = (sum ^ meta->owner ^ ((uint64_t)meta->tag << 16) ^ ((uint64_t)meta->kind << 32)) *
          UINT64_C(0x94d049bb133111eb);
    return sum ^ (sum >> 31);
}

static bool same(const struct meta *a, const struct meta *b)
{
    return a->stream == b->stream && a->stack == b->stack && a->thread == b->thread && a->owner == b->owner &&
           a->tag == b->tag && a->kind == b->kind;
}

static uint32_t *slot_of(const struct metas *metas, const struct meta *meta)
{
    size_t at = (size_t)hash(meta) & (metas->slot_count - 1);

    while (metas->slots[at] && !same(&metas->entries[metas->slots[at] - 1], meta))
        at = (at + 1) & (metas->slot_count - 1);
    return &metas->slots[at];
}

static bool metas_grow(struct metas *metas)
{
    const size_t more = metas->slot_count ? 2 * metas->slot_count : METAS_FIRST;
    struct meta *entries = realloc(metas->entries, more * sizeof(*entries));
    uint32_t *slots = calloc(more, sizeof(*slots));

    if (entries)
        metas->entries = entries;
    if (!entries || !slots) {
        free(slots);
        return false;
    }
    free(metas->slots);
    metas->slots = slots;
    metas->slot_count = more;
    for (size_t i = 0; i < metas->count; i++)
        *slot_of(metas, &metas->entries[i]) = (uint32_t)i + 1;
    return true;
}

static uint32_t metas_add(struct metas *metas, const struct timeline_block *block)
{
    const struct meta meta = {block->stream, block->stack, block->thread,
                              block->owner,  block->tag,   block->kind};

    if (metas->failed || (metas->count >= metas->slot_count / 2 && !metas_grow(metas))) {
        metas->failed = true;
        return 0;
    }
    uint32_t *slot = slot_of(metas, &meta);
    if (!*slot) {
        metas->entries[metas->count++] = meta;
        *slot = (uint32_t)metas->count;
    }
    return *slot - 1;
}

/* ---- columns ---- */

/* How many low bits are zero in all addresses. */
static unsigned common_shift(const struct timeline *timeline)
{
    uint64_t all = UINT64_C(1) << 20;

    for (size_t i = 0; i < timeline->block_count; i++)
        all |= timeline->blocks[i].address;
    return (unsigned)__builtin_ctzll(all);
}

static void add_block(struct page_bytes columns[COLUMNS], struct metas *metas,
                      const struct timeline_block *block, unsigned shift, uint64_t *before)
{
    const uint64_t place = block->address >> shift;

    page_bytes_number(&columns[SIZES], block->bytes);
    page_bytes_signed(&columns[PLACES], (int64_t)(place - *before));
    page_bytes_number(&columns[METAS], metas_add(metas, block));
    *before = place;
}

static void fill_columns(const struct timeline *timeline, struct page_bytes columns[COLUMNS],
                         struct metas *metas, unsigned shift)
{
    uint64_t before_ns = 0, before = 0;
    uint32_t newest = 0;

    for (size_t i = 0; i < timeline->step_count; i++) {
        const struct timeline_step *step = &timeline->steps[i];

        page_bytes_number(&columns[TIMES], step->time_ns - before_ns);
        before_ns = step->time_ns;
        switch (step->change) {
        case TIMELINE_ALLOC: /* blocks are in the order of their allocation */
            newest = step->block;
            page_bytes_number(&columns[CODES], 0);
            add_block(columns, metas, &timeline->blocks[step->block], shift, &before);
            break;
        case TIMELINE_FREE:
            page_bytes_number(&columns[CODES], FIRST_FREE + (newest - step->block));
            break;
        case TIMELINE_LIMIT:
            page_bytes_number(&columns[CODES], 4);
            page_bytes_number(&columns[FIGURES], step->value == TIMELINE_NO ? 0 : step->value + 1);
            break;
        default:
            page_bytes_number(&columns[CODES], step->change - TIMELINE_HELD + 1U);
            page_bytes_number(&columns[FIGURES], step->value);
            break;
        }
    }
}

/* ---- JSON ---- */

static void write_names(FILE *out, const char *key, const struct recording_names *names)
{
    fprintf(out, ",\n\"%s\":{", key);
    for (size_t i = 0; i < names->count; i++) {
        if (i && names->entries[i].id == names->entries[i - 1].id)
            continue;
        fprintf(out, "%s\"%u\":", i ? "," : "", names->entries[i].id);
        page_string(out, names->entries[i].text);
    }
    putc('}', out);
}

static void write_metas(FILE *out, const struct metas *metas)
{
    fputs(",\n\"metas\":[", out);
    for (size_t i = 0; i < metas->count; i++) {
        const struct meta *meta = &metas->entries[i];

        fprintf(out, "%s[%u,%u,%u,%u,%u,\"%" PRIx64 "\"]", i ? "," : "", meta->owner, meta->tag, meta->kind,
                meta->stack, meta->thread, meta->stream);
    }
    putc(']', out);
}

static void write_marks(FILE *out, const struct timeline *timeline)
{
    uint64_t apart[RECORDING_APART_COUNT], others;
    char sentence[WHY_APART_SENTENCE];
    size_t written = 0;

    fputs(",\n\"marks\":[", out);
    for (size_t i = 0; i < timeline->mark_count && written < MARKS_MAX; i++) {
        const struct recording_event *mark = timeline->marks[i];

        fprintf(out, "%s[%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%u,%u,%u,%u,%u", written++ ? "," : "",
                mark->head.type, mark->time_ns, mark->bytes, mark->other, mark->owner, mark->tag, mark->limit,
                mark->thread, mark->stack);
        if (mark->head.type == RECORDING_REFUSAL) {
            fprintf(out, ",%" PRIu64 ",", mark->limit == RECORDING_LIMIT_JOB ? mark->address : 0);
            page_string(out, why_apart_read(timeline->recording, mark, apart, &others)
                                 ? why_apart_sentence(apart, sentence)
                                 : "");
            fprintf(out, ",%" PRIu64,
                    others == WHY_APART_UNKNOWN || mark->limit != RECORDING_LIMIT_JOB ? 0 : others);
        }
        putc(']', out);
    }
    fprintf(out, "],\"marksLeft\":%zu", timeline->mark_count - written);
}

static void write_stacks(FILE *out, const struct recording *recording, struct frames *frames)
{
    char text[FRAMES_TEXT];

    fputs(",\n\"stacks\":{", out);
    for (size_t i = 0; i < recording->stacks.count; i++) {
        const struct recording_frames *stack = &recording->stacks.entries[i];

        fprintf(out, "%s\"%u\":[", i ? "," : "", stack->id);
        for (uint32_t j = 0; j < stack->count; j++) {
            if (j)
                putc(',', out);
            page_string(out, frames_text(frames, stack->frames[j], text));
        }
        putc(']', out);
    }
    putc('}', out);
}

/* Returns the size of the card; 0: not known. */
static uint64_t card_bytes(const char *digits)
{
    const unsigned long long bytes = strtoull(digits, NULL, 10);

    return bytes < RECORDING_BYTES_MAX ? bytes : 0;
}

/* Returns whose limit applied (enum recording_limit); 0: none, or that changed. */
static uint8_t limit_kind(const struct timeline *timeline)
{
    const uint8_t last = timeline_state_after(timeline, timeline->step_count).limit_kind;

    for (size_t i = 0; i < timeline->step_count; i++) {
        if (timeline->steps[i].change == TIMELINE_LIMIT && timeline->steps[i].limit != last)
            return 0;
    }
    return last;
}

static void write_program(FILE *out, const struct recording_set *set, const struct recording_track *track)
{
    const struct recording *recording = &set->recordings[track->file];
    char text[RECORDING_SENTENCE], card[RECORDING_CARD], remark[RECORDING_WHY];

    fputs("{\"title\":", out);
    page_string(out, recording_set_title(set, track->file));
    fputs(",\"host\":", out);
    page_string(out, recording_program(recording, RECORDING_HOST_NAME));
    fputs(",\"job\":", out);
    page_string(out, recording_program(recording, RECORDING_JOB_NAME));
    fputs(",\"card\":", out);
    page_string(out, recording_set_card(track, card));
    fputs(",\"gpu\":", out);
    page_string(out, recording_set_gpu(track, card));
    fputs(",\"uuid\":", out);
    page_string(out, recording_text(&recording->devices, track->timeline.device, 1));
    fputs(",\"sentence\":", out);
    page_string(out, recording_sentence(&track->timeline, text));
    fputs(",\"remark\":", out);
    page_string(out, recording_remark(recording, remark) ? remark : "");
    fprintf(out, ",\"cardBytes\":%" PRIu64,
            card_bytes(recording_text(&recording->devices, track->timeline.device, 2)));
    fprintf(out, ",\"pid\":%u,\"device\":%u,\"offset\":%" PRIu64 ",\"end\":%" PRIu64, recording->head.pid,
            track->timeline.device, track->offset_ns, track->timeline.end_ns);
    fprintf(out, ",\"limit\":%u", limit_kind(&track->timeline));
    fprintf(out, ",\"by\":\"%s\"",
            timeline_best_by(&track->timeline, track->timeline.peak) == TIMELINE_BY_TAG ? "tag" : "owner");
}

static bool write_json(FILE *out, const struct recording_set *set, const struct recording_track *track,
                       const struct page_bytes columns[COLUMNS], const struct metas *metas, unsigned shift)
{
    const struct recording *recording = &set->recordings[track->file];
    struct frames frames;

    if (!frames_open(&frames, recording))
        return false;
    fputs("<script type=\"application/json\" class=\"track\">", out);
    write_program(out, set, track);
    write_names(out, "owners", &recording->owners);
    write_names(out, "tags", &recording->tags);
    write_names(out, "threads", &recording->threads);
    write_metas(out, metas);
    write_marks(out, &track->timeline);
    write_stacks(out, recording, &frames);
    fprintf(out, ",\n\"events\":%zu,\"steps\":%zu,\"blocks\":%zu,\"shift\":%u,\"columns\":[",
            recording->count, track->timeline.step_count, track->timeline.block_count, shift);
    for (int i = 0; i < COLUMNS; i++)
        fprintf(out, "%s%zu", i ? "," : "", columns[i].count);
    fputs("]}</script>\n", out);
    frames_close(&frames);
    return true;
}

bool page_track_write(FILE *out, const struct recording_set *set, const struct recording_track *track)
{
    struct page_bytes columns[COLUMNS] = {{0}}, all = {0};
    struct metas metas = {0};
    const unsigned shift = common_shift(&track->timeline);

    fill_columns(&track->timeline, columns, &metas, shift);
    bool good = !metas.failed;
    for (int i = 0; i < COLUMNS; i++) {
        good = good && !columns[i].failed;
        page_bytes_add(&all, columns[i].bytes, columns[i].count);
    }
    good = good && !all.failed && write_json(out, set, track, columns, &metas, shift);
    if (good) {
        fputs("<script type=\"text/plain\" class=\"columns\">", out);
        page_base64(out, all.bytes, all.count);
        fputs("</script>\n", out);
    }
    for (int i = 0; i < COLUMNS; i++)
        page_bytes_free(&columns[i]);
    page_bytes_free(&all);
    free(metas.entries);
    free(metas.slots);
    return good;
}

/* gpucap summary: what a recording says in a screenful: the peak and what made it up, refusals, waits, what
 * was never freed, large blocks that live for moments, idle memory over time, and the smallest cap. Says only
 * what the recording holds or what follows from it. Owns no lock. */
#include "interpose/account/account.h"
#include "interpose/settings/options.h"
#include "tools/gpucap/arguments.h"
#include "tools/gpucap/cli.h"
#include "tools/gpucap/lines.h"
#include "tools/gpucap/recording_print.h"
#include "tools/gpucap/recording_set.h"
#include "tools/gpucap/recording_words.h"
#include "tools/gpucap/replay_fit.h"
#include "tools/gpucap/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES       3  /* of a kind */
#define LARGE_SHARE 64 /* a block is large from this part of the peak on */
#define SHORT_SHARE 20 /* and lives short below this part of the time */
#define WIDTH       80
#define NAME        64 /* characters of a host or job */
#define MIB         (UINT64_C(1) << 20)
#define PARTNERS    4 /* processes that memory was lent to, or borrowed from */

/* ---- peak ---- */

static void print_peak(const struct timeline *timeline)
{
    const struct timeline_state state = timeline_state_after(timeline, timeline->peak);
    struct recording_holder holders[RECORDING_NAMED + 1];
    char used[2 * RECORDING_TIME], at[RECORDING_TIME];

    if (!timeline->peak) {
        puts("  peak         nothing was allocated");
        return;
    }
    printf("  peak         %s", recording_of(timeline_used(&state), state.limit, used));
    if (state.limit != TIMELINE_NO)
        printf(" (%s)", recording_limit_name(state.limit_kind));
    printf(" at %s\n", recording_time(timeline->steps[timeline->peak - 1].time_ns, at));
    const int count = recording_holders(timeline, timeline->peak, holders);
    recording_print_holders("", holders, count);
}

/* ---- marks ---- */

/* Returns true if there are any. */
static bool print_refusals(const struct timeline *timeline)
{
    char size[RECORDING_TIME], at[RECORDING_TIME], name[WORDS_CUT];
    uint64_t count = 0;

    for (size_t i = 0; i < timeline->mark_count; i++) {
        const struct recording_event *mark = timeline->marks[i];

        if (mark->head.type != RECORDING_REFUSAL || count++ >= LINES)
            continue;
        printf("  %-13s%s for %s at %s", count == 1 ? "refused" : "", recording_size(mark->bytes, size),
               words_cut(timeline_name(timeline->recording, TIMELINE_BY_OWNER, mark->owner), 16, name),
               recording_time(mark->time_ns, at));
        printf(" (%s)\n", recording_limit_name(mark->limit));
    }
    if (count > LINES)
        printf("  %-13sand %" PRIu64 " more\n", "", count - LINES);
    if (!count)
        puts("  refused      nothing");
    return count;
}

/* "lent to 4730 700 MiB | borrowed from 4711 96 MiB": PARTNERS at most, the others together. */
static void print_loans(const struct timeline *timeline)
{
    struct recording_holder items[PARTNERS + 1] = {{NULL, 0}};
    char names[PARTNERS][48];
    uint64_t others = 0;
    int count = 0;

    for (size_t i = 0; i < timeline->mark_count; i++) {
        const struct recording_event *mark = timeline->marks[i];
        const bool lent = mark->head.type == RECORDING_LEND;
        char name[48];
        int at = 0;

        if (!lent && mark->head.type != RECORDING_BORROW)
            continue;
        snprintf(name, sizeof(name), lent ? "lent" : "borrowed");
        if (mark->other && mark->other <= INT32_MAX)
            snprintf(name, sizeof(name), lent ? "lent to %u" : "borrowed from %u", (unsigned)mark->other);
        while (at < count && strcmp(names[at], name) != 0)
            at++;
        if (at == PARTNERS) {
            others += mark->bytes;
            continue;
        }
        if (at == count)
            items[count++] = (struct recording_holder){strcpy(names[at], name), 0};
        items[at].bytes += mark->bytes;
    }
    if (others)
        items[count++] = (struct recording_holder){"with others", others};
    if (count)
        recording_print_holders("loans", items, count);
}

static void print_waits(const struct timeline *timeline)
{
    uint64_t waits = 0, all = 0, longest = 0, stitches = 0, stitched = 0;
    char a[RECORDING_TIME], b[RECORDING_TIME];

    for (size_t i = 0; i < timeline->mark_count; i++) {
        const struct recording_event *mark = timeline->marks[i];

        switch (mark->head.type) {
        case RECORDING_WAIT:
            waits++;
            all += mark->other < RECORDING_BYTES_MAX ? mark->other : 0;
            longest = mark->other > longest ? mark->other : longest;
            break;
        case RECORDING_STITCH:
            stitches++;
            stitched += mark->bytes;
            break;
        default:
            break;
        }
    }
    if (waits)
        printf("  waited       %" PRIu64 " request%s, %s in all, at most %s\n", waits, waits == 1 ? "" : "s",
               recording_time(all, a), recording_time(longest, b));
    print_loans(timeline);
    if (stitches)
        printf("  stitched     %" PRIu64 " time%s, %s of free chunks joined\n", stitches,
               stitches == 1 ? "" : "s", recording_size(stitched, a));
}

/* ---- blocks ---- */

struct group {
    uint64_t bytes, count, longest_ns, largest;
    uint16_t owner, tag;
};

static int same_holder(const struct group *group, const struct timeline_block *block)
{
    return group->owner == block->owner && group->tag == block->tag;
}

static int largest_group(const void *a, const void *b)
{
    const struct group *x = a, *y = b;

    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

#define GROUPS_MAX 256
#define GROUP_TEXT (2 * WORDS_CUT + 4)
#define LINE_TEXT  (GROUP_TEXT + 160)

/* One holder of blocks; long names may take a second line. */
static void print_group(const char *label, const char *text)
{
    printf("  %-*s", LINES_LABEL - 2, label);
    lines_text(LINES_LABEL, LINES_LABEL + 2, text);
}

/* Sums up the blocks that `wanted` accepts by owner and tag, largest first. */
static size_t group_blocks(const struct timeline *timeline, struct group groups[GROUPS_MAX],
                           bool (*wanted)(const struct timeline *, const struct timeline_block *))
{
    size_t count = 0;

    for (size_t i = 0; i < timeline->block_count; i++) {
        const struct timeline_block *block = &timeline->blocks[i];
        size_t at = 0;

        if (block->kind == RECORDING_IMPORT || !wanted(timeline, block))
            continue;
        while (at < count && !same_holder(&groups[at], block))
            at++;
        if (at == GROUPS_MAX)
            continue;
        if (at == count)
            groups[count++] = (struct group){.owner = block->owner, .tag = block->tag};
        const uint64_t lived = block->end_ns == TIMELINE_NEVER ? 0 : block->end_ns - block->start_ns;
        groups[at].bytes += block->bytes;
        groups[at].count++;
        groups[at].largest = block->bytes > groups[at].largest ? block->bytes : groups[at].largest;
        groups[at].longest_ns = lived > groups[at].longest_ns ? lived : groups[at].longest_ns;
    }
    qsort(groups, count, sizeof(*groups), largest_group);
    return count;
}

static const char *group_name(const struct timeline *timeline, const struct group *group,
                              char text[GROUP_TEXT])
{
    const char *owner = timeline_name(timeline->recording, TIMELINE_BY_OWNER, group->owner);
    char first[WORDS_CUT], second[WORDS_CUT];

    if (group->tag)
        snprintf(text, GROUP_TEXT, "%s (%s)", words_cut(owner, 16, first),
                 words_cut(timeline_name(timeline->recording, TIMELINE_BY_TAG, group->tag), 20, second));
    else
        snprintf(text, GROUP_TEXT, "%s", words_cut(owner, 40, first));
    return text;
}

static bool is_leak(const struct timeline *timeline, const struct timeline_block *block)
{
    (void)timeline;
    return block->end_ns == TIMELINE_NEVER;
}

static void print_leaks(const struct timeline *timeline)
{
    struct group groups[GROUPS_MAX];
    const size_t count = group_blocks(timeline, groups, is_leak);
    char name[GROUP_TEXT], size[RECORDING_TIME], text[LINE_TEXT];
    /* The program may still run, or was killed before it could free anything. */
    const char *label = timeline->recording->ended ? "never freed" : "live at end";

    if (!count) {
        printf("  %-13snothing\n", label);
        return;
    }
    for (size_t i = 0; i < count && i < LINES; i++) {
        snprintf(text, sizeof(text), "%s in %" PRIu64 " block%s of %s", recording_size(groups[i].bytes, size),
                 groups[i].count, groups[i].count == 1 ? "" : "s", group_name(timeline, &groups[i], name));
        print_group(i ? "" : label, text);
    }
    if (count > LINES)
        printf("  %-13sand blocks of %zu other holders\n", "", count - LINES);
}

static bool is_short_lived(const struct timeline *timeline, const struct timeline_block *block)
{
    if (block->end_ns == TIMELINE_NEVER)
        return false;
    return (block->end_ns - block->start_ns) * SHORT_SHARE < timeline->end_ns;
}

static void print_short_lived(const struct timeline *timeline)
{
    struct group groups[GROUPS_MAX];
    const struct timeline_state state = timeline_state_after(timeline, timeline->peak);
    const size_t count = group_blocks(timeline, groups, is_short_lived);
    char name[GROUP_TEXT], size[RECORDING_TIME], span[RECORDING_TIME], text[LINE_TEXT];
    int lines = 0;

    for (size_t i = 0; i < count && lines < LINES; i++) {
        if (groups[i].largest < timeline_used(&state) / LARGE_SHARE)
            continue;
        snprintf(text, sizeof(text), "%s: up to %s, %" PRIu64 " time%s, %s at most",
                 group_name(timeline, &groups[i], name), recording_size(groups[i].largest, size),
                 groups[i].count, groups[i].count == 1 ? "" : "s",
                 recording_time(groups[i].longest_ns, span));
        print_group(lines++ ? "" : "short-lived", text);
    }
}

/* ---- over time ---- */

static void print_idle(const struct timeline *timeline)
{
    struct timeline_state state = TIMELINE_START;
    double weighted = 0, span = 0;
    uint64_t most = 0, most_at = 0;
    char size[RECORDING_TIME], at[RECORDING_TIME];

    for (size_t i = 0; i < timeline->step_count; i++) {
        const uint64_t next =
            i + 1 < timeline->step_count ? timeline->steps[i + 1].time_ns : timeline->end_ns;

        timeline_advance(&state, timeline, &timeline->steps[i]);
        if (!state.held)
            continue;
        const uint64_t idle = timeline_idle(&state);
        const double ns = (double)(next - timeline->steps[i].time_ns);
        weighted += ns * (double)idle / (double)state.held;
        span += ns;
        /* What the pool has just taken is for the block of the next step. */
        if (idle > most && timeline->steps[i].change != TIMELINE_HELD) {
            most = idle;
            most_at = timeline->steps[i].time_ns;
        }
    }
    if (span > 0 && !most)
        puts("  idle         nothing in the pool");
    else if (span > 0)
        printf("  idle         %.0f %% of the pool in the mean; at most %s, at %s\n", 100 * weighted / span,
               recording_size(most, size), recording_time(most_at, at));
}

static void print_bound(const struct timeline *timeline)
{
    const struct timeline_state state = timeline_state_after(timeline, timeline->live_peak);
    char size[RECORDING_TIME], at[RECORDING_TIME];

    if (!timeline->live_peak)
        return;
    printf("  would fit    not below %s: so much was live at once, at %s\n",
           recording_size(timeline_named(&state), size),
           recording_time(timeline->steps[timeline->live_peak - 1].time_ns, at));
}

/* Returns the first device of a recording, the only one that a replay uses. */
static const struct recording_track *first_of(const struct recording_set *set, int file)
{
    const struct recording_track *track = set->tracks;

    while (track->file != file)
        track++;
    return track;
}

/* Prints the smallest limit: what the pool needs in a replay without the refused requests, plus the contexts
 * and the library's reserve. */
static void print_fit(const struct recording_set *set, const struct recording_track *track, bool refused)
{
    const struct timeline *timeline = &track->timeline;
    const struct timeline_state state = timeline_state_after(timeline, timeline->live_peak);
    struct recording_holder parts[] = {
        {"blocks (replayed)", 0},
        {timeline->measured ? "CUDA context" : "CUDA context (a guess)",
         timeline->measured ? state.context + state.unnamed : ACCOUNT_CONTEXT_GUESS},
        {"reserve", OPTIONS_RESERVE_STANDARD},
    };
    char why[RECORDING_WHY];
    uint64_t sum = 0;

    if (!timeline->live_peak)
        return;
    const char *path = set->paths[track->file];
    const bool is_first = track == first_of(set, track->file);
    if (!is_first)
        snprintf(why, sizeof(why), "only the first card of a recording is replayed");
    if (!is_first || replay_fit(path, timeline, &parts[0].bytes, why)) {
        print_bound(timeline);
        cli_fail("summary: %s: that is only a lower bound: %s", path, why);
        return;
    }
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        sum += parts[i].bytes;
    printf("  would fit    with --max=%" PRIu64 "M%s:\n", (sum + MIB - 1) / MIB,
           refused ? ", without what was refused" : "");
    recording_print_holders("", parts, sizeof(parts) / sizeof(*parts));
}

static void print_process(const struct recording_set *set, const struct recording_track *track)
{
    const struct recording *recording = &set->recordings[track->file];
    const char *host = recording_program(recording, RECORDING_HOST_NAME);
    const char *job = recording_program(recording, RECORDING_JOB_NAME);
    char card[RECORDING_CARD], span[RECORDING_TIME], title[WORDS_CUT], names[2][WORDS_CUT];
    char text[3 * WORDS_CUT + RECORDING_CARD];

    puts(words_cut(recording_set_title(set, track->file), WIDTH, title));
    snprintf(text, sizeof(text), "process %u%s%s%s%s, %s, %s, %zu event%s", recording->head.pid,
             *host ? " on " : "", words_cut(host, NAME, names[0]), *job ? ", job " : "",
             words_cut(job, NAME, names[1]), recording_set_card(track, card),
             recording_time(track->timeline.end_ns, span), recording->count,
             recording->count == 1 ? "" : "s");
    lines_text(0, 2, text);
    putchar('\n');
}

static void print_track(const struct recording_set *set, const struct recording_track *track, bool fit)
{
    const struct recording *recording = &set->recordings[track->file];

    print_process(set, track);
    print_peak(&track->timeline);
    const bool refused = print_refusals(&track->timeline);
    print_waits(&track->timeline);
    print_leaks(&track->timeline);
    print_short_lived(&track->timeline);
    print_idle(&track->timeline);
    if (fit)
        print_fit(set, track, refused);
    else
        print_bound(&track->timeline);
    if (recording->dropped)
        printf("  dropped      %" PRIu64 " events: figures may be off\n", recording->dropped);
    if (track->timeline.unmatched)
        printf("  before       %" PRIu64 " blocks were allocated before the recording began\n",
               track->timeline.unmatched);
}

int cmd_summary(const struct arguments *arguments)
{
    struct recording_set set;
    int status = recording_set_open(&set, "summary", arguments->operands, arguments->count);

    if (status)
        return status;
    for (int i = 0; i < set.track_count; i++) {
        if (i)
            putchar('\n');
        print_track(&set, &set.tracks[i], arguments_value(arguments, "fit") != NULL);
    }
    return recording_set_close(&set, 0);
}

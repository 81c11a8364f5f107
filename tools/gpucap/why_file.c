/* why_file: see why_file.h. Says only what the recordings hold or what follows from it. */
#include "tools/gpucap/why_file.h"

#include "interpose/base/quote.h"
#include "interpose/base/sums.h"
#include "interpose/settings/options.h"
#include "tools/gpucap/recording_frames.h"
#include "tools/gpucap/recording_print.h"
#include "tools/gpucap/recording_set.h"
#include "tools/gpucap/recording_words.h"
#include "tools/gpucap/why_apart.h"
#include "tools/gpucap/lines.h"
#include "tools/gpucap/words.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG_PATH  22 /* beside it is no room for words */
#define MIB        (UINT64_C(1) << 20)
#define WIDTH      80
#define HEADING    96 /* characters of what happened */
#define FRAMES     3  /* of the call stack that are shown */
#define EARLIER    3  /* refusals that are named beside the last one */
#define NEIGHBOURS 4
#define LITTLE     (16 * MIB)

bool why_names_file(const char *word)
{
    static const char ending[] = ".gpucap";
    const size_t length = strlen(word), tail = sizeof(ending) - 1;

    if (!word[strspn(word, "0123456789")])
        return false;
    return strchr(word, '/') || (length > tail && !strcmp(word + length - tail, ending)) ||
           recording_is(word); /* a program or folder here may have the name of a job */
}

/* ---- one refusal ---- */

struct refusal {
    const struct recording_set *set;
    const struct recording_track *track;
    const struct timeline *timeline;
    const struct recording_event *event;
    size_t steps;                /* until it */
    struct timeline_state state; /* its limit is the one that refused */
    uint64_t second;             /* the process's own limit if the job's refused, or the other way round;
                                  * TIMELINE_NO: none */
    bool explained;              /* the recording says why idle memory did not serve */
    uint64_t others;             /* what the job's others had; WHY_APART_UNKNOWN: not known */
    uint64_t apart[RECORDING_APART_COUNT];
};

/* Returns the size of the card; 0: not known. */
static uint64_t card_bytes(const struct refusal *refusal)
{
    return strtoull(recording_text(&refusal->timeline->recording->devices, refusal->timeline->device, 2),
                    NULL, 10);
}

/* Returns true if what is free on the card is kept for other jobs. */
static bool is_kept(const struct refusal *refusal)
{
    return refusal->event->limit == RECORDING_LIMIT_KEPT;
}

/* Returns true if the card was full, or kept for other jobs, and no limit refused. */
static bool is_card(const struct refusal *refusal)
{
    return refusal->event->limit == RECORDING_LIMIT_CARD || is_kept(refusal);
}

/* Returns what the CUDA context held, if that was measured only after the refusal; else 0. */
static uint64_t context_beside(const struct refusal *refusal)
{
    return refusal->state.context ? 0
                                  : timeline_state_after(refusal->timeline, refusal->timeline->peak).context;
}

/* Returns what this process had in use, without idle memory, and asked for. */
static uint64_t needed(const struct refusal *refusal)
{
    return timeline_named(&refusal->state) + context_beside(refusal) + refusal->event->bytes;
}

/* Returns true if the card is smaller than that: then neither a limit nor another program is the reason. */
static bool is_too_small(const struct refusal *refusal)
{
    const uint64_t total = card_bytes(refusal);

    return refusal->event->other < refusal->event->bytes && total && needed(refusal) > total;
}

static uint64_t shortage(const struct refusal *refusal)
{
    const uint64_t fitted = refusal->event->other;

    if (is_too_small(refusal) && (!is_card(refusal) || !fitted)) /* which is not known */
        return needed(refusal) - card_bytes(refusal);
    if (!fitted && !is_card(refusal) && refusal->state.limit != TIMELINE_NO) {
        /* What is in use may reach into the reserve, or beyond a limit that was lowered. If it is not known
         * what the job's others have, at most all of the reserve is missing. */
        const bool is_job = refusal->event->limit == RECORDING_LIMIT_JOB;
        const bool is_known = is_job && refusal->others != WHY_APART_UNKNOWN;
        const uint64_t beside =
            sums_minus(needed(refusal) + OPTIONS_RESERVE_STANDARD + (is_known ? refusal->others : 0),
                       refusal->state.limit);

        if (beside > refusal->event->bytes)
            return beside;
        return refusal->event->bytes + (is_job && !is_known ? OPTIONS_RESERVE_STANDARD : 0);
    }
    return refusal->event->bytes > fitted ? refusal->event->bytes - fitted : refusal->event->bytes;
}

/* Returns true if the limit would have to be larger than the card. */
static bool is_above_card(const struct refusal *refusal)
{
    return !is_card(refusal) && !is_too_small(refusal) && refusal->state.limit != TIMELINE_NO &&
           card_bytes(refusal) && refusal->state.limit + shortage(refusal) > card_bytes(refusal);
}

/* Returns what the second limit would have to be; 0: it is high enough. */
static uint64_t needed_second(const struct refusal *refusal)
{
    const bool is_job = refusal->event->limit != RECORDING_LIMIT_JOB && refusal->others != WHY_APART_UNKNOWN;
    const uint64_t least = needed(refusal) + OPTIONS_RESERVE_STANDARD + (is_job ? refusal->others : 0);

    return refusal->second < least ? least : 0;
}

static void print_asked(const struct refusal *refusal)
{
    const struct recording *recording = refusal->timeline->recording;
    const struct recording_event *event = refusal->event;
    const char *thread = recording_text(&recording->threads, event->thread, 0);
    const struct recording_frames *stack = event->stack ? recording_stack(recording, event->stack) : NULL;
    struct frames frames;
    char size[RECORDING_TIME], text[FRAMES_TEXT], name[WORDS_CUT], tag[WORDS_CUT] = "", line[3 * WORDS_CUT];

    if (event->tag)
        words_cut(timeline_name(recording, TIMELINE_BY_TAG, event->tag), 20, tag);
    snprintf(line, sizeof(line), "%s by %s%s%s%s, thread %u%s%.16s", recording_size(event->bytes, size),
             words_cut(timeline_name(recording, TIMELINE_BY_OWNER, event->owner), 24, name), *tag ? " (" : "",
             tag, *tag ? ")" : "", event->thread, *thread ? " " : "", thread);
    printf("  %-*s", LINES_LABEL - 2, "asked");
    lines_text(LINES_LABEL, LINES_LABEL, line);
    if (!stack || !frames_open(&frames, recording))
        return;
    for (uint32_t i = 0, shown = 0; i < stack->count && shown < FRAMES; i++) {
        frames_text(&frames, stack->frames[i], text);
        if (!frames_is_runtime(text))
            printf("  %-13s%.64s\n", shown++ ? "" : "called from", text);
    }
    frames_close(&frames);
}

/* Prints the limit of a request that no setting refused. */
static void print_card_limit(const struct refusal *refusal)
{
    char left[RECORDING_TIME];

    if (is_too_small(refusal))
        printf("  limit        the card itself, which has %s\n", recording_size(card_bytes(refusal), left));
    else if (is_kept(refusal))
        printf("  limit        kept for other jobs (--min); at most %s would have fitted\n",
               recording_size(refusal->event->other, left));
    else if (refusal->event->other >= refusal->event->bytes)
        puts("  limit        none: it left enough; the driver refused, or memory came too late");
    else if (refusal->event->other)
        printf("  limit        the card itself was full: at most %s would have fitted\n",
               recording_size(refusal->event->other, left));
    else
        puts("  limit        the card itself was full");
}

static void print_limit(const struct refusal *refusal)
{
    char limit[RECORDING_TIME], left[RECORDING_TIME];

    if (is_card(refusal)) {
        print_card_limit(refusal);
        return;
    }
    if (refusal->state.limit == TIMELINE_NO)
        printf("  limit        %s", recording_limit_name(refusal->event->limit));
    else
        printf(
            "  limit        %s, %s", recording_size(refusal->state.limit, limit),
            recording_limit_name(refusal->event->limit ? refusal->event->limit : refusal->state.limit_kind));
    if (refusal->event->other)
        printf("; at most %s would have fitted\n", recording_size(refusal->event->other, left));
    else
        puts("; nothing was left");
}

static void print_used(const struct refusal *refusal)
{
    char used[RECORDING_TIME];

    printf("  in use       %s by this process%s\n", recording_size(timeline_used(&refusal->state), used),
           !refusal->timeline->measured ? " beside its CUDA context (not measured)"
           : context_beside(refusal)    ? " beside its CUDA context"
                                        : "");
}

static void print_owners(const struct refusal *refusal)
{
    const struct recording *recording = refusal->timeline->recording;
    struct recording_holder items[RECORDING_NAMED];
    struct timeline_share *shares;
    const size_t count = timeline_shares(refusal->timeline, refusal->steps, TIMELINE_BY_OWNER, &shares);
    int used = 0;

    for (size_t i = 0; i < count && used < RECORDING_NAMED; i++)
        items[used++] = (struct recording_holder){timeline_name(recording, TIMELINE_BY_OWNER, shares[i].id),
                                                  shares[i].bytes};
    if (used)
        recording_print_holders("owners", items, used);
    free(shares);
}

/* Prints the number and bytes of live blocks by size. */
static void print_sizes(const struct refusal *refusal)
{
    static const struct {
        const char *name;
        uint64_t from;
    } classes[] = {{"of 64 MiB and more", 64 * MIB}, {"of 1 to 64 MiB", MIB}, {"below 1 MiB", 0}};
    uint64_t bytes[3] = {0}, blocks[3] = {0};
    char names[3][48];
    struct recording_holder items[3];
    uint32_t *live;
    const size_t count = timeline_live_blocks(refusal->timeline, refusal->steps, &live);
    int used = 0;

    for (size_t i = 0; i < count; i++) {
        const uint64_t size = refusal->timeline->blocks[live[i]].bytes;
        const int class = size >= classes[0].from ? 0 : size >= classes[1].from ? 1 : 2;

        bytes[class] += size;
        blocks[class]++;
    }
    free(live);
    for (int i = 0; i < 3; i++) {
        if (!blocks[i])
            continue;
        snprintf(names[used], sizeof(names[used]), "%" PRIu64 " %s", blocks[i], classes[i].name);
        items[used] = (struct recording_holder){names[used], bytes[i]};
        used++;
    }
    if (used)
        recording_print_holders("blocks", items, used);
}

static int by_address(const void *a, const void *b, void *context)
{
    const struct timeline_block *blocks = context;
    const uint64_t x = blocks[*(const uint32_t *)a].address, y = blocks[*(const uint32_t *)b].address;

    return (x > y) - (x < y);
}

/* Returns the largest gap between two live blocks of the pool. Ignores gaps larger than `idle`: they are
 * address space without memory. */
static uint64_t largest_hole(const struct refusal *refusal, uint64_t idle)
{
    struct timeline_block *blocks = refusal->timeline->blocks;
    uint32_t *live;
    const size_t count = timeline_live_blocks(refusal->timeline, refusal->steps, &live);
    uint64_t end = UINT64_MAX, largest = 0;

    if (count)
        qsort_r(live, count, sizeof(*live), by_address, blocks);
    for (size_t i = 0; i < count; i++) {
        const struct timeline_block *block = &blocks[live[i]];

        if (block->kind != RECORDING_MALLOC)
            continue;
        if (block->address > end && block->address - end <= idle && block->address - end > largest)
            largest = block->address - end;
        end = block->address + block->bytes;
    }
    free(live);
    return largest;
}

static void print_idle(const struct refusal *refusal)
{
    const uint64_t idle = timeline_idle(&refusal->state);
    char size[RECORDING_TIME], hole[RECORDING_TIME];

    if (refusal->explained) {
        why_apart_print("idle", refusal->apart);
        return;
    }
    if (idle < MIB) {
        puts("  idle         nothing: nothing could be given back");
        return;
    }
    printf("  idle         %s in its pool", recording_size(idle, size));
    const uint64_t largest = largest_hole(refusal, idle);
    if (largest)
        printf("; the largest hole between blocks is %s", recording_size(largest, hole));
    putchar('\n');
}

/* Prints what the other recorded processes held at that moment. */
static void print_neighbours(const struct refusal *refusal)
{
    const uint64_t now = refusal->track->offset_ns + refusal->event->time_ns;
    char used[RECORDING_TIME];
    int shown = 0;

    for (int i = 0; i < refusal->set->track_count; i++) {
        const struct recording_track *other = &refusal->set->tracks[i];
        char idle[RECORDING_TIME];

        const bool is_over = other->offset_ns + other->timeline.end_ns < now;

        /* One that was not closed may have gone on holding what it had last. */
        if (other->file == refusal->track->file || other->offset_ns > now ||
            (is_over && refusal->set->recordings[other->file].ended) ||
            !recording_set_same_card(other, refusal->track) || shown == NEIGHBOURS)
            continue;
        const struct timeline_state state = timeline_state_after(
            &other->timeline, timeline_steps_until(&other->timeline, now - other->offset_ns));
        printf("  %-13sprocess %u %s %s, of which %s idled\n", shown++ ? "" : "neighbours",
               refusal->set->recordings[other->file].head.pid, is_over ? "last had" : "had",
               recording_size(timeline_used(&state), used),
               timeline_idle(&state) ? recording_size(timeline_idle(&state), idle) : "nothing");
    }
    if (shown || refusal->event->limit != RECORDING_LIMIT_JOB || refusal->others == WHY_APART_UNKNOWN)
        return;
    if (refusal->others)
        printf("  neighbours   the job's others had %s: add their recordings\n",
               recording_size(refusal->others, used));
    else
        puts("  neighbours   none: the job's others had nothing");
}

/* Prints the reserve, without which limit, use and rest do not add up. */
static void print_reserve(const struct refusal *refusal)
{
    const bool is_job = refusal->event->limit == RECORDING_LIMIT_JOB && refusal->others != WHY_APART_UNKNOWN;
    const uint64_t counted =
        timeline_used(&refusal->state) + refusal->event->other + (is_job ? refusal->others : 0);
    char size[RECORDING_TIME];

    if (is_card(refusal) || !refusal->timeline->measured || refusal->state.limit == TIMELINE_NO ||
        refusal->state.limit < counted + MIB ||
        refusal->state.limit - counted > OPTIONS_RESERVE_STANDARD + LITTLE)
        return;
    printf("  kept free    %s for the driver's own growth (--reserve)\n",
           recording_size(refusal->state.limit - counted, size));
}

/* ---- what to try ---- */

static uint64_t tagged_activation(const struct refusal *refusal)
{
    struct timeline_share *shares;
    const size_t count = timeline_shares(refusal->timeline, refusal->steps, TIMELINE_BY_TAG, &shares);
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        if (strstr(timeline_name(refusal->timeline->recording, TIMELINE_BY_TAG, shares[i].id), "activation"))
            bytes += shares[i].bytes;
    }
    free(shares);
    return bytes;
}

static void print_remedy(const struct refusal *refusal)
{
    const uint64_t short_of = shortage(refusal), activations = tagged_activation(refusal);
    char size[RECORDING_TIME], second[RECORDING_TIME];

    if (is_card(refusal) && refusal->event->other >= refusal->event->bytes)
        return; /* by all figures it did fit */
    printf(is_too_small(refusal) ? "  would fit    on a card %s larger"
           : is_kept(refusal)    ? "  would fit    with %s less kept for other jobs"
           : is_card(refusal)    ? "  would fit    with %s more of the card free"
                                 : "  would fit    with a limit %s higher",
           recording_size(short_of, size));
    if (activations > short_of)
        printf(", or with a batch about %.0f %% smaller",
               100.0 * (double)short_of / (double)activations + 0.5);
    putchar('\n');
    if (needed_second(refusal) && !is_too_small(refusal))
        printf("               and the limit of the %s, %s, %s higher\n",
               refusal->event->limit == RECORDING_LIMIT_JOB ? "process" : "job",
               recording_size(refusal->second, second),
               recording_size(needed_second(refusal) - refusal->second, size));
    if (is_above_card(refusal))
        printf("  the card     has only %s in all\n", recording_size(card_bytes(refusal), size));
    if (refusal->event->limit == RECORDING_LIMIT_ADMIN && !is_too_small(refusal))
        puts("               which only the administrator can set (" OPTIONS_ADMIN_FILE ")");
}

/* Returns true if the process of the recording used other cards too. */
static bool has_several_cards(const struct recording_set *set, const struct recording_track *track)
{
    bool several = false;

    for (int i = 0; i < set->track_count; i++)
        several = several || (set->tracks[i].file == track->file && &set->tracks[i] != track);
    return several;
}

/* The setting that the limit comes from. One process of a job has a limit of its own by --each. */
static const char *limit_setting(const struct recording *recording, uint8_t kind)
{
    return kind == RECORDING_LIMIT_PROCESS && *recording_program(recording, RECORDING_JOB_NAME)
               ? "gpucap run --each"
               : "gpucap run --max";
}

static void print_advice(const struct refusal *refusal)
{
    const uint64_t missing = shortage(refusal);
    char word[PATH_MAX];
    int count = 0;

    if (is_card(refusal) && !is_too_small(refusal))
        why_try_card(&count, is_kept(refusal), "");
    else if (!is_too_small(refusal) && refusal->event->limit != RECORDING_LIMIT_ADMIN &&
             refusal->state.limit != TIMELINE_NO && !is_above_card(refusal)) {
        const uint64_t first = refusal->state.limit + missing, second = needed_second(refusal);

        if (second && refusal->event->limit == RECORDING_LIMIT_JOB)
            why_try_limits(&count, first, second);
        else if (second)
            why_try_limits(&count, second, first);
        else
            why_try_limit(&count, limit_setting(refusal->timeline->recording, refusal->event->limit), first,
                          has_several_cards(refusal->set, refusal->track) ? " ...   (for every card)"
                                                                          : " ...");
    }
    if (refusal->event->limit == RECORDING_LIMIT_JOB && !is_too_small(refusal) && !needed_second(refusal) &&
        refusal->others != WHY_APART_UNKNOWN && refusal->others >= missing)
        why_try(&count, "gpucap run --wait=60s ...   (waits until others of the job free memory)");
    why_apart_advise(&count, refusal->apart, missing, "");
    const char *path = quote_word(refusal->set->paths[refusal->track->file], word, sizeof(word));
    if (strlen(path) > LONG_PATH)
        why_try(&count, "gpucap page %s -o page.html", path);
    else
        why_try(&count, "gpucap page %s -o page.html   (%s)", path,
                why_apart_is_between(refusal->apart, missing) ? "its map has the gaps" : "shows each block");
}

/* ---- all of them ---- */

static void print_earlier(const struct timeline *timeline, const struct recording_event *last)
{
    char size[RECORDING_TIME], at[RECORDING_TIME], name[WORDS_CUT];
    int shown = 0;

    for (size_t i = 0; i < timeline->mark_count && shown < EARLIER; i++) {
        const struct recording_event *event = timeline->marks[i];

        if (event->head.type == RECORDING_REFUSAL && event != last)
            printf("  %-13s%s for %s at %s\n", shown++ ? "" : "before that",
                   recording_size(event->bytes, size),
                   words_cut(timeline_name(timeline->recording, TIMELINE_BY_OWNER, event->owner), 40, name),
                   recording_time(event->time_ns, at));
    }
}

static void print_heading(const struct recording_set *set, const struct recording_track *track,
                          const char *what)
{
    const bool several = has_several_cards(set, track);
    char title[WORDS_CUT], gpu[RECORDING_CARD], line[WORDS_CUT + RECORDING_CARD + HEADING];

    snprintf(line, sizeof(line), "%u %s%s%s: %s", set->recordings[track->file].head.pid,
             words_cut(recording_set_title(set, track->file), 40, title), several ? ", " : "",
             several ? recording_set_gpu(track, gpu) : "", what);
    lines_text(0, 2, line);
}

/* A context that does not fit is no request: the program fails before its first one. */
static void print_not_refused(const struct recording_set *set, const struct recording_track *track)
{
    const struct timeline *timeline = &track->timeline;
    const struct timeline_state state = timeline_state_after(timeline, timeline->peak);
    char sentence[RECORDING_SENTENCE], context[RECORDING_TIME];
    int count = 0;

    if (!timeline->block_count && state.context > state.limit) {
        print_heading(set, track, "the CUDA context does not fit");
        printf("\n  It takes %s, more than the limit, before the program's first request.\n",
               recording_size(state.context, context));
        if (state.limit_kind == RECORDING_LIMIT_ADMIN)
            puts("  Only the administrator can set a higher one (" OPTIONS_ADMIN_FILE ").");
        else
            why_try_limit(&count, limit_setting(timeline->recording, state.limit_kind),
                          state.context + OPTIONS_RESERVE_STANDARD, " ...");
        return;
    }
    print_heading(set, track, "no request was refused");
    fputs("  ", stdout);
    recording_sentence(timeline, sentence);
    recording_print_cut(sentence, WIDTH - 2);
}

static void explain(const struct recording_set *set, const struct recording_track *track)
{
    const struct timeline *timeline = &track->timeline;
    struct refusal refusal = {.set = set, .track = track, .timeline = timeline};
    struct recording_holder holders[RECORDING_NAMED + 1];
    char at[RECORDING_TIME], what[HEADING];
    unsigned long long count = 0;

    for (size_t i = 0; i < timeline->mark_count; i++) {
        if (timeline->marks[i]->head.type == RECORDING_REFUSAL) {
            refusal.event = timeline->marks[i];
            count++;
        }
    }
    if (!count) {
        print_not_refused(set, track);
        return;
    }
    snprintf(what, sizeof(what),
             count == 1 ? "%llu request refused, at %s" : "%llu requests refused, the last at %s", count,
             recording_time(refusal.event->time_ns, at));
    print_heading(set, track, what);
    putchar('\n');
    refusal.steps = timeline_steps_until(timeline, refusal.event->time_ns);
    refusal.state = timeline_state_after(timeline, refusal.steps);
    refusal.second = TIMELINE_NO;
    if (refusal.event->limit == RECORDING_LIMIT_JOB && refusal.event->address) {
        if (refusal.state.limit < refusal.event->address)
            refusal.second = refusal.state.limit;
        refusal.state.limit = refusal.event->address;
    } else if (refusal.event->limit == RECORDING_LIMIT_PROCESS && refusal.event->address) {
        refusal.second = refusal.event->address;
    }
    refusal.explained = why_apart_read(timeline->recording, refusal.event, refusal.apart, &refusal.others);
    print_asked(&refusal);
    print_limit(&refusal);
    print_used(&refusal);
    recording_print_holders("held by", holders, recording_holders(timeline, refusal.steps, holders));
    print_owners(&refusal);
    print_sizes(&refusal);
    print_idle(&refusal);
    print_reserve(&refusal);
    print_neighbours(&refusal);
    print_remedy(&refusal);
    print_earlier(timeline, refusal.event);
    print_advice(&refusal);
}

int why_files(char **paths, int count)
{
    struct recording_set set;
    const int status = recording_set_open(&set, "why", paths, count);

    if (status)
        return status;
    for (int i = 0; i < set.track_count; i++) {
        if (i)
            putchar('\n');
        explain(&set, &set.tracks[i]);
    }
    return recording_set_close(&set, 0);
}

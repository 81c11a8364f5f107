/* recording_set: see recording_set.h. */
#include "tools/gpucap/recording_set.h"

#include "tools/gpucap/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UUID_END 4 /* characters at the end of a UUID, to tell the cards of a machine apart */

/* Leaves out what cannot be read. */
static int open_files(struct recording_set *set, const char *command, char **paths, int count)
{
    char text[RECORDING_WHY];

    for (int i = 0; i < count; i++) {
        struct recording *recording = &set->recordings[set->count];

        if (recording_open(recording, paths[i], text)) {
            cli_fail("%s: %s %s%s", command, paths[i], text, count > 1 ? "; it is left out" : "");
            set->left_out = true;
            continue;
        }
        set->paths[set->count++] = paths[i];
        if (recording_remark(recording, text))
            cli_fail("%s: %s: note: %s", command, paths[i], text);
    }
    return set->count ? 0 : CLI_FAILED;
}

/* Notes recordings with the same process and beginning: a file and its copy, or one that was given twice. */
static void note_copies(const struct recording_set *set, const char *command)
{
    for (int i = 1; i < set->count; i++) {
        const struct recording_head *head = &set->recordings[i].head;

        for (int j = 0; j < i && head->began_unix_ns; j++) {
            const struct recording_head *other = &set->recordings[j].head;

            if (head->pid == other->pid && head->began_unix_ns == other->began_unix_ns) {
                cli_fail("%s: note: %s and %s are the same recording: what it held counts twice", command,
                         set->paths[j], set->paths[i]);
                break;
            }
        }
    }
}

/* Notes recordings without events: they are neither in a picture nor in a table. */
static void note_empty(const struct recording_set *set, const char *command)
{
    for (int i = 0; i < set->count; i++) {
        bool found = false;

        for (int j = 0; j < set->track_count; j++)
            found = found || set->tracks[j].file == i;
        if (!found)
            cli_fail("%s: note: %s has no events", command, set->paths[i]);
    }
}

static bool open_tracks(struct recording_set *set, int file)
{
    uint16_t devices[RECORDING_SET_DEVICES];
    const size_t count = timeline_devices(&set->recordings[file], devices, RECORDING_SET_DEVICES);

    for (size_t i = 0; i < count; i++) {
        struct recording_track *track = &set->tracks[set->track_count];

        if (!timeline_open(&track->timeline, &set->recordings[file], devices[i]))
            return false;
        track->file = file;
        set->track_count++;
    }
    return true;
}

static bool same_host(const struct recording_set *set)
{
    for (int i = 1; i < set->count; i++) {
        if (strcmp(recording_program(&set->recordings[i], RECORDING_HOST_NAME),
                   recording_program(&set->recordings[0], RECORDING_HOST_NAME)) != 0)
            return false;
    }
    return true;
}

/* Returns the beginning by the monotonic clock, which is never set, or by the time of day. */
static uint64_t began(const struct recording_set *set, int file, bool monotonic)
{
    const struct recording_head *head = &set->recordings[file].head;

    return monotonic ? head->began_mono_ns : head->began_unix_ns;
}

static void align(struct recording_set *set)
{
    const bool monotonic = same_host(set);
    uint64_t first = UINT64_MAX;

    for (int i = 0; i < set->count; i++)
        first = began(set, i, monotonic) < first ? began(set, i, monotonic) : first;
    for (int i = 0; i < set->track_count; i++) {
        struct recording_track *track = &set->tracks[i];
        const uint64_t offset = began(set, track->file, monotonic) - first;

        /* A beginning months away from the others' is invalid. */
        track->offset_ns = offset < RECORDING_BYTES_MAX ? offset : 0;
        if (track->offset_ns + track->timeline.end_ns > set->end_ns)
            set->end_ns = track->offset_ns + track->timeline.end_ns;
    }
}

/* Finds cards that have the same number in different processes. */
static void find_namesakes(struct recording_set *set)
{
    for (int i = 0; i < set->track_count; i++) {
        for (int j = 0; j < set->track_count; j++)
            set->tracks[i].namesake = set->tracks[i].namesake ||
                                      (set->tracks[i].timeline.device == set->tracks[j].timeline.device &&
                                       !recording_set_same_card(&set->tracks[i], &set->tracks[j]));
    }
}

int recording_set_open(struct recording_set *set, const char *command, char **paths, int count)
{
    memset(set, 0, sizeof(*set));
    if (count < 1)
        return cli_fail("%s: which recording? usage: gpucap %s FILE...", command, command);
    set->paths = calloc((size_t)count, sizeof(*set->paths));
    set->recordings = calloc((size_t)count, sizeof(*set->recordings));
    set->tracks = calloc((size_t)count * RECORDING_SET_DEVICES, sizeof(*set->tracks));
    int status = set->paths && set->recordings && set->tracks ? open_files(set, command, paths, count)
                                                              : cli_fail("%s: no memory", command);
    for (int i = 0; status == 0 && i < set->count; i++) {
        if (!open_tracks(set, i))
            status = cli_fail("%s: %s does not fit into memory", command, set->paths[i]);
    }
    if (status == 0 && set->track_count == 0)
        status = cli_fail("%s: %s has no events", command, set->paths[0]);
    if (status)
        return recording_set_close(set, status);
    align(set);
    find_namesakes(set);
    note_copies(set, command);
    note_empty(set, command);
    return 0;
}

int recording_set_close(struct recording_set *set, int status)
{
    const bool undone = set->left_out;

    for (int i = 0; i < set->track_count; i++)
        timeline_close(&set->tracks[i].timeline);
    for (int i = 0; i < set->count; i++)
        recording_close(&set->recordings[i]);
    free(set->tracks);
    free(set->recordings);
    free(set->paths);
    memset(set, 0, sizeof(*set));
    return status == 0 && undone ? CLI_UNDONE : status;
}

const char *recording_set_title(const struct recording_set *set, int file)
{
    const char *command = recording_program(&set->recordings[file], RECORDING_COMMAND);

    if (!*command)
        return set->paths[file];
    for (const char *at = command; *at && *at != ' '; at++) { /* the folder of the program tells little */
        if (*at == '/' && at[1] && at[1] != ' ')
            command = at + 1;
    }
    return command;
}

/* Writes "GPU 0 NAME (...1234)"; the name may be "". */
static const char *name_card(const struct recording_track *track, const char *name, char text[RECORDING_CARD])
{
    const char *uuid = recording_text(&track->timeline.recording->devices, track->timeline.device, 1);
    const size_t length = strlen(uuid);
    const int used =
        snprintf(text, RECORDING_CARD, "GPU %u%s%.60s", track->timeline.device, *name ? " " : "", name);

    if (track->namesake)
        snprintf(text + used, RECORDING_CARD - (size_t)used, " (...%s)",
                 length > UUID_END ? uuid + length - UUID_END : uuid);
    return text;
}

const char *recording_set_card(const struct recording_track *track, char text[RECORDING_CARD])
{
    return name_card(track, recording_text(&track->timeline.recording->devices, track->timeline.device, 0),
                     text);
}

const char *recording_set_heading(const struct recording_set *set, const struct recording_track *track,
                                  int width, char text[WORDS_CUT])
{
    char card[RECORDING_CARD], title[WORDS_CUT], line[2 * WORDS_CUT];

    snprintf(line, sizeof(line), "%s  (%u, %s)",
             words_cut(recording_set_title(set, track->file), width / 2, title),
             set->recordings[track->file].head.pid, recording_set_card(track, card));
    return words_cut(line, width, text);
}

const char *recording_set_gpu(const struct recording_track *track, char text[RECORDING_CARD])
{
    return name_card(track, "", text);
}

bool recording_set_same_card(const struct recording_track *a, const struct recording_track *b)
{
    const char *x = recording_text(&a->timeline.recording->devices, a->timeline.device, 1);
    const char *y = recording_text(&b->timeline.recording->devices, b->timeline.device, 1);

    return *x && *y ? !strcmp(x, y) : a->timeline.device == b->timeline.device;
}

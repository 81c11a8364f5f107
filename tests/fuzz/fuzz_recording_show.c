/* What is shown of recordings: from any recording that can be read, every output can be written, and text
 * from it never ends a script or a line. */
#include "fuzz.h"
#include "fuzz_recording.h"
#include "tools/gpucap/export.h"
#include "tools/gpucap/page.h"
#include "tools/gpucap/recording_columns.h"
#include "tools/gpucap/recording_words.h"

#define WIDTH 60

/* Writes with `write` into memory; the caller frees. */
static char *written(bool (*write)(FILE *, const struct recording_set *), const struct recording_set *set,
                     size_t *count)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, count);

    FUZZ_PROMISE(out && write(out, set));
    FUZZ_PROMISE(fclose(out) == 0 && text);
    return text;
}

static bool write_tracks(FILE *out, const struct recording_set *set)
{
    for (int i = 0; i < set->track_count; i++) {
        if (!page_track_write(out, set, &set->tracks[i]))
            return false;
    }
    return true;
}

static void check_page(const struct recording_set *set)
{
    size_t count;
    char *text = written(write_tracks, set, &count);
    int scripts = 0;

    for (const char *at = text; (at = strstr(at, "<")); at++) {
        FUZZ_PROMISE(!strncmp(at, "<script type=", 13) || !strncmp(at, "</script>", 9));
        scripts++;
    }
    FUZZ_PROMISE(scripts == 4 * set->track_count);
    free(text);
}

static void check_words(const struct timeline *timeline)
{
    char sentence[RECORDING_SENTENCE];
    struct recording_holder holders[RECORDING_NAMED + 1];
    struct columns columns;

    FUZZ_PROMISE(strlen(recording_sentence(timeline, sentence)) > 0);
    FUZZ_PROMISE(!strchr(sentence, '\n'));
    FUZZ_PROMISE(recording_holders(timeline, timeline->step_count, holders) <= RECORDING_NAMED + 1);
    FUZZ_PROMISE(columns_open(&columns, timeline, TIMELINE_BY_TAG, WIDTH));
    uint64_t most = 0;
    for (int i = 0; i < WIDTH; i++)
        most = columns.columns[i].used > most ? columns.columns[i].used : most;
    FUZZ_PROMISE(most == columns.peak); /* peaks stay */
    columns_close(&columns);
}

static void check_set(const struct recording_set *set)
{
    static bool (*const writers[])(FILE *, const struct recording_set *) = {export_perfetto, export_pytorch,
                                                                            export_csv, export_svg};
    size_t count;

    check_page(set);
    for (size_t i = 0; i < sizeof(writers) / sizeof(*writers); i++)
        free(written(writers[i], set, &count));
    for (int i = 0; i < set->track_count; i++)
        check_words(&set->tracks[i].timeline);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct recording recording;
    struct recording_track tracks[2];
    char name[] = "fuzzed", *paths[] = {name};
    struct recording_set set = {.recordings = &recording, .paths = paths, .count = 1, .tracks = tracks};
    char why[RECORDING_WHY];
    uint16_t devices[2];
    uint8_t *copy = malloc(count + 1);

    if (!copy)
        return 0;
    memcpy(copy, bytes, count);
    put_checksums_right(copy, count);
    const int status = recording_parse(&recording, copy, count, why);
    free(copy);
    if (status)
        return 0;
    const size_t found = timeline_devices(&recording, devices, 2);
    for (size_t i = 0; i < found; i++) {
        tracks[i] = (struct recording_track){.file = 0};
        FUZZ_PROMISE(timeline_open(&tracks[i].timeline, &recording, devices[i]));
        set.track_count++;
    }
    if (set.track_count)
        check_set(&set);
    for (int i = 0; i < set.track_count; i++)
        timeline_close(&tracks[i].timeline);
    recording_close(&recording);
    return 0;
}

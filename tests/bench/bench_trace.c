/* bench_trace: reads the allocations of a program from a file. See bench_trace.h. */
#include "bench_trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_cuda.h"
#include "tools/gpucap/timeline.h"

#define IDS_MAX     (UINT64_C(1) << 26)
#define STREAMS_MAX 64 /* of a recording */

/* gzip reads it, plain or packed: the name is an argument, never part of a command. */
static FILE *open_text(const char *path, pid_t *child)
{
    int pipes[2];

    if (access(path, R_OK) != 0)
        bench_fail("%s cannot be read", path);
    if (pipe(pipes))
        bench_fail("no pipe");
    *child = fork();
    if (*child < 0)
        bench_fail("no child");
    if (*child == 0) {
        dup2(pipes[1], STDOUT_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        execlp("gzip", "gzip", "-dcf", "--", path, (char *)NULL);
        _exit(127);
    }
    close(pipes[1]);
    return fdopen(pipes[0], "r");
}

static void set_name(struct trace *trace, const char *path)
{
    const char *base = strrchr(path, '/');

    snprintf(trace->name, sizeof(trace->name), "%s", base ? base + 1 : path);
    char *end = strstr(trace->name, ".trace");
    if (!end)
        end = strstr(trace->name, ".gpucap");
    if (end)
        *end = '\0';
}

/* What a trace needs while it is read: the sizes of live blocks by ID. */
struct reader {
    FILE *out;
    uint64_t *sizes;
    uint64_t ids, live;
};

static void add_event(struct trace *trace, struct reader *reader, struct trace_event event, uint64_t line)
{
    if (event.block >= IDS_MAX)
        bench_fail("%s, line %" PRIu64 ": the ID is too large", trace->name, line);
    if (event.block >= reader->ids) {
        const uint64_t ids = 2 * (uint64_t)event.block + 1024;

        reader->sizes = realloc(reader->sizes, ids * sizeof(*reader->sizes));
        if (!reader->sizes)
            bench_fail("no memory");
        memset(reader->sizes + reader->ids, 0, (ids - reader->ids) * sizeof(*reader->sizes));
        reader->ids = ids;
    }
    uint64_t *size = &reader->sizes[event.block];
    if (!event.bytes == !*size)
        bench_fail("%s, line %" PRIu64 ": block %" PRIu32 " is %s", trace->name, line, event.block,
                   event.bytes ? "live already" : "not live");
    reader->live += event.bytes - *size;
    *size = event.bytes;
    trace->peak_live = reader->live > trace->peak_live ? reader->live : trace->peak_live;
    trace->blocks = event.block >= trace->blocks ? event.block + UINT64_C(1) : trace->blocks;
    trace->count++;
    fwrite(&event, sizeof(event), 1, reader->out);
}

/* ---- recordings ---- */

static bool is_recording(const char *path)
{
    char magic[sizeof(RECORDING_MAGIC)] = "";
    FILE *file = fopen(path, "re");

    if (!file)
        return false;
    const size_t got = fread(magic, 1, sizeof(magic), file);
    fclose(file);
    return got == sizeof(magic) && !memcmp(magic, RECORDING_MAGIC, sizeof(magic));
}

/* Streams are numbered as they appear; those beyond the table share the last number. */
static uint32_t number_stream(uint64_t streams[STREAMS_MAX], uint32_t *count, uint64_t stream)
{
    uint32_t i = 0;

    while (i < *count && streams[i] != stream)
        i++;
    if (i == *count && *count < STREAMS_MAX)
        streams[(*count)++] = stream;
    return i < STREAMS_MAX ? i : STREAMS_MAX - 1;
}

/* The first device's blocks, as far as they are memory of this process. */
static void take_recording(struct trace *trace, struct reader *reader, const char *path)
{
    struct recording recording;
    struct timeline timeline;
    char why[RECORDING_WHY];
    uint64_t streams[STREAMS_MAX] = {0};
    uint32_t stream_count = 1; /* the first is the default stream */
    uint16_t device = 0;

    if (recording_open(&recording, path, why))
        bench_fail("%s %s", path, why);
    timeline_devices(&recording, &device, 1);
    if (!timeline_open(&timeline, &recording, device))
        bench_fail("no memory for %s", path);
    for (size_t i = 0; i < timeline.step_count; i++) {
        const struct timeline_step *step = &timeline.steps[i];

        if (step->change > TIMELINE_FREE || !step->value ||
            timeline.blocks[step->block].kind == RECORDING_IMPORT)
            continue;
        add_event(
            trace, reader,
            (struct trace_event){step->change == TIMELINE_ALLOC ? step->value : 0, step->block,
                                 number_stream(streams, &stream_count, timeline.blocks[step->block].stream)},
            i);
    }
    timeline_close(&timeline);
    recording_close(&recording);
}

static void finish(struct trace *trace, struct reader *reader, const char *path)
{
    if (fclose(reader->out) || !trace->count)
        bench_fail("%s is no trace", path);
    free(reader->sizes);
    const uint64_t blocks = trace->blocks;
    trace_map(trace, trace->file);
    trace->blocks = blocks;
}

void trace_read(struct trace *trace, const char *path)
{
    struct reader reader = {0};
    uint64_t number = 0;
    char line[128];
    pid_t child;
    int status;

    memset(trace, 0, sizeof(*trace));
    set_name(trace, path);
    trace->file = memfd_create("trace", MFD_CLOEXEC);
    reader.out = fdopen(dup(trace->file), "w");
    if (reader.out && is_recording(path)) {
        take_recording(trace, &reader, path);
        finish(trace, &reader, path);
        return;
    }
    FILE *in = open_text(path, &child);
    if (!in || !reader.out)
        bench_fail("no memory for %s", path);
    while (fgets(line, sizeof(line), in)) {
        struct trace_event event = {0};

        number++;
        if (sscanf(line, "a %" SCNu32 " %" SCNu64 " %" SCNu32, &event.block, &event.bytes, &event.stream) <
                2 &&
            sscanf(line, "f %" SCNu32, &event.block) != 1)
            bench_fail("%s, line %" PRIu64 ": neither \"a ID BYTES STREAM\" nor \"f ID\"", path, number);
        if (line[0] == 'f' || event.bytes)
            add_event(trace, &reader, event, number);
    }
    fclose(in);
    if (waitpid(child, &status, 0) != child || status)
        bench_fail("%s is no trace", path);
    finish(trace, &reader, path);
}

void trace_map(struct trace *trace, int file)
{
    struct stat stat;

    if (fstat(file, &stat))
        bench_fail("no trace");
    trace->file = file;
    trace->count = (uint64_t)stat.st_size / sizeof(*trace->events);
    trace->events = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
    if (trace->events == MAP_FAILED)
        bench_fail("no memory for the trace");
    for (uint64_t i = 0; i < trace->count; i++) {
        if (trace->events[i].block >= trace->blocks)
            trace->blocks = trace->events[i].block + UINT64_C(1);
    }
}

void trace_close(struct trace *trace)
{
    munmap((void *)(uintptr_t)trace->events, trace->count * sizeof(*trace->events));
    close(trace->file);
}

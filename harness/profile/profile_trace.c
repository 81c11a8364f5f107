/* Profiles as a trace for ui.perfetto.dev (tools/gpucap/trace_write.h). One process; in it, for each replica,
 * a track of slices within slices (step, pass, layer, operation), one of operations on other streams, one of
 * all-reduces, and a counter for each kind of memory. The file is written beside its place and then put
 * there, so that it is whole or not there. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/profile/profile_state.h"
#include "tools/gpucap/trace_write.h"

/* Tracks of a replica, by what is added to its first number. The process has number 1. */
enum { GROUP, COMPUTE, ASIDE, AVERAGES, HELD, KINDS, TRACKS = KINDS + MEM_KIND_COUNT };
enum { PROCESS = 1, FIRST = 2 };
enum { DEPTH_STEP = 1, DEPTH_PASS, DEPTH_LAYER };

struct out {
    struct trace_write trace;
    const struct profile *profile;
    uint64_t first;
    uint64_t now;              /* time of the last event on the compute track: the next is not before it */
    uint64_t last;             /* end of the last operation there */
    int depth;                 /* slices that are open there */
    struct model_place place;  /* of the operation before */
    struct profile_span shown; /* whose memory the counters show */
};

/* ---- slices ---- */

static uint64_t at_least(struct out *out, uint64_t ns)
{
    out->now = ns > out->now ? ns : out->now;
    return out->now;
}

static void begin(struct out *out, uint64_t ns, const char *category, const char *name)
{
    trace_write_begin(&out->trace, out->first + COMPUTE, at_least(out, ns), category, name);
    out->depth++;
}

/* Ends slices until so many are open. */
static void end_down_to(struct out *out, int depth, uint64_t ns)
{
    for (; out->depth > depth; out->depth--)
        trace_write_end(&out->trace, out->first + COMPUTE, at_least(out, ns));
}

static void write_operation(struct out *out, const struct profile_span *span)
{
    const char *layer = profile_layer_name(out->profile, span->place.layer);

    if (out->depth > DEPTH_STEP && span->place.pass != out->place.pass)
        end_down_to(out, DEPTH_STEP, out->last);
    if (out->depth > DEPTH_PASS && span->place.layer != out->place.layer)
        end_down_to(out, DEPTH_PASS, out->last);
    if (out->depth < DEPTH_PASS)
        begin(out, span->begin_ns, "pass", profile_pass_name(span->place.pass));
    if (out->depth < DEPTH_LAYER && layer[0])
        begin(out, span->begin_ns, "layer", layer);
    out->place = span->place;
    begin(out, span->begin_ns, "operation", span->operation);
    end_down_to(out, out->depth - 1, span->end_ns);
    out->last = span->end_ns;
}

/* On a track of its own: an all-reduce, or an operation beside the others. */
static void write_aside(struct out *out, const struct profile_span *span)
{
    bool average = span->bucket != PROFILE_NO_BUCKET;
    uint64_t track = out->first + (average ? AVERAGES : ASIDE);
    uint64_t end = span->end_ns > span->begin_ns ? span->end_ns : span->begin_ns;
    char name[2 * PROFILE_NAME_BYTES];

    if (average)
        snprintf(name, sizeof(name), "bucket %d, %zu bytes", span->bucket, span->bytes);
    else
        snprintf(name, sizeof(name), "%s %s", profile_layer_name(out->profile, span->place.layer),
                 span->operation);
    trace_write_begin(&out->trace, track, span->begin_ns, average ? "all-reduce" : "operation", name);
    trace_write_end(&out->trace, track, end);
}

/* ---- memory ---- */

static void write_memory(struct out *out, const struct profile_span *span, bool all)
{
    for (int kind = 0; kind < MEM_KIND_COUNT; kind++)
        if (all || span->live[kind] != out->shown.live[kind])
            trace_write_count(&out->trace, out->first + KINDS + (uint64_t)kind, span->begin_ns,
                              span->live[kind]);
    if (all || span->held != out->shown.held)
        trace_write_count(&out->trace, out->first + HELD, span->begin_ns, span->held);
    out->shown = *span;
}

/* ---- a replica ---- */

static void describe(struct out *out)
{
    const struct profile *profile = out->profile;
    bool aside = false, averages = false;
    char name[2 * PROFILE_NAME_BYTES];

    for (size_t i = 0; i < profile->span_count; i++) {
        averages = averages || profile->spans[i].bucket != PROFILE_NO_BUCKET;
        aside = aside || (profile->spans[i].aside && profile->spans[i].bucket == PROFILE_NO_BUCKET);
    }
    snprintf(name, sizeof(name), "replica %llu on %.100s", (unsigned long long)profile->replica,
             profile->model->device->name);
    trace_write_track(&out->trace, out->first + GROUP, PROCESS, name);
    trace_write_track(&out->trace, out->first + COMPUTE, out->first + GROUP, "compute");
    if (aside)
        trace_write_track(&out->trace, out->first + ASIDE, out->first + GROUP, "compute on other streams");
    if (averages)
        trace_write_track(&out->trace, out->first + AVERAGES, out->first + GROUP, "all-reduce");
    trace_write_counter(&out->trace, out->first + HELD, out->first + GROUP, "memory: held from the device");
    for (int kind = 0; kind < MEM_KIND_COUNT; kind++) {
        snprintf(name, sizeof(name), "memory: %s", mem_kind_name((enum mem_kind)kind));
        trace_write_counter(&out->trace, out->first + KINDS + (uint64_t)kind, out->first + GROUP, name);
    }
}

static void write_step(struct out *out, const struct profile_step *step)
{
    const struct profile_span *spans = out->profile->spans + step->first;
    char name[64];

    snprintf(name, sizeof(name), "step %llu", (unsigned long long)step->number);
    begin(out, step->begin_ns, "step", name);
    out->last = step->begin_ns;
    for (size_t i = 0; i < step->count; i++) {
        write_memory(out, &spans[i], step == out->profile->steps && i == 0);
        if (spans[i].aside || spans[i].bucket != PROFILE_NO_BUCKET)
            write_aside(out, &spans[i]);
        else
            write_operation(out, &spans[i]);
    }
    end_down_to(out, DEPTH_STEP, out->last);
    end_down_to(out, 0, step->end_ns);
}

static enum status write_all(FILE *file, const char *title, struct profile *const *profiles, int count)
{
    struct out out = {.trace = {.out = file}};

    trace_write_sequence(&out.trace, 1, 0);
    trace_write_process(&out.trace, PROCESS, (uint64_t)getpid(), title);
    for (int i = 0; i < count; i++) {
        out.profile = profiles[i];
        out.first = FIRST + (uint64_t)i * TRACKS;
        out.now = out.last = 0;
        trace_write_sequence(&out.trace, (uint32_t)i + 2, profiles[i]->origin_ns);
        describe(&out);
        for (size_t s = 0; s < profiles[i]->step_count; s++)
            write_step(&out, &profiles[i]->steps[s]);
    }
    return trace_write_close(&out.trace) ? STATUS_OK
                                         : status_fail(STATUS_NO_MEMORY, "no host memory for the profile");
}

/* ---- the file ---- */

static enum status fail(const char *path)
{
    return status_fail(STATUS_FAILED, "--profile=%s: it cannot be written: %s", path, strerror(errno));
}

static FILE *open_beside(const char *path, char temporary[PATH_MAX])
{
    if (snprintf(temporary, PATH_MAX, "%s.%ld.tmp", path, (long)getpid()) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    return fopen(temporary, "we");
}

enum status profile_can_write(const char *path)
{
    char temporary[PATH_MAX];
    struct stat info;
    FILE *file;

    if (!stat(path, &info) && !S_ISREG(info.st_mode))
        return status_fail(STATUS_FAILED,
                           "--profile=%s: it exists and is not a regular file, so it is not replaced", path);
    file = open_beside(path, temporary);
    if (!file)
        return fail(path);
    fclose(file);
    unlink(temporary);
    return STATUS_OK;
}

enum status profile_write(const char *path, const char *title, struct profile *const *profiles, int count)
{
    char temporary[PATH_MAX];
    enum status status;
    FILE *file;

    for (int i = 0; i < count; i++)
        if (profiles[i]->state != PROFILE_IS_DONE || !profiles[i]->step_count)
            return status_fail(STATUS_FAILED, "--profile=%s: no step was left to profile", path);
    file = open_beside(path, temporary);
    if (!file)
        return fail(path);
    status = write_all(file, title, profiles, count);
    if (!status && (fflush(file) || ferror(file)))
        status = fail(path);
    if (fclose(file) && !status)
        status = fail(path);
    if (!status && rename(temporary, path))
        status = fail(path);
    if (status)
        unlink(temporary);
    return status;
}

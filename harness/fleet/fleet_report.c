/* fleet_report: the results of a fleet as a table or key=value lines. See fleet_report.h. */
#include "harness/fleet/fleet_report.h"

#include <math.h>

#include "harness/fleet/fleet_show.h"

#define NAME_WIDTH  18 /* the table fits 80 columns */
#define NAME_BESIDE 8  /* the same beside the column of those that ran alone */

struct fleet_totals fleet_totals(const struct fleet_member *members, size_t count)
{
    struct fleet_totals totals = {.count = count};
    uint64_t first = UINT64_MAX, last = 0;

    for (size_t i = 0; i < count; i++) {
        const struct fleet_member *member = &members[i];
        const double ms = fleet_member_step_ms(member);

        totals.ok += member->end == FLEET_OK;
        totals.steps += fleet_member_steps(member);
        totals.peak_memory += member->peak_memory;
        if (isfinite(ms) && ms > 0 && member->end == FLEET_OK)
            totals.training_steps_per_s += 1000 / ms;
        if (!member->started_ns)
            continue;
        first = member->started_ns < first ? member->started_ns : first;
        last = member->ended_ns > last ? member->ended_ns : last;
    }
    totals.wall_s = last > first ? (double)(last - first) / 1e9 : 0;
    totals.steps_per_s = totals.wall_s > 0 ? (double)totals.steps / totals.wall_s : 0;
    return totals;
}

static void milliseconds(double value, char *text, size_t size)
{
    if (isfinite(value) && value > 0)
        snprintf(text, size, value < 1000 ? "%.2f ms" : "%.0f ms", value);
    else
        snprintf(text, size, "-");
}

static double rate(const struct fleet_member *member)
{
    const double seconds = fleet_member_seconds(member);

    return seconds > 0 ? (double)fleet_member_steps(member) / seconds : 0;
}

static const char *cap_of(const struct fleet_member *member)
{
    const struct fleet_job *job = member->job;

    return job->each ? job->each : job->cap ? job->cap : "native";
}

static void print_row(FILE *out, size_t i, const struct fleet_member *member,
                      const struct fleet_member *alone)
{
    const int width = alone ? NAME_BESIDE : NAME_WIDTH;
    char ms[32], alone_ms[32] = "", loss[32] = "-", memory[32], ending[96];

    milliseconds(fleet_member_step_ms(member), ms, sizeof(ms));
    if (alone)
        milliseconds(fleet_member_step_ms(alone), alone_ms, sizeof(alone_ms));
    if (isfinite(member->progress.loss))
        snprintf(loss, sizeof(loss), "%.4g", member->progress.loss);
    fleet_show_bytes(member->peak_memory, memory, sizeof(memory));
    fleet_member_ending(member, ending, sizeof(ending));
    fprintf(out, "%3zu %-*.*s %6.6s %7llu %9s%s%*s %7s %9s  %.13s\n", i, width, width, member->job->name,
            cap_of(member), (unsigned long long)fleet_member_steps(member), ms, alone ? " " : "",
            alone ? 9 : 0, alone_ms, loss, memory, ending);
}

/* Replaces spaces, which separate the key=value words of a line. */
static void word(const char *text, char *out, size_t size)
{
    snprintf(out, size, "%s", text);
    for (char *c = out; *c; c++)
        *c = (char)(*c == ' ' ? '_' : *c);
}

static void print_keys(FILE *out, size_t i, const struct fleet_member *member,
                       const struct fleet_member *alone)
{
    char ending[96], text[96], name[FLEET_NAME_MAX];
    const double ms = fleet_member_step_ms(member);

    fleet_member_ending(member, text, sizeof(text));
    word(text, ending, sizeof(ending));
    word(member->job->name, name, sizeof(name));
    fprintf(out, "member=%zu name=%s cap=%s end=%s code=%d steps=%llu seconds=%.3f steps_per_s=%.3f", i, name,
            cap_of(member), ending, member->code, (unsigned long long)fleet_member_steps(member),
            fleet_member_seconds(member), rate(member));
    if (isfinite(ms))
        fprintf(out, " step_ms=%.3f", ms);
    if (isfinite(member->progress.loss))
        fprintf(out, " loss=%.6g", member->progress.loss);
    fprintf(out, " peak_memory=%llu said_bytes=%llu", (unsigned long long)member->peak_memory,
            (unsigned long long)member->said_bytes);
    if (alone)
        fprintf(out, " alone_seconds=%.3f alone_steps_per_s=%.3f", fleet_member_seconds(alone), rate(alone));
    fputc('\n', out);
}

static void print_deaths(FILE *out, const struct fleet_member *members, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char ending[96];

        if (members[i].end == FLEET_OK)
            continue;
        fleet_member_ending(&members[i], ending, sizeof(ending));
        fprintf(out, "member %zu: %s%s%.200s\n", i, ending, members[i].reason[0] ? ": " : "",
                members[i].reason);
    }
}

static void print_totals(FILE *out, const struct fleet_member *alone, size_t count,
                         const struct fleet_totals *totals)
{
    fprintf(out,
            "members=%zu ok=%zu steps=%llu wall_s=%.3f steps_per_s=%.3f training_steps_per_s=%.3f "
            "peak_memory=%llu",
            totals->count, totals->ok, (unsigned long long)totals->steps, totals->wall_s, totals->steps_per_s,
            totals->training_steps_per_s, (unsigned long long)totals->peak_memory);
    if (alone) {
        const struct fleet_totals serial = fleet_totals(alone, count);

        fprintf(out, " serial_wall_s=%.3f serial_steps_per_s=%.3f throughput_against_serial=%.3f",
                serial.wall_s, serial.steps_per_s,
                serial.steps_per_s > 0 ? totals->steps_per_s / serial.steps_per_s : 0);
    }
    fputc('\n', out);
}

/* Prints the totals in words. */
static void tell_totals(FILE *out, const struct fleet_member *alone, size_t count,
                        const struct fleet_totals *totals)
{
    char memory[32];

    fleet_show_bytes(totals->peak_memory, memory, sizeof(memory));
    fprintf(out, "%zu of %zu ended well: %llu steps in %.1f s, %.1f a second\npeaks add up to %s\n",
            totals->ok, totals->count, (unsigned long long)totals->steps, totals->wall_s, totals->steps_per_s,
            memory);
    if (alone) {
        const struct fleet_totals serial = fleet_totals(alone, count);

        fprintf(out, "one after the other: %.1f s, %.1f steps a second\n", serial.wall_s, serial.steps_per_s);
    }
}

void fleet_report(FILE *out, const struct fleet_member *members, const struct fleet_member *alone,
                  size_t count, bool keys)
{
    const struct fleet_totals totals = fleet_totals(members, count);
    const int width = alone ? NAME_BESIDE : NAME_WIDTH;

    fprintf(out, "%3s %-*s %6s %7s %9s%s%*s %7s %9s  %s\n", "", width, "command", "cap", "steps", "step",
            alone ? " " : "", alone ? 9 : 0, alone ? "alone" : "", "loss", "peak", "end");
    for (size_t i = 0; i < count; i++)
        print_row(out, i, &members[i], alone ? &alone[i] : NULL);
    print_deaths(out, members, count);
    if (!keys) {
        tell_totals(out, alone, count, &totals);
        return;
    }
    for (size_t i = 0; i < count; i++)
        print_keys(out, i, &members[i], alone ? &alone[i] : NULL);
    print_totals(out, alone, count, &totals);
}

/* A profile as a table for people, in 80 columns. */
#include <stdio.h>
#include <string.h>

#include "harness/profile/profile_state.h"

enum { COLUMNS = 80, MOST_ROWS = 10, LAYER_WIDTH = 22 };

static const double ns_per_ms = 1e6, mib = 1024.0 * 1024.0;

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

/* "  forward 30.0 %", on a new line where the last one is full. Returns the columns used. */
static int print_share(FILE *out, int used, const char *name, double share)
{
    char text[64];
    int length = snprintf(text, sizeof(text), "  %s %.1f %%", name, share);

    if (used + length > COLUMNS) {
        fputc('\n', out);
        used = 0;
    }
    fputs(text, out);
    return used + length;
}

static void print_passes(const struct profile_sums *sums, FILE *out)
{
    int used = 0;

    for (int pass = 0; pass < PASS_COUNT; pass++)
        if (sums->pass_ns[pass])
            used = print_share(out, used, profile_pass_name((enum model_pass)pass),
                               percent(sums->pass_ns[pass], sums->steps_ns));
    print_share(out, used, "between operations", percent(sums->idle_ns, sums->steps_ns));
    fputc('\n', out);
}

static void print_head(const struct profile *profile, const struct profile_sums *sums, FILE *out)
{
    double steps = (double)profile->step_count;
    uint64_t first = profile->steps[0].number, last = profile->steps[profile->step_count - 1].number;

    fprintf(out, "\nprofile of step%s %llu", first == last ? "" : "s", (unsigned long long)first);
    if (first != last)
        fprintf(out, " to %llu", (unsigned long long)last);
    fprintf(out, ": %.3f ms a step", (double)sums->steps_ns / steps / ns_per_ms);
    fputs(profile->options->graph ? " (without the CUDA graph, which later steps use)\n" : "\n", out);
    print_passes(sums, out);
    if (sums->averages)
        fprintf(out, "  all-reduce %.3f ms a step in %.0f buckets, %.0f %% of it during the backward pass\n",
                (double)sums->average_ns / steps / ns_per_ms, (double)sums->averages / steps,
                percent(sums->hidden_ns, sums->average_ns));
}

/* The end of a name says more than its beginning. */
static const char *shorten(const char *name, char text[LAYER_WIDTH + 1])
{
    size_t length = strlen(name);

    if (length <= LAYER_WIDTH)
        return name;
    snprintf(text, LAYER_WIDTH + 1, "..%s", name + length - (LAYER_WIDTH - 2));
    return text;
}

static void print_rows(const struct profile *profile, const struct profile_sums *sums, FILE *out)
{
    double steps = (double)profile->step_count;
    uint64_t rest = 0;
    char text[LAYER_WIDTH + 1];

    fprintf(out, "\n  pass     operation             calls ms a step   share  most of it in\n");
    for (size_t i = 0; i < sums->row_count; i++) {
        const struct profile_row *row = &sums->rows[i];
        const char *layer = shorten(profile_layer_name(profile, row->layer), text);

        if (i >= MOST_ROWS) {
            rest += row->ns;
            continue;
        }
        fprintf(out, "  %-8s %-21s %5.0f %9.3f %5.1f %%%s%s\n", profile_pass_name(row->pass), row->operation,
                (double)row->calls / steps, (double)row->ns / steps / ns_per_ms,
                percent(row->ns, sums->steps_ns), layer[0] ? "  " : "", layer);
    }
    if (sums->row_count > MOST_ROWS)
        fprintf(out, "  %-36s %9.3f %5.1f %%\n", "all others", (double)rest / steps / ns_per_ms,
                percent(rest, sums->steps_ns));
}

static void print_memory(const struct profile *profile, const struct profile_sums *sums, FILE *out)
{
    const struct profile_span *peak = sums->peak;
    const char *layer = profile_layer_name(profile, peak->place.layer);
    size_t all = profile_live(peak);
    char text[LAYER_WIDTH + 1];

    fprintf(out, "\n  memory at its peak: %.1f MiB in step %llu, %s%s%s\n", (double)all / mib,
            (unsigned long long)sums->peak_step->number, profile_pass_name(peak->place.pass),
            layer[0] ? " of " : "", shorten(layer, text));
    for (int kind = 0; kind < MEM_KIND_COUNT; kind++)
        fprintf(out, "  %-12s %12.1f MiB %5.1f %%\n", mem_kind_name((enum mem_kind)kind),
                (double)peak->live[kind] / mib, percent(peak->live[kind], all));
    fprintf(out, "  held from the device meanwhile: %.1f MiB\n\n", (double)peak->held / mib);
}

enum status profile_print(const struct profile *profile, FILE *out)
{
    struct profile_sums sums;
    enum status status;

    if (!profile || !profile->step_count || profile->state != PROFILE_IS_DONE)
        return STATUS_OK;
    status = profile_sum(profile, &sums);
    if (status)
        return status;
    print_head(profile, &sums, out);
    if (sums.row_count)
        print_rows(profile, &sums, out);
    if (sums.peak)
        print_memory(profile, &sums, out);
    profile_sums_free(&sums);
    return STATUS_OK;
}

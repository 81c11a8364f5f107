/* The texts of progress lines. Pure. See progress.h. */
#include "harness/train/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double mib = 1024.0 * 1024.0, gib = 1024.0 * 1024.0 * 1024.0;

const char *progress_number(double value, char text[32])
{
    if (isfinite(value))
        snprintf(text, 32, "%.9g", value);
    else
        snprintf(text, 32, "null");
    return text;
}

/* 1,234,567 */
static const char *grouped(uint64_t value, char text[32])
{
    char digits[32];
    int length = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value);
    int used = 0;

    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

static const char *duration(double seconds, char text[32])
{
    unsigned long long s = (unsigned long long)(seconds + 0.5);

    if (s < 60)
        snprintf(text, 32, "%llu s", s);
    else if (s < 3600)
        snprintf(text, 32, "%llu m %02llu s", s / 60, s % 60);
    else
        snprintf(text, 32, "%llu h %02llu m", s / 3600, s / 60 % 60);
    return text;
}

/* The parts of a terminal's line in their order. The larger `drop`, the sooner a part is left out. */
struct part {
    int drop;
    char text[96];
};

enum { PARTS = 10, BAR = 20 };

static void write_memory(const struct progress_figures *figures, char *text, size_t size)
{
    bool large = (double)figures->peak >= gib;
    double unit = large ? gib : mib;

    snprintf(text, size, "%.1f %s (peak %.1f)", (double)figures->held / unit, large ? "GiB" : "MiB",
             (double)figures->peak / unit);
}

static void write_parts(const struct progress_figures *figures, struct part parts[PARTS])
{
    static const int drop[PARTS] = {6, 0, 7, 3, 5, 1, 9, 4, 8, 2};
    double done = figures->steps ? (double)figures->step / (double)figures->steps * BAR : 0.0;
    char a[32], b[32];
    size_t size = sizeof(parts[0].text);

    for (int i = 0; i < PARTS; i++)
        parts[i] = (struct part){.drop = drop[i]};
    snprintf(parts[0].text, size, "%s %s", figures->model, figures->precision);
    snprintf(parts[1].text, size, "step %s/%s", grouped(figures->step, a), grouped(figures->steps, b));
    parts[2].text[0] = '[';
    for (int i = 0; i < BAR; i++)
        parts[2].text[i + 1] = i + 1 <= done ? '#' : '.';
    parts[2].text[BAR + 1] = ']';
    if (figures->ms > 0.0) {
        snprintf(parts[3].text, size, "%.1f ms", figures->ms);
        snprintf(parts[4].text, size, "%s %s/s", grouped((uint64_t)figures->per_s, a),
                 figures->tokens ? "tok" : "samples");
    }
    snprintf(parts[5].text, size, "loss %.4g", progress_plain(figures->loss));
    snprintf(parts[6].text, size, "lr %.3g", figures->rate);
    write_memory(figures, parts[7].text, size);
    if (figures->peak_ms > 0.0 && figures->ms > 0.0)
        snprintf(parts[8].text, size, "%.0f %% of peak FLOP/s", 100.0 * figures->peak_ms / figures->ms);
    if (figures->eta_s >= 0.0 && figures->step < figures->steps)
        snprintf(parts[9].text, size, "ETA %s", duration(figures->eta_s, a));
}

static size_t join(const struct part parts[PARTS], int least, char *line, size_t size)
{
    size_t used = 0;

    line[0] = '\0';
    for (int i = 0; i < PARTS && used < size; i++) {
        if (parts[i].drop < least && parts[i].text[0])
            used += (size_t)snprintf(line + used, size - used, "%s%s", used ? "  " : "", parts[i].text);
    }
    return used;
}

void progress_terminal_line(const struct progress_figures *figures, unsigned columns, char *line, size_t size)
{
    struct part parts[PARTS];

    write_parts(figures, parts);
    for (int least = PARTS; least > 0; least--) {
        if (join(parts, least, line, size) < columns)
            return;
    }
    if (columns < size)
        line[columns] = '\0';
}

void progress_plain_line(const struct progress_figures *figures, char *line, size_t size)
{
    size_t used;

    snprintf(line, size, "model=%s step=%llu/%llu loss=%.6g lr=%.6g", figures->model,
             (unsigned long long)figures->step, (unsigned long long)figures->steps,
             progress_plain(figures->loss), figures->rate);
    used = strlen(line);
    if (figures->ms > 0.0)
        snprintf(line + used, size - used, " ms=%.3f %s_per_s=%.1f", figures->ms,
                 figures->tokens ? "tokens" : "samples", figures->per_s);
    used = strlen(line);
    if (figures->peak_ms > 0.0 && figures->ms > 0.0)
        snprintf(line + used, size - used, " mfu=%.4f", figures->peak_ms / figures->ms);
    used = strlen(line);
    snprintf(line + used, size - used, " held_mib=%.1f peak_mib=%.1f", (double)figures->held / mib,
             (double)figures->peak / mib);
    used = strlen(line);
    if (figures->skipped > 0.0)
        snprintf(line + used, size - used, " skipped=%.0f", figures->skipped);
    used = strlen(line);
    if (figures->eta_s >= 0.0 && figures->step < figures->steps)
        snprintf(line + used, size - used, " eta_s=%.0f", figures->eta_s);
}

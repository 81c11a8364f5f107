/* When to print, and the log. The texts are made in progress_text.c. See progress.h. */
#include "harness/train/progress.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "harness/base/now.h"

enum { LINE_BYTES = 512, DEFAULT_COLUMNS = 80 };

static const double terminal_seconds = 0.2, plain_seconds = 5.0, log_seconds = 1.0;

static FILE *log_file;
static const char *log_path;

/* Returns true if stderr is a terminal that can rewrite a line. */
static bool is_terminal(void)
{
    const char *term = getenv("TERM");

    return isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
}

void progress_open(struct progress *progress, bool quiet, bool shared, uint64_t every)
{
    double now = now_s();

    *progress = (struct progress){.on = !quiet,
                                  .terminal = !quiet && !shared && is_terminal(),
                                  .every = every,
                                  .printed = now,
                                  .logged = now,
                                  .first_s = -1.0};
}

static unsigned columns(void)
{
    struct winsize size;

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : DEFAULT_COLUMNS;
}

/* Rewrites the line of the terminal. */
static void rewrite(const char *line)
{
    fprintf(stderr, "\r%s\033[K", line);
    fflush(stderr);
    status_line_open();
}

static double time_left(struct progress *progress, const struct progress_figures *figures, double now)
{
    if (progress->first_s < 0.0) {
        progress->first_s = now;
        progress->first_step = figures->step;
    }
    if (figures->step <= progress->first_step)
        return -1.0;
    return (now - progress->first_s) / (double)(figures->step - progress->first_step) *
           (double)(figures->steps - figures->step);
}

static void set_speed(struct progress_figures *figures, double ms, uint64_t steps, double amount)
{
    figures->ms = steps ? ms / (double)steps : 0.0;
    figures->per_s = ms > 0.0 ? 1e3 * amount / ms : 0.0;
}

static void print_step(const struct progress *progress, const struct progress_figures *figures)
{
    char line[LINE_BYTES];

    if (progress->terminal) {
        progress_terminal_line(figures, columns(), line, sizeof(line));
        rewrite(line);
        if (figures->step == figures->steps)
            status_line_end();
    } else {
        progress_plain_line(figures, line, sizeof(line));
        fprintf(stderr, "%s\n", line);
    }
}

static void log_step(const struct progress_figures *figures)
{
    char loss[32], rate[32], ms[32], speed[32], mfu[32], eta[32];
    bool known = figures->peak_ms > 0.0 && figures->ms > 0.0;

    progress_log(
        "step",
        ",\"model\":\"%s\",\"step\":%llu,\"steps\":%llu,\"loss\":%s,\"rate\":%s,\"ms\":%s,"
        "\"%s_per_s\":%s,\"mfu\":%s,\"held_bytes\":%zu,\"peak_bytes\":%zu,\"skipped\":%.0f,\"eta_s\":%s",
        figures->model, (unsigned long long)figures->step, (unsigned long long)figures->steps,
        progress_number(figures->loss, loss), progress_number(figures->rate, rate),
        progress_number(figures->ms > 0.0 ? figures->ms : (double)NAN, ms),
        figures->tokens ? "tokens" : "samples",
        progress_number(figures->ms > 0.0 ? figures->per_s : (double)NAN, speed),
        progress_number(known ? figures->peak_ms / figures->ms : (double)NAN, mfu), figures->held,
        figures->peak, figures->skipped,
        progress_number(figures->eta_s >= 0.0 ? figures->eta_s : (double)NAN, eta));
}

void progress_step(struct progress *progress, struct progress_figures *figures, uint64_t timed, bool must)
{
    double now = now_s();
    double wait = progress->terminal ? terminal_seconds : plain_seconds;
    double per_step = figures->per_s; /* samples or tokens of one step */

    must = must || (progress->every && figures->step % progress->every == 0);
    progress->ms += figures->ms * (double)timed;
    progress->amount += per_step * (double)timed;
    progress->steps += timed;
    progress->log_ms += figures->ms * (double)timed;
    progress->log_amount += per_step * (double)timed;
    progress->log_steps += timed;
    figures->eta_s = time_left(progress, figures, now);
    if (progress->on && (must || (!progress->every && now - progress->printed >= wait))) {
        set_speed(figures, progress->ms, progress->steps, progress->amount);
        print_step(progress, figures);
        progress->printed = now;
        progress->ms = progress->amount = 0.0;
        progress->steps = 0;
    }
    if (log_file && (must || (!progress->every && now - progress->logged >= log_seconds))) {
        set_speed(figures, progress->log_ms, progress->log_steps, progress->log_amount);
        log_step(figures);
        progress->logged = now;
        progress->log_ms = progress->log_amount = 0.0;
        progress->log_steps = 0;
    }
}

void progress_validating(struct progress *progress, uint64_t batch, uint64_t batches)
{
    double now = now_s();
    char line[LINE_BYTES];

    if (!progress->on || now - progress->printed < (progress->terminal ? terminal_seconds : plain_seconds))
        return;
    progress->printed = now;
    if (progress->terminal) {
        snprintf(line, sizeof(line), "validation %llu/%llu batches", (unsigned long long)batch,
                 (unsigned long long)batches);
        rewrite(line);
    } else {
        fprintf(stderr, "validation=%llu/%llu\n", (unsigned long long)batch, (unsigned long long)batches);
    }
}

void progress_clear(const struct progress *progress)
{
    if (progress->terminal)
        fputs("\r\033[K", stderr);
    status_line_forget();
}

void progress_validated(struct progress *progress, const char *model, uint64_t step, double loss,
                        double accuracy)
{
    char loss_text[32], accuracy_text[32], beside[32] = "";

    progress_log("validation", ",\"model\":\"%s\",\"step\":%llu,\"loss\":%s,\"accuracy\":%s", model,
                 (unsigned long long)step, progress_number(loss, loss_text),
                 progress_number(accuracy >= 0.0 ? accuracy : (double)NAN, accuracy_text));
    if (!progress->on)
        return;
    progress_clear(progress);
    if (accuracy >= 0.0)
        snprintf(beside, sizeof(beside), " accuracy %.4f", accuracy);
    /* At once: with --pair-mode=threads the other model's thread prints too. */
    fprintf(stderr, "%s step %llu validation loss %.4f%s\n", model, (unsigned long long)step,
            progress_plain(loss), beside);
}

enum status progress_log_open(const char *path)
{
    log_path = path;
    log_file = fopen(path, "ae");
    if (!log_file)
        return status_fail(STATUS_FAILED, "--log=%s: %s", path, strerror(errno));
    setvbuf(log_file, NULL, _IOLBF, 0); /* so that others can follow it */
    return STATUS_OK;
}

enum status progress_log_end(enum status status)
{
    progress_log("end", ",\"status\":%d", (int)status);
    return progress_log_close();
}

enum status progress_log_close(void)
{
    bool bad = log_file && ferror(log_file);

    if (log_file && fclose(log_file))
        bad = true;
    log_file = NULL;
    return bad ? status_fail(STATUS_FAILED, "--log=%s: not all of it could be written", log_path) : STATUS_OK;
}

void progress_log(const char *event, const char *format, ...)
{
    char line[2 * LINE_BYTES];
    va_list list;

    if (!log_file)
        return;
    va_start(list, format);
    vsnprintf(line, sizeof(line), format, list);
    va_end(list);
    fprintf(log_file, "{\"event\":\"%s\",\"time\":%.3f%s}\n", event, now_by(CLOCK_REALTIME), line);
}

/* Prints the progress of a training: on a terminal one line that is rewritten, elsewhere a line of key=value
 * every few seconds, and with --log also lines of JSON. Time, not the number of steps, decides when. Writes
 * to stderr and to the log only. A struct progress belongs to the thread of its trainer; the log is shared by
 * all. */
#ifndef HARNESS_PROGRESS_H
#define HARNESS_PROGRESS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"

/* Returns the value, without a sign if it is no number: "-nan" says no more than "nan". */
static inline double progress_plain(double value)
{
    return isnan(value) ? (double)NAN : value;
}

/* The figures of a step. */
struct progress_figures {
    const char *model, *precision;
    uint64_t step, steps;
    double loss, rate;
    double ms;    /* per step by the device's clock, without validations and checkpoints; 0: not known yet */
    double per_s; /* samples a second, or tokens */
    bool tokens;
    double peak_ms; /* that a step would take at the card's peak of operations; 0: not known */
    double eta_s;   /* until the last step, validations and checkpoints included; negative: not known yet */
    size_t held, peak; /* bytes taken from the device */
    double skipped;    /* updates left out */
};

struct progress {
    bool on;                /* prints */
    bool terminal;          /* rewrites its line */
    uint64_t every;         /* steps between lines; 0: by time */
    double printed, logged; /* host seconds */
    double first_s;         /* host seconds of the first report, of first_step: the start of the time left */
    uint64_t first_step;
    double ms, amount; /* of `steps` steps since the last line; amount: samples or tokens */
    uint64_t steps;
    double log_ms, log_amount;
    uint64_t log_steps;
};

/* `quiet`: prints nothing. `shared`: others print too, so that no line is rewritten. `every`: --report-every.
 */
void progress_open(struct progress *progress, bool quiet, bool shared, uint64_t every);

/* Takes the figures of a step. On entry `ms` and `per_s` are the time and the samples (or tokens) of one
 * step; they hold for `timed` steps since the last call (0: not known). Prints and logs a line if it is time
 * to, or if `must`; then `ms` becomes the mean since the last line, and `per_s` samples (or tokens) a second.
 */
void progress_step(struct progress *progress, struct progress_figures *figures, uint64_t timed, bool must);

/* Prints how far a validation is, if it is time to. progress_clear removes that line for other text. */
void progress_validating(struct progress *progress, uint64_t batch, uint64_t batches);
void progress_clear(const struct progress *progress);

/* Prints and logs a validation's result. A negative accuracy: there is none. */
void progress_validated(struct progress *progress, const char *model, uint64_t step, double loss,
                        double accuracy);

/* Open the file of --log, to append to it, for all trainings of this process, and close it. progress_log_end
 * first writes a last line with the status. While no log is open, progress_log does nothing. */
enum status progress_log_open(const char *path);
enum status progress_log_end(enum status status);
enum status progress_log_close(void);

/* Writes one line, which begins as {"event":NAME,"time":SECONDS and goes on with ,"KEY":VALUE from the
 * format. */
void progress_log(const char *event, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes a number as JSON; null if it is not finite, because JSON has no infinity. Returns text. */
const char *progress_number(double value, char text[32]);

/* Write the line of a terminal, which leaves out what does not fit `columns`, and that of a file. Pure. */
void progress_terminal_line(const struct progress_figures *figures, unsigned columns, char *line,
                            size_t size);
void progress_plain_line(const struct progress_figures *figures, char *line, size_t size);

#endif

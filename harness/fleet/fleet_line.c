/* fleet_line: lines, progress and results in the output of a program. See fleet_line.h. */
#include "harness/fleet/fleet_line.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX 18 /* of a step: always fits 64 bits */
#define NUMBER_MAX 64 /* bytes of a number's text */

void fleet_lines_end(struct fleet_lines *lines, fleet_line_fn *visit, void *arg)
{
    if (lines->used == 0)
        return;
    lines->text[lines->used] = '\0';
    lines->used = 0;
    visit(lines->text, arg);
}

void fleet_lines_feed(struct fleet_lines *lines, const char *bytes, size_t count, fleet_line_fn *visit,
                      void *arg)
{
    for (size_t i = 0; i < count; i++) {
        const unsigned char c = (unsigned char)bytes[i];

        if (c == '\n' || c == '\r')
            fleet_lines_end(lines, visit, arg);
        else if (lines->used < FLEET_LINE_MAX - 1)
            lines->text[lines->used++] = c == '\t' ? ' ' : (char)(c < ' ' || c >= 0x7f ? '?' : c);
    }
}

static const char *next_word(const char *text)
{
    text += strcspn(text, " ");
    return text + strspn(text, " ");
}

static bool read_count(const char **text, uint64_t *count)
{
    const size_t digits = strspn(*text, "0123456789");

    *count = 0;
    if (digits == 0 || digits > DIGITS_MAX)
        return false;
    for (size_t i = 0; i < digits; i++)
        *count = *count * 10 + (uint64_t)((*text)[i] - '0');
    *text += digits;
    return true;
}

/* Reads a finite decimal number that is a whole word. */
static bool read_number(const char *text, double *number)
{
    const size_t length = strcspn(text, " ");
    char copy[NUMBER_MAX], *end;

    if (length == 0 || length >= sizeof(copy) || strcspn(text, "xXnN") < length)
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    *number = strtod(copy, &end);
    return *end == '\0' && isfinite(*number);
}

static bool read_steps(const char *word, struct fleet_progress *progress)
{
    uint64_t step, steps;

    if (!read_count(&word, &step) || *word++ != '/' || !read_count(&word, &steps))
        return false;
    if (steps == 0 || step > steps)
        return false;
    progress->step = step;
    progress->steps = steps;
    return true;
}

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* "loss X" or "loss=X". */
static bool read_loss(const char *word, double *loss)
{
    if (starts_with(word, "loss "))
        return read_number(next_word(word), loss);
    return starts_with(word, "loss=") && read_number(word + strlen("loss="), loss);
}

bool fleet_line_progress(const char *line, struct fleet_progress *progress)
{
    struct fleet_progress said = *progress;
    bool found = false;
    double loss;

    for (const char *word = line + strspn(line, " "); *word; word = next_word(word)) {
        if (!found && starts_with(word, "step "))
            found = read_steps(next_word(word), &said);
        else if (!found && starts_with(word, "step="))
            found = read_steps(word + strlen("step="), &said);
        else if (read_loss(word, &loss))
            said.loss = loss;
    }
    if (found)
        *progress = said;
    return found;
}

double fleet_line_number(const char *line, const char *key, double missing)
{
    const size_t length = strlen(key);
    double number;

    for (const char *word = line + strspn(line, " "); *word; word = next_word(word)) {
        if (starts_with(word, key) && word[length] == '=')
            return read_number(word + length + 1, &number) ? number : missing;
    }
    return missing;
}

/* cli: see cli.h. */
#include "tools/gpucap/cli.h"

#include "tools/simgpu/engine/sim_card_spec.h"
#include "tools/gpucap/place.h"
#include "tools/gpucap/words.h"

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX      (3 * PATH_MAX)
#define WORD_MAX      32 /* longer words are not compared */
#define SUGGEST_STEPS 2  /* letters that may differ; the first one only if no other does */
#define LIST_MAX      6  /* words that are listed if none is near */

int cli_fail(const char *format, ...)
{
    char text[TEXT_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    words_clean(text); /* a file may have any name */
    fprintf(stderr, "gpucap: %s\n", text);
    return CLI_FAILED;
}

/* How many letters must be added, dropped or changed to make one word of the other. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t row[WORD_MAX + 1];
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t change = diagonal + (a[i - 1] != b[j - 1]);
            size_t step = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < step ? change : step;
        }
    }
    return row[b_length];
}

const char *cli_suggest(const char *word, const char *const *candidates, size_t count)
{
    const char *best = NULL;
    size_t best_steps = SUGGEST_STEPS + 1;
    size_t length = strlen(word);
    if (length == 0 || length > WORD_MAX)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t candidate_length = strlen(candidates[i]);
        if (candidate_length > WORD_MAX)
            continue;
        size_t steps = distance(word, length, candidates[i], candidate_length);
        bool alike = steps < 2 || word[0] == candidates[i][0];
        if (alike && steps < best_steps && steps < candidate_length) {
            best = candidates[i];
            best_steps = steps;
        }
    }
    return best;
}

/* With so few words to choose from, they are named. */
static int unknown_of_few(const char *where, const char *what, const char *word,
                          const char *const *candidates, size_t count)
{
    const char *dashes = strcmp(what, "option") ? "" : "--";
    char text[WORDS_CUT];

    snprintf(text, sizeof(text), "%s", word);
    words_clean(text);
    fprintf(stderr, "gpucap: %sunknown %s '%s%s'; accepted: ", where, what, dashes, text);
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, "%s%s%s", i ? ", " : "", dashes, candidates[i]);
    fputc('\n', stderr);
    return CLI_FAILED;
}

int cli_unknown(const char *where, const char *what, const char *word, const char *const *candidates,
                size_t count)
{
    const char *guess = cli_suggest(word, candidates, count);
    const char *dashes = strcmp(what, "option") ? "" : "--";
    if (guess)
        return cli_fail("%sunknown %s '%s%s' (did you mean %s%s?)", where, what, dashes, word, dashes, guess);
    if (count <= LIST_MAX)
        return unknown_of_few(where, what, word, candidates, count);
    const int command = strcmp(what, "option") ? 0 : (int)strcspn(where, ":");
    return cli_fail("%sunknown %s '%s%s' (see 'gpucap help%s%.*s')", where, what, dashes, word,
                    command ? " " : "", command, where);
}

int cli_use_sim(const char *where, const char *spec, char *path, size_t size)
{
    struct sim_card_spec cards;
    char why[256];
    const char *name = spec ? "--sim" : "GPUCAP_SIM";
    if (!spec)
        spec = getenv("GPUCAP_SIM");
    if (!spec)
        spec = CARD_SPEC_DEFAULT;
    if (sim_card_spec_parse(spec, &cards, why, sizeof(why)))
        return cli_fail("%s%s='%s' is not valid %s; accepted: cards such as 2x16G", where, name, spec, why);
    if (place_sim(path, size))
        return cli_fail(
            "%sno simulated GPU: sim/libcuda.so.1 is neither beside this program nor in ../lib/gpucap; "
            "'cmake --install BUILD --component simgpu' installs it",
            where);
    if (setenv("GPUCAP_SIM", spec, 1) != 0)
        return cli_fail("%sno memory for the environment", where);
    return 0;
}

/* gpucap set: changes max, min and high of a running job, for all its processes at once. Owns no lock. */
#include "tools/gpucap/arguments.h"
#include "tools/gpucap/cli.h"
#include "interpose/settings/options.h"
#include "tools/gpucap/look.h"
#include "tools/gpucap/steer.h"

#include <string.h>

#define NAMES_MAX 64 /* of jobs that a mistyped name is compared with */

/* Returns the existing job whose name is nearest to a name without processes, or NULL. */
static const char *meant(const struct ledgers *ledgers, const char *name)
{
    const char *names[NAMES_MAX];
    size_t count = 0;

    for (int i = 0; i < ledgers->count; i++) {
        const struct ledgers_card *card = &ledgers->cards[i];

        for (int j = 0; j < card->count && count < NAMES_MAX; j++) {
            if (*card->processes[j].entry.job)
                names[count++] = card->processes[j].entry.job;
        }
    }
    return cli_suggest(name, names, count);
}

/* A number can only be a process; a name may be that of a group that has no process yet. */
static int set_absent(struct ledgers *ledgers, const char *word, const struct steer_max *max)
{
    const char *guess = meant(ledgers, word);
    struct options scratch;
    char error[OPTIONS_ERROR_MAX];

    if (strspn(word, "0123456789") == strlen(word) || !strcmp(word, "all"))
        return look_absent("set", ledgers, word);
    if (guess) {
        cli_fail("set: no job '%s' has processes here (did you mean %s?)", word, guess);
        return CLI_UNDONE;
    }
    options_init(&scratch);
    if (options_set(&scratch, OPTIONS_GROUP, word, OPTIONS_DEFAULT, error))
        return cli_fail("set: %s", error);
    if (!ledgers->count) {
        cli_fail("set: there is no ledger in %s yet: start a program under gpucap first", ledgers->folder);
        return CLI_UNDONE;
    }
    return steer_make(ledgers, word, max, stdout, stderr);
}

/* Sets one limit of what the word means. */
static int set_one(struct ledgers *ledgers, const char *word, const struct steer_max *max)
{
    if (strcmp(word, "all") != 0 && ledgers_choose(ledgers, word)) {
        ledgers_choose_job(ledgers);
        return steer_set(ledgers, max, stdout, stderr);
    }
    return set_absent(ledgers, word, max);
}

/* Reads the limits that were given. Returns how many, or -1 after a message. */
static int parse_limits(const struct arguments *arguments, struct steer_max limits[])
{
    int count = 0;

    for (enum ledger_limit limit = LEDGER_MAX; limit <= LEDGER_HIGH; limit++) {
        const char *name = steer_name(limit), *value = arguments_value(arguments, name);

        if (!value)
            continue;
        const char *why = steer_parse_max(value, limit, &limits[count++]);
        if (why) {
            cli_fail("set: --%s='%s' is not valid (%s); accepted: %s, or none", name, value, why, SIZE_FORM);
            return -1;
        }
    }
    return count;
}

int cmd_set(const struct arguments *arguments)
{
    struct ledgers ledgers;
    struct steer_max limits[LEDGER_HIGH + 1];
    const int count = parse_limits(arguments, limits);
    int status;

    if (count < 0)
        return CLI_FAILED;
    if (arguments->count != 1 || !count)
        return cli_fail("set: usage: gpucap set PID|JOB|GROUP [--max=SIZE] [--min=SIZE] [--high=SIZE]");
    if ((status = look_open(&ledgers, arguments)))
        return status;
    for (int i = 0; i < count; i++) {
        const int rc = set_one(&ledgers, arguments->operands[0], &limits[i]);

        status = status ? status : rc;
    }
    ledgers_close(&ledgers);
    return status;
}

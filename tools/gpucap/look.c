/* look: see look.h. */
#include "look.h"

#include "cli.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

int look_open(struct ledgers *ledgers, const char *command, const struct arguments *arguments)
{
    const char *folder = arguments_value(arguments, command, "ledger");
    const char *sim = arguments_value(arguments, command, "sim");
    char driver[PATH_MAX], where[32];
    int status;

    snprintf(where, sizeof where, "%s: ", command);
    if (sim && (status = cli_use_sim(where, *sim ? sim : NULL, driver, sizeof driver)))
        return status;
    if ((status = ledgers_open(ledgers, command, folder, sim ? driver : NULL)))
        return status;
    ledgers_look(ledgers);
    ledgers_complain(ledgers, command);
    return 0;
}

int look_absent(const char *command, const struct ledgers *ledgers, const char *word)
{
    int processes = 0;

    for (int i = 0; i < ledgers->count; i++)
        processes += ledgers->cards[i].count;
    if (processes)
        cli_fail("%s: no process or job '%s' runs under gpucap here; `gpucap ps` lists them", command, word);
    else
        cli_fail("%s: no process runs under gpucap here (looked in %s)", command, ledgers->folder);
    return CLI_UNDONE;
}

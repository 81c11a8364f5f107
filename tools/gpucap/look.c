/* look: see look.h. */
#include "tools/gpucap/look.h"

#include "tools/gpucap/cli.h"
#include "tools/gpucap/removed.h"
#include "interpose/base/quote.h"
#include "interpose/settings/options.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

int look_folder(const char *command, const char *given, char folder[LEDGER_PATH])
{
    struct options options;
    char error[OPTIONS_ERROR_MAX];

    if (options_load_here(&options, error) ||
        (given && options_set(&options, OPTIONS_LEDGER, given, OPTIONS_DEFAULT, error)))
        return cli_fail("%s: %s", command, error);
    if (!strcmp(options.ledger, "off")) {
        cli_fail("%s: the ledger is off (ledger=off), so processes cannot be seen", command);
        return CLI_UNDONE;
    }
    if (ledger_folder(options.ledger, folder, LEDGER_PATH))
        return cli_fail("%s: the path of the ledger's folder is too long", command);
    return 0;
}

int look_open(struct ledgers *ledgers, const struct arguments *arguments)
{
    const char *command = arguments->command->name, *sim = arguments_value(arguments, "sim");
    const char *ledger = arguments_value(arguments, "ledger");
    char driver[PATH_MAX], where[32], folder[LEDGER_PATH], word[LEDGER_PATH];
    int status = look_folder(command, ledger, folder);

    if (status)
        return status;
    snprintf(where, sizeof(where), "%s: ", command);
    if (sim && (status = cli_use_sim(where, *sim ? sim : NULL, driver, sizeof(driver))))
        return status;
    if ((status = ledgers_open(ledgers, command, folder, sim ? driver : NULL)))
        return status;
    if (ledger)
        snprintf(ledgers->option, sizeof(ledgers->option), " --ledger=%s",
                 quote_word(ledger, word, sizeof(word)));
    ledgers_look(ledgers);
    ledgers_complain(ledgers, command);
    removed_complain(command, folder);
    return 0;
}

int look_absent(const char *command, const struct ledgers *ledgers, const char *word)
{
    int processes = 0;

    for (int i = 0; i < ledgers->count; i++)
        processes += ledgers->cards[i].count;
    if (processes)
        cli_fail("%s: no process or job '%s' runs under gpucap here; `gpucap ps%s` lists them", command, word,
                 ledgers->option);
    else
        cli_fail("%s: no process runs under gpucap here (looked in %s; --ledger=DIR looks elsewhere)",
                 command, ledgers->folder);
    return CLI_UNDONE;
}

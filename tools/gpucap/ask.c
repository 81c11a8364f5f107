/* ask: see ask.h. */
#include "tools/gpucap/ask.h"

#include "tools/gpucap/cli.h"
#include "tools/gpucap/look.h"
#include "tools/gpucap/words.h"

#include <stdio.h>
#include <string.h>

#define ERROR "error: "

/* The process that was chosen, and its card. */
static const struct ledgers_process *chosen(const struct ledgers *ledgers, const struct ledgers_card **card)
{
    for (int i = 0; i < ledgers->count; i++) {
        for (int j = 0; j < ledgers->cards[i].count; j++) {
            if (ledgers->cards[i].processes[j].chosen) {
                *card = &ledgers->cards[i];
                return &ledgers->cards[i].processes[j];
            }
        }
    }
    return NULL;
}

static int undone(const char *command, const char *word, const char *why)
{
    fprintf(stderr, "gpucap: %s: process %s: %s\n", command, word, why);
    return CLI_UNDONE;
}

int ask_process(struct ledgers *ledgers, const char *command, const char *word, const char *request,
                char answer[INQUIRY_ANSWER])
{
    const struct ledgers_card *card;

    if (!*word || word[strspn(word, "0123456789")])
        return cli_fail("%s needs a process id, and '%s' is not one; `gpucap ps%s` lists them", command, word,
                        ledgers->option);
    ledgers_choose(ledgers, word);
    const struct ledgers_process *process = chosen(ledgers, &card);
    if (!process)
        return look_absent(command, ledgers, word);
    if (!ledgers_may_change(process))
        return undone(command, word, "only its owner, or root, may do this");
    const pid_t pid = process->entry.pid;
    const int rc = inquiry_ask(ledgers->folder, pid, process->entry.uid, request);
    if (rc)
        return undone(command, word, strerror(-rc));
    ledger_poke(card->ledger, process->slot, 0, ASK_MS);
    if (inquiry_hear(ledgers->folder, pid, process->entry.uid, answer) < 0)
        return undone(command, word, "no answer: it is stopped, ends, or has an older library");
    if (strncmp(answer, ERROR, strlen(ERROR)) != 0)
        return 0;
    answer[strcspn(answer, "\n")] = '\0';
    words_clean(answer);
    return undone(command, word, answer + strlen(ERROR));
}

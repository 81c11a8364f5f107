/* summary: see summary.h. */
#include "summary.h"

#include "cli.h"
#include "ledgers.h"
#include "look.h"
#include "words.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- signals ---- */

static volatile sig_atomic_t child;

static void pass_on(int signal)
{
    const int before = errno;

    kill((pid_t)child, signal);
    errno = before;
}

static void set_signals(const int *signals, size_t count, void (*handler)(int))
{
    const struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};

    for (size_t i = 0; i < count; i++)
        sigaction(signals[i], &action, NULL);
}

static void leave_signals_to_child(void)
{
    static const int of_terminal[] = {SIGINT, SIGQUIT}, others[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

    set_signals(of_terminal, sizeof of_terminal / sizeof *of_terminal, SIG_IGN);
    set_signals(others, sizeof others / sizeof *others, pass_on);
}

/* ---- the line ---- */

static void print_card(const struct ledgers_card *card, const char *job, const struct ledger_totals *totals)
{
    char peak[WORDS_TEXT], max[WORDS_TEXT], waited[WORDS_TEXT], lent[WORDS_TEXT], borrowed[WORDS_TEXT];

    fprintf(stderr, "gpucap: %s on %s: peak %s of %s, waited %s, lent %s, borrowed %s, %llu refusal%s\n", job,
            ledgers_card_name(card), words_size(totals->peak, peak), words_size(totals->max, max),
            words_span(totals->waited_ms, waited), words_size(totals->lent, lent),
            words_size(totals->borrowed, borrowed), (unsigned long long)totals->refused,
            totals->refused == 1 ? "" : "s");
}

static void print_summary(const char *job, const char *driver)
{
    struct ledgers ledgers;
    struct ledger_totals totals;
    char folder[LEDGER_PATH];
    int cards = 0;

    if (look_folder("run", NULL, folder) || ledgers_open(&ledgers, "run", folder, driver))
        return; /* it was said why */
    ledgers_look(&ledgers);
    for (int i = 0; i < ledgers.count; i++) {
        if (ledgers.cards[i].ledger && ledger_read_job(ledgers.cards[i].ledger, job, &totals)) {
            print_card(&ledgers.cards[i], job, &totals);
            cards++;
        }
    }
    if (!cards)
        fprintf(stderr, "gpucap: %s: no card was used under its limit\n", job);
    ledgers_close(&ledgers);
}

bool summary_watch(const char *job, const char *driver, int *status)
{
    sigset_t all, before;
    int end;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before); /* none may come before the handlers are there */
    const pid_t pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        return false;
    }
    if (pid < 0) {
        *status = cli_fail("run: no process for --summary: %s", strerror(errno));
        return true;
    }
    child = pid;
    leave_signals_to_child();
    sigprocmask(SIG_SETMASK, &before, NULL);
    while (waitpid(pid, &end, 0) < 0 && errno == EINTR)
        ;
    *status = WIFSIGNALED(end) ? 128 + WTERMSIG(end) : WEXITSTATUS(end);
    if (job && *job)
        print_summary(job, driver);
    else
        fputs("gpucap: no limit is set, so there is nothing to sum up\n", stderr);
    return true;
}

/* summary: see summary.h. */
#include "tools/gpucap/summary.h"

#include "tools/gpucap/cli.h"
#include "tools/gpucap/ledgers.h"
#include "tools/gpucap/look.h"
#include "tools/gpucap/words.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the program ---- */

/* Signals that are taken one by one while the program runs. */
static sigset_t awaited(void)
{
    static const int signals[] = {SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
        sigaddset(&set, signals[i]);
    return set;
}

/* Waits for the end of the program, passes signals on to it, and reaps orphans, which it inherits as the
 * first process of a container. Returns false if it cannot learn how the program ended. */
static bool await(pid_t pid, const sigset_t *signals, int *end)
{
    siginfo_t info;
    pid_t ended;

    for (;;) {
        const int signal = sigwaitinfo(signals, &info);

        if (signal < 0 && errno != EINTR)
            return false;
        /* What the terminal sends has reached the program already. */
        if (signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL)
            kill(pid, signal);
        while ((ended = waitpid(-1, end, WNOHANG)) > 0) {
            if (ended == pid)
                return true;
        }
        if (ended < 0 && errno != EINTR)
            return false;
    }
}

/* ---- the line ---- */

static void print_card(const struct ledgers_card *card, const char *job, const struct ledger_totals *totals)
{
    char peak[WORDS_TEXT], max[WORDS_TEXT], waited[WORDS_TEXT], lent[WORDS_TEXT], borrowed[WORDS_TEXT];
    const bool limited = totals->max != WORDS_UNLIMITED;

    fprintf(stderr, "gpucap: %s on %s: peak %s%s%s, waited %s, lent %s, borrowed %s, %llu refusal%s\n", job,
            ledgers_card_name(card), words_size(totals->peak, peak), limited ? " of " : "",
            limited ? words_size(totals->max, max) : " (no limit)", words_span(totals->waited_ms, waited),
            words_size(totals->lent, lent), words_size(totals->borrowed, borrowed),
            (unsigned long long)totals->refused, totals->refused == 1 ? "" : "s");
}

static void print_summary(const char *job, const char *driver)
{
    struct ledgers ledgers;
    struct ledger_totals totals;
    char folder[LEDGER_PATH];
    int cards = 0;

    if (look_folder("run", NULL, folder) || ledgers_open(&ledgers, "run", folder, driver))
        return; /* it was said why */
    ledgers_read(&ledgers);
    for (int i = 0; i < ledgers.count; i++) {
        if (ledgers.cards[i].ledger && ledger_read_job(ledgers.cards[i].ledger, job, &totals)) {
            print_card(&ledgers.cards[i], job, &totals);
            cards++;
        }
    }
    if (!cards)
        fprintf(stderr, "gpucap: %s: no summary: it has used no GPU, or its ledger is not there\n", job);
    ledgers_close(&ledgers);
}

bool summary_watch(const char *job, const char *driver, int *status)
{
    void (*on_child)(int) = signal(SIGCHLD, SIG_DFL); /* if it is ignored, waitpid finds no status */
    const sigset_t signals = awaited();
    sigset_t before;
    int end;

    sigprocmask(SIG_BLOCK, &signals, &before);
    const pid_t pid = fork();
    if (pid == 0) {
        signal(SIGCHLD, on_child);
        sigprocmask(SIG_SETMASK, &before, NULL);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* the program ends if gpucap is killed */
        return false;
    }
    const bool known = pid > 0 && await(pid, &signals, &end);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (!known) {
        *status = cli_fail("run: --summary: %s", strerror(errno));
        return true;
    }
    *status = WIFSIGNALED(end) ? 128 + WTERMSIG(end) : WEXITSTATUS(end);
    if (job && *job && strcmp(job, "none") != 0)
        print_summary(job, driver);
    else
        fputs("gpucap: no limit is set, so there is nothing to sum up\n", stderr);
    if (WIFSIGNALED(end) && WTERMSIG(end) == SIGINT)
        raise(SIGINT); /* a shell's loop ends with it */
    return true;
}

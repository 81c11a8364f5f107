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
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- signals ---- */

static const int passed_on[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
enum { PASSED_ON = sizeof passed_on / sizeof *passed_on };

static volatile sig_atomic_t child; /* 0: none */

/* What the terminal sends has reached the child already. */
static void pass_on(int signal, siginfo_t *info, void *context)
{
    const int before = errno;

    (void)context;
    if (child && info->si_code != SI_KERNEL)
        kill((pid_t)child, signal);
    errno = before;
}

static void pass_signals_on(void)
{
    const struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_RESTART | SA_SIGINFO};

    for (int i = 0; i < PASSED_ON; i++)
        sigaction(passed_on[i], &action, NULL);
}

static void pass_no_signals_on(void)
{
    child = 0;
    for (int i = 0; i < PASSED_ON; i++)
        signal(passed_on[i], SIG_DFL);
}

/* Waits for the end of the child, and of orphans meanwhile: in a container they are ours to wait for. Returns
 * false if the child's end cannot be known. */
static bool await(pid_t pid, int *end)
{
    siginfo_t info;

    for (;;) {
        if (waitid(P_ALL, 0, &info, WEXITED | WNOWAIT)) {
            if (errno == EINTR)
                continue;
            return false;
        }
        if (info.si_pid == pid)
            pass_no_signals_on(); /* before its number can be another process's */
        const pid_t got = waitpid(info.si_pid, end, 0);
        if (info.si_pid == pid)
            return got == pid;
    }
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
    ledgers_read(&ledgers);
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
    void (*on_child)(int) = signal(SIGCHLD, SIG_DFL); /* ignored, it would hide how the child ends */
    sigset_t all, before;
    int end;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before); /* none may come before the handlers are there */
    const pid_t pid = fork();
    if (pid == 0) {
        signal(SIGCHLD, on_child);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* who kills gpucap means the program */
        sigprocmask(SIG_SETMASK, &before, NULL);
        return false;
    }
    if (pid < 0) {
        *status = cli_fail("run: no process for --summary: %s", strerror(errno));
        return true;
    }
    child = pid;
    pass_signals_on();
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (!await(pid, &end)) {
        *status = cli_fail("run: the end of the program is not known: %s", strerror(errno));
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

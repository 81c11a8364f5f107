/* A process of a ledger that does nothing else: joins, publishes the figures that it was given, and answers
 * questions by giving its idle memory back. For tests of the commands that read and change ledgers.
 *
 * usage: prog_member FOLDER UUID JOB MAX USED CACHED [deaf]
 *
 * JOB is - for none, MAX 0 for no limit; sizes are in MiB. Then it reads commands from stdin, answers each
 * with a line, and ends with the input:
 *     use USED CACHED      publishes new figures
 *     each MAX             has a limit of its own, beside the job's
 *     stuck                can give nothing of its idle memory back from now on
 *     later USED CACHED    the same, but only when a question comes
 *     refuse ASKED         notes a refusal
 *     also UUID            joins the job on another card too, with the same figures, and never answers there
 *     wait BYTES           waits for so much, beyond its lease, in a thread of its own
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "interpose/account/ledger.h"
#include "tests/support/ledger_short.h"

#define MIB     UINT64_C(1048576)
#define RESERVE (64 * MIB) /* the default */

static const char *folder, *job; /* job: NULL for none */
static struct ledger *ledger;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the figures */
static struct ledger_figures figures;
static uint64_t each = LEDGER_UNLIMITED; /* guarded by the mutex, as `is_stuck` */
static bool is_stuck;

static void publish(void)
{
    struct ledger_figures now = figures;

    now.lendable = is_stuck ? 0 : now.cached;
    if (each != LEDGER_UNLIMITED || ledger_max(ledger) != LEDGER_UNLIMITED)
        now.limit = each;
    ledger_publish(ledger, &now);
    ledger_settle(ledger, figures.used);
}

static void *listen_for_questions(void *unused)
{
    uint64_t bytes;

    (void)unused;
    while (ledger_listen(ledger, &bytes)) {
        pthread_mutex_lock(&mutex);
        const uint64_t given = is_stuck ? 0 : bytes < figures.cached ? bytes : figures.cached;
        figures.cached -= given;
        figures.used -= given;
        publish();
        pthread_mutex_unlock(&mutex);
        ledger_note_lent(ledger, given);
        ledger_answer(ledger);
    }
    return NULL;
}

static void *wait_for_memory(void *bytes)
{
    ledger_wait_for(ledger, 0, ledger_lease(ledger) + *(const uint64_t *)bytes, 600000);
    return NULL;
}

static void note_refusal(uint64_t asked)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    const bool has_job = ledger_max(ledger) != LEDGER_UNLIMITED;
    const uint64_t job_used = has_job ? ledger_used(ledger) : 0;
    const bool is_job = has_job && each - figures.used > ledger_room(ledger);
    const uint64_t limit = is_job                 ? ledger_max(ledger)
                           : each < figures.limit ? each
                                                  : figures.limit,
                   used = is_job ? job_used : figures.used;
    const struct ledger_refusal refusal = {
        .at = (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec,
        .asked = asked,
        .used = figures.used,
        .job_used = job_used,
        .limit = limit,
        .fits = limit > used + RESERVE ? limit - used - RESERVE : 0,
        .bound = is_job ? RECORDING_LIMIT_JOB : RECORDING_LIMIT_PROCESS,
    };
    ledger_note_refusal(ledger, &refusal, (const uint64_t[RECORDING_APART_COUNT]){0});
}

static void join_also(const char *uuid)
{
    struct ledger *other;
    char why[LEDGER_WHY];

    if (ledger_open(&other, folder, uuid, why) || ledger_join(other, job, figures.limit)) {
        fprintf(stderr, "prog_member: cannot join: %s\n", why);
        exit(1);
    }
    ledger_publish(other, &figures);
    ledger_settle(other, figures.used);
}

static void obey(const char *line)
{
    static uint64_t waits_for;
    char uuid[LEDGER_UUID];
    unsigned long long first = 0, second = 0;
    pthread_t waiter;

    pthread_mutex_lock(&mutex);
    if (sscanf(line, "use %llu %llu", &first, &second) == 2) {
        figures.used = first * MIB;
        figures.cached = second * MIB;
        publish();
    } else if (sscanf(line, "later %llu %llu", &first, &second) == 2) {
        figures.used = first * MIB;
        figures.cached = second * MIB;
    } else if (sscanf(line, "each %llu", &first) == 1) {
        each = first * MIB;
        publish();
    } else if (strcmp(line, "stuck\n") == 0) {
        is_stuck = true;
    } else if (sscanf(line, "refuse %llu", &first) == 1) {
        note_refusal(first * MIB);
    } else if (sscanf(line, "also %47s", uuid) == 1) {
        join_also(uuid);
    } else if (sscanf(line, "wait %llu", &first) == 1) {
        waits_for = first * MIB;
        if (pthread_create(&waiter, NULL, wait_for_memory, &waits_for) == 0)
            pthread_detach(waiter);
    }
    pthread_mutex_unlock(&mutex);
    puts("done");
    fflush(stdout);
}

static uint64_t mib(const char *text)
{
    return strtoull(text, NULL, 10) * MIB;
}

int main(int argc, char **argv)
{
    char why[LEDGER_WHY], line[128];
    pthread_t listener;

    if (argc < 7)
        return 2;
    const uint64_t max = mib(argv[4]) ? mib(argv[4]) : LEDGER_UNLIMITED;
    folder = argv[1];
    job = strcmp(argv[3], "-") ? argv[3] : NULL;
    if (ledger_open(&ledger, folder, argv[2], why) || ledger_join(ledger, job, max)) {
        fprintf(stderr, "prog_member: cannot join: %s\n", why);
        return 1;
    }
    figures = (struct ledger_figures){.used = mib(argv[5]), .cached = mib(argv[6]), .limit = max};
    ledger_extend(ledger, figures.used);
    publish();
    if (argc < 8 && pthread_create(&listener, NULL, listen_for_questions, NULL))
        return 1;
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin))
        obey(line);
    _Exit(0); /* as a program that is killed: the kernel gives the slot up */
}

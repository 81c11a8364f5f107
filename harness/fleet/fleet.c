/* `fleet`: starts many trainings at once, each under its own cap or all under one, watches them to their end
 * and reports. See fleet_plan_help for its use. stdout gets the report, stderr the progress and the messages.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/fleet/fleet_config.h"
#include "harness/fleet/fleet_meter.h"
#include "harness/fleet/fleet_mps.h"
#include "harness/fleet/fleet_place.h"
#include "harness/fleet/fleet_report.h"
#include "harness/fleet/fleet_run.h"
#include "harness/fleet/fleet_show.h"

#define USAGE 2 /* exit status */

static int open_logs(struct fleet_member *members, size_t count, const char *folder)
{
    char path[PATH_MAX];

    if (mkdir(folder, 0777) && errno != EEXIST) {
        fprintf(stderr, "fleet: --logs=%s: %s\n", folder, strerror(errno));
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%zu.log", folder, i);
        members[i].log = fopen(path, "we");
        if (!members[i].log) {
            fprintf(stderr, "fleet: %s: %s\n", path, strerror(errno));
            return -1;
        }
    }
    return 0;
}

static void close_logs(struct fleet_member *members, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (members[i].log && fclose(members[i].log))
            fprintf(stderr, "fleet: the log of member %zu is not complete: %s\n", i, strerror(errno));
        members[i].log = NULL;
    }
}

static int run_all(const struct fleet_plan *plan, struct fleet_member *members, unsigned at_once)
{
    struct fleet_show show;
    const struct fleet_watch watch = {
        .timeout_s = plan->timeout_s, .at_once = at_once, .show = fleet_show_all, .arg = &show};

    fleet_show_open(&show, plan->quiet);
    for (size_t i = 0; i < plan->count; i++)
        fleet_member_prepare(&members[i], &plan->jobs[i]);
    const int signal = fleet_run(members, plan->count, &watch);
    fleet_show_end(&show);
    return signal;
}

/* Caps promise memory: together they may promise more than the card has. */
static void warn_of_caps(const struct fleet_plan *plan)
{
    const uint64_t total = fleet_meter_total();
    const uint64_t caps = fleet_plan_caps(plan, total);
    char asked[32], there[32];

    if (plan->quiet || total == 0 || caps <= total)
        return;
    fleet_show_bytes(caps, asked, sizeof(asked));
    fleet_show_bytes(total, there, sizeof(there));
    fprintf(stderr,
            "fleet: the caps add up to %s, but the card has %s:\nfleet: not all members may get theirs\n",
            asked, there);
}

static bool all_ok(const struct fleet_member *members, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (members[i].end != FLEET_OK)
            return false;
    }
    return true;
}

static int run_plan(const struct fleet_plan *plan)
{
    struct fleet_member *members = calloc(plan->count, sizeof(*members));
    struct fleet_member *alone = plan->serial ? calloc(plan->count, sizeof(*alone)) : NULL;
    int status = 1, signal = 0;

    if (!members || (plan->serial && !alone))
        fprintf(stderr, "fleet: no memory for %zu processes\n", plan->count);
    else if (!plan->logs || open_logs(members, plan->count, plan->logs) == 0) {
        if (alone) {
            if (!plan->quiet)
                fputs("fleet: one after the other\n", stderr);
            signal = run_all(plan, alone, 1);
        }
        if (!signal) {
            if (alone && !plan->quiet)
                fputs("fleet: together\n", stderr);
            signal = run_all(plan, members, 0);
            fleet_report(stdout, members, alone, plan->count, !isatty(STDOUT_FILENO));
            fleet_budget_report(stdout, &plan->budget);
        }
        status = signal ? 128 + signal : all_ok(members, plan->count) ? 0 : 1;
    }
    if (members)
        close_logs(members, plan->count);
    free(members);
    free(alone);
    return status;
}

/* Prepares the card, MPS, the job and the meter. Returns an exit status. */
static int prepare_place(struct fleet_plan *plan)
{
    if (plan->sim && fleet_place_simulate(plan->sim_spec))
        return USAGE;
    if (plan->mps && fleet_mps_missing()) {
        fprintf(stderr, "fleet: --mps: %s\n", fleet_mps_missing());
        return 1;
    }
    if (plan->mps && fleet_mps_start())
        return 1;
    if (plan->job)
        fleet_budget_begin(&plan->budget, plan->wait);
    if (!fleet_meter_open() && !plan->quiet)
        fputs("fleet: no NVML here: memory is not shown\n", stderr);
    return 0;
}

int main(int argc, char **argv)
{
    struct fleet_plan plan;
    int status = USAGE;

    if (fleet_plan_parse(&plan, argc, argv)) {
        fprintf(stderr, "fleet: %s\n", plan.error);
    } else if (plan.help || plan.man) {
        (plan.help ? fleet_plan_help : fleet_plan_manual)(stdout);
        status = 0;
    } else if (fleet_run_open()) {
        fputs("fleet: signals cannot be read here\n", stderr);
        status = 1;
    } else {
        signal(SIGPIPE, SIG_IGN); /* if the reader of our output ends, the members go on */
        status = prepare_place(&plan);
        if (!status) {
            warn_of_caps(&plan);
            status = run_plan(&plan);
        }
    }
    fleet_meter_close();
    if (plan.mps)
        fleet_mps_stop();
    fleet_place_clean();
    fleet_plan_free(&plan);
    if (fflush(stdout) == 0)
        return status;
    fputs("fleet: cannot write to stdout\n", stderr);
    return 1;
}

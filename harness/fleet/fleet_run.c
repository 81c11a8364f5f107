/* fleet_run: runs the members of a fleet to their end. See fleet_run.h. */
#include "harness/fleet/fleet_run.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "harness/fleet/fleet_meter.h"

#define TICK_MS  20
#define LOOK_NS  UINT64_C(20000000) /* between two queries of NVML; one takes about 20 us on an H200 */
#define SHOW_NS  UINT64_C(200000000)
#define SECOND   UINT64_C(1000000000)
#define GRACE_NS (FLEET_GRACE_S * SECOND)

static int signals = -1;
static int stopped_by;

struct loop {
    struct fleet_member *members;
    size_t count, started;
    const struct fleet_watch *watch;
    uint64_t looked_ns, shown_ns;
    uint64_t card_before; /* bytes in use on the card before the first start */
    uint64_t kill_ns;     /* when members are killed after a signal; 0: no signal */
    struct pollfd *polls;
};

/* Adds a signal unless it was ignored at the start, by nohup or the shell of a background job. */
static void add_unless_ignored(sigset_t *set, int number)
{
    struct sigaction now;

    if (sigaction(number, NULL, &now) || now.sa_handler != SIG_IGN)
        sigaddset(set, number);
}

int fleet_run_open(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    add_unless_ignored(&set, SIGINT);
    add_unless_ignored(&set, SIGTERM);
    add_unless_ignored(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL))
        return -errno;
    signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals < 0 ? -errno : 0;
}

int fleet_run_stopped(void)
{
    return stopped_by;
}

static bool alive(const struct fleet_member *member)
{
    return member->pid > 0;
}

static unsigned living(const struct loop *loop)
{
    unsigned count = 0;

    for (size_t i = 0; i < loop->started; i++)
        count += alive(&loop->members[i]);
    return count;
}

/* Returns true if the last start is long enough ago. */
static bool is_apart(const struct loop *loop)
{
    const uint64_t apart_ns = (uint64_t)(loop->watch->apart_s * 1e9);

    return loop->started == 0 || fleet_now() - loop->members[loop->started - 1].started_ns >= apart_ns;
}

static void start_next(struct loop *loop)
{
    const unsigned room = loop->watch->at_once ? loop->watch->at_once : (unsigned)loop->count;

    while (!stopped_by && loop->started < loop->count && living(loop) < room && is_apart(loop)) {
        fleet_member_start(&loop->members[loop->started++]);
        loop->shown_ns = 0;
    }
}

static void signal_all(struct loop *loop, int signal)
{
    for (size_t i = 0; i < loop->started; i++) {
        struct fleet_member *member = &loop->members[i];

        if (!alive(member))
            continue;
        if (member->end == FLEET_RUNNING)
            member->end = FLEET_STOPPED;
        fleet_member_signal(member, signal);
    }
}

/* Reads signals. A second one kills at once, except SIGHUP: a terminal that closes sends several. */
static void read_signals(struct loop *loop)
{
    struct signalfd_siginfo info;

    while (read(signals, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGCHLD || (info.ssi_signo == SIGHUP && stopped_by))
            continue;
        signal_all(loop, stopped_by ? SIGKILL : (int)info.ssi_signo);
        stopped_by = (int)info.ssi_signo;
        if (!loop->kill_ns)
            loop->kill_ns = fleet_now() + GRACE_NS;
    }
}

static void keep_time(struct loop *loop)
{
    const uint64_t now = fleet_now();
    const uint64_t limit = (uint64_t)(loop->watch->timeout_s * (double)SECOND);

    if (loop->kill_ns && now > loop->kill_ns)
        signal_all(loop, SIGKILL);
    for (size_t i = 0; limit && i < loop->started; i++) {
        struct fleet_member *member = &loop->members[i];

        if (!alive(member) || now - member->started_ns < limit)
            continue;
        if (member->end == FLEET_RUNNING) {
            member->end = FLEET_TIMED_OUT;
            fleet_member_signal(member, SIGTERM);
        } else if (now - member->started_ns > limit + GRACE_NS) {
            fleet_member_signal(member, SIGKILL);
        }
    }
}

/* Reads memory from NVML. If NVML does not list a member that runs alone (in a container), the growth of the
 * card counts as its memory. */
static void look(struct loop *loop)
{
    const uint64_t now = fleet_now(), card_used = fleet_meter_used();
    const bool alone = living(loop) == 1;

    if (now - loop->looked_ns < LOOK_NS)
        return;
    loop->looked_ns = now;
    if (loop->watch->card_peak && card_used > loop->card_before + *loop->watch->card_peak)
        *loop->watch->card_peak = card_used - loop->card_before;
    fleet_meter_look();
    for (size_t i = 0; i < loop->started; i++) {
        struct fleet_member *member = &loop->members[i];

        member->memory = fleet_meter_of(member->pid);
        if (!member->memory && alone && alive(member) && card_used > loop->card_before + member->card_growth)
            member->card_growth = card_used - loop->card_before;
        if (member->memory > member->peak_memory)
            member->peak_memory = member->memory;
    }
}

static void show(struct loop *loop)
{
    const uint64_t now = fleet_now();

    if (!loop->watch->show || now - loop->shown_ns < SHOW_NS)
        return;
    loop->shown_ns = now;
    loop->watch->show(loop->members, loop->count, loop->watch->arg);
}

/* Waits for output, then reads a bounded amount from each member, so that none starves the others. */
static void wait_and_read(struct loop *loop)
{
    nfds_t count = 0;

    loop->polls[count++] = (struct pollfd){.fd = signals, .events = POLLIN};
    for (size_t i = 0; i < loop->started; i++) {
        for (int which = 0; which < 2; which++) /* poll ignores negative descriptors */
            loop->polls[count++] = (struct pollfd){.fd = loop->members[i].pipe[which], .events = POLLIN};
    }
    if (poll(loop->polls, count, TICK_MS) <= 0)
        return;
    for (size_t i = 0; i < loop->started; i++) {
        for (int which = 0; which < 2; which++) {
            if (loop->polls[1 + 2 * i + (size_t)which].revents)
                fleet_member_read(&loop->members[i], which);
        }
    }
}

static void reap(struct loop *loop)
{
    for (size_t i = 0; i < loop->started; i++) {
        if (!alive(&loop->members[i]))
            continue;
        fleet_member_reap(&loop->members[i]);
        if (alive(&loop->members[i]))
            continue;
        loop->shown_ns = 0;
        if (!loop->members[i].peak_memory)
            loop->members[i].peak_memory = loop->members[i].card_growth;
    }
}

int fleet_run(struct fleet_member *members, size_t count, const struct fleet_watch *watch)
{
    struct loop loop = {.members = members, .count = count, .watch = watch};

    loop.polls = calloc(2 * count + 1, sizeof(*loop.polls));
    if (!loop.polls)
        return SIGABRT;
    loop.card_before = fleet_meter_used();
    start_next(&loop);
    while (living(&loop) || (!stopped_by && loop.started < count)) {
        wait_and_read(&loop);
        read_signals(&loop);
        look(&loop);
        reap(&loop);
        keep_time(&loop);
        start_next(&loop);
        show(&loop);
    }
    loop.shown_ns = 0;
    show(&loop);
    free(loop.polls);
    return stopped_by;
}

/* scenario_card: a card of a given size, simulated or real. See scenario_card.h. */
#include "harness/scenario/scenario_card.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/fleet/fleet_line.h"
#include "harness/fleet/fleet_meter.h"
#include "harness/fleet/fleet_place.h"
#include "tools/gpucap/probe.h"

#define PAGE        (UINT64_C(2) << 20)
#define SIM_WHOLE   (UINT64_C(8) << 30)
#define SIM_CONTEXT (UINT64_C(16) << 20)  /* small, as the models trained on simgpu are */
#define GPU_CONTEXT (UINT64_C(518) << 20) /* by NVML on an H200, driver 580 (measured) */

static struct {
    pid_t pid;
    FILE *to, *from;
    uint64_t left; /* what it was last told to leave, and has left; 0: nothing yet */
} ballast;

static int problem(struct card_choice *card, const char *text)
{
    card->problem = text;
    return -1;
}

int card_choose(struct card_choice *card, bool simulated)
{
    static struct probe probe;

    memset(card, 0, sizeof(*card));
    card->simulated = simulated || fleet_place_simulated() || !fleet_place_has_gpu();
    if (card->simulated) {
        snprintf(card->name, sizeof(card->name), "simgpu");
        card->whole = SIM_WHOLE;
        card->context = SIM_CONTEXT;
        return card_resize(card, card->whole);
    }
    probe_driver(&probe, NULL);
    if (!probe.usable || probe.device_count == 0)
        return problem(card, "the driver finds no device");
    if (!fleet_meter_open())
        return problem(card, "NVML does not start");
    snprintf(card->name, sizeof(card->name), "%s", probe.devices[0].name);
    card->whole = (fleet_meter_total() - fleet_meter_used()) / PAGE * PAGE;
    card->context = GPU_CONTEXT;
    card->set = card->whole;
    return card->whole ? 0 : problem(card, "NVML does not say how much memory the card has");
}

/* ---- a simulated card ---- */

static int resize_simulated(struct card_choice *card, uint64_t bytes)
{
    char spec[96];

    fleet_meter_close();
    snprintf(spec, sizeof(spec), "1x%llu;ctx=%llu", (unsigned long long)bytes,
             (unsigned long long)card->context);
    if (fleet_place_simulate(spec))
        return problem(card, "the simulated card cannot be made");
    card->set = bytes;
    return fleet_meter_open() ? 0 : problem(card, "the simulated NVML does not start");
}

/* ---- a GPU and its ballast ---- */

static void end_ballast(void)
{
    if (ballast.to)
        fclose(ballast.to); /* ballast exits at the end of its stdin */
    if (ballast.from)
        fclose(ballast.from);
    if (ballast.pid > 0)
        waitpid(ballast.pid, NULL, 0);
    memset(&ballast, 0, sizeof(ballast));
}

static void become_ballast(const int in[2], const int out[2], const char *path, pid_t parent)
{
    sigset_t none;

    setpgid(0, 0); /* so that the terminal's signals do not reach it */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    if (getppid() == parent)
        execl(path, path, (char *)NULL);
    _exit(127);
}

static int start_ballast(struct card_choice *card)
{
    const pid_t parent = getpid();
    char path[PATH_MAX];
    int in[2], out[2];

    if (!fleet_beside("ballast", path))
        return problem(card, "build/ballast is missing");
    if (pipe2(in, O_CLOEXEC))
        return problem(card, "no pipe");
    if (pipe2(out, O_CLOEXEC)) {
        close(in[0]);
        close(in[1]);
        return problem(card, "no pipe");
    }
    fflush(NULL);
    ballast.pid = fork();
    if (ballast.pid == 0)
        become_ballast(in, out, path, parent);
    close(in[0]);
    close(out[1]);
    ballast.to = fdopen(in[1], "w");
    ballast.from = fdopen(out[0], "r");
    return ballast.pid > 0 && ballast.to && ballast.from ? 0 : problem(card, "ballast does not start");
}

static int resize_gpu(struct card_choice *card, uint64_t bytes)
{
    static char answer[256];

    if (bytes >= card->whole) {
        end_ballast();
        card->set = card->whole;
        return 0;
    }
    if (ballast.left == bytes) /* taking all of it again would cost 0.1 s of an H200 */
        return 0;
    if (!ballast.pid && start_ballast(card))
        return -1;
    ballast.left = 0;
    fprintf(ballast.to, "leave %llu\n", (unsigned long long)bytes);
    fflush(ballast.to);
    if (!fgets(answer, sizeof(answer), ballast.from)) {
        end_ballast();
        return problem(card, "ballast ended; is there room for its context?");
    }
    answer[strcspn(answer, "\n")] = '\0';
    if (strncmp(answer, "ready ", 6) != 0)
        return problem(card, answer);
    card->set = (uint64_t)fleet_line_number(answer, "free", 0);
    ballast.left = bytes;
    return 0;
}

int card_resize(struct card_choice *card, uint64_t bytes)
{
    bytes = bytes / PAGE * PAGE;
    card->problem = NULL;
    if (bytes < 2 * PAGE)
        return problem(card, "too small for a card");
    return card->simulated ? resize_simulated(card, bytes) : resize_gpu(card, bytes);
}

void card_leave(struct card_choice *card)
{
    end_ballast();
    fleet_meter_close();
    if (card->simulated)
        fleet_place_clean();
}

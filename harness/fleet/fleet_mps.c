/* fleet_mps: runs a CUDA MPS server for the children. See fleet_mps.h. */
#include "harness/fleet/fleet_mps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/fleet/fleet_place.h"

#define CONTROL    "nvidia-cuda-mps-control"
#define WAIT_STEPS 100 /* of 50 ms, until the server's pipe exists or the server has ended */

static pid_t server;
static char folder[PATH_MAX - 64];

static bool installed(void)
{
    const char *path = getenv("PATH");
    char file[PATH_MAX];

    for (; path && *path; path += strcspn(path, ":"), path += *path == ':') {
        snprintf(file, sizeof(file), "%.*s/%s", (int)strcspn(path, ":"), path, CONTROL);
        if (access(file, X_OK) == 0)
            return true;
    }
    return false;
}

const char *fleet_mps_missing(void)
{
    if (fleet_place_simulated())
        return "MPS needs a GPU";
    return installed() ? NULL : CONTROL " is not installed";
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static void become_server(pid_t parent)
{
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 0; nothing >= 0 && i <= STDERR_FILENO; i++)
        dup2(nothing, i);
    if (getppid() == parent)
        execlp(CONTROL, CONTROL, "-f", (char *)NULL);
    _exit(127);
}

static bool is_up(void)
{
    char control[PATH_MAX];

    snprintf(control, sizeof(control), "%s/control", folder);
    for (int i = 0; i < WAIT_STEPS; i++) {
        if (access(control, F_OK) == 0)
            return true;
        if (waitpid(server, NULL, WNOHANG) == server) {
            server = 0;
            return false;
        }
        pause_ms(50);
    }
    return false;
}

int fleet_mps_start(void)
{
    const char *base = getenv("TMPDIR");
    const pid_t parent = getpid();

    snprintf(folder, sizeof(folder), "%s/fleet-mps.XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(folder)) {
        fprintf(stderr, "fleet: no folder for MPS: %s\n", strerror(errno));
        return -1;
    }
    setenv("CUDA_MPS_PIPE_DIRECTORY", folder, 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", folder, 1);
    fflush(NULL);
    server = fork();
    if (server == 0)
        become_server(parent);
    if (server > 0 && is_up())
        return 0;
    fprintf(stderr, "fleet: " CONTROL " did not start\n");
    fleet_mps_stop();
    return -1;
}

static void ask_to_quit(void)
{
    FILE *control = popen(CONTROL " >/dev/null 2>&1", "we");

    if (!control)
        return;
    fputs("quit\n", control);
    pclose(control);
}

static void remove_folder(void)
{
    DIR *dir = opendir(folder);

    if (!dir)
        return;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
    rmdir(folder);
}

void fleet_mps_stop(void)
{
    if (server > 0) {
        ask_to_quit();
        for (int i = 0; i < WAIT_STEPS && waitpid(server, NULL, WNOHANG) == 0; i++)
            pause_ms(50);
        kill(-server, SIGKILL);
        waitpid(server, NULL, 0);
        server = 0;
    }
    if (folder[0])
        remove_folder();
    folder[0] = '\0';
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    unsetenv("CUDA_MPS_LOG_DIRECTORY");
}

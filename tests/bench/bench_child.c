/* bench_child: runs this program again, once per engine. See bench_child.h. */
#include "bench_child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_cuda.h"

#define SIM_CARD  "140G" /* as much as an H200 */
#define ARGUMENTS 32

static void folder(char path[PATH_MAX])
{
    const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);

    if (length < 0)
        bench_fail("/proc/self/exe cannot be read");
    path[length] = '\0';
    *strrchr(path, '/') = '\0';
}

bool bench_simulated(bool asked)
{
    return asked || getenv("GPUCAP_SIM") || access("/dev/nvidiactl", F_OK) != 0;
}

/* The simulated driver and runtime lie beside the program; the real runtime where the toolkit has it. */
static void set_libraries(bool simulated)
{
    const char *given = getenv("LD_LIBRARY_PATH");
    char path[PATH_MAX], all[3 * PATH_MAX];

    folder(path);
    if (simulated)
        snprintf(all, sizeof(all), "%s/sim", path);
    else
        snprintf(all, sizeof(all), "%s%s%s", given ? given : "", given && *given ? ":" : "",
                 BENCH_TOOLKIT_LIBRARIES);
    setenv("LD_LIBRARY_PATH", all, 1);
}

/* A simulated card can have any size, and each size is a machine of its own. */
static void set_machine(const struct bench_place *place, pid_t parent)
{
    char text[64];

    if (!place->simulated)
        return;
    snprintf(text, sizeof(text), "1x%llu;ctx=0", (unsigned long long)place->capacity);
    if (place->capacity)
        setenv("GPUCAP_SIM", text, 1);
    else
        setenv("GPUCAP_SIM", "1x" SIM_CARD, 0);
    snprintf(text, sizeof(text), "bench-%d-%llu", (int)parent, (unsigned long long)place->capacity);
    setenv("GPUCAP_SIM_ID", text, 1);
}

/* A real card is made smaller by the limit, pool or no pool. */
static void set_limit(const struct bench_place *place)
{
    char text[64];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)(place->capacity + place->overhead));
    setenv("GPUCAP_MAX", text, 1);
    setenv("GPUCAP_RESERVE", "0", 1);
}

void bench_join_place(const struct bench_place *place)
{
    set_machine(place, getpid());
}

void bench_library(const struct bench_place *place, const char *name, char *path, size_t size)
{
    char own[PATH_MAX];

    folder(own);
    snprintf(path, size, "%s%s%s", place->simulated ? own : "", place->simulated ? "/sim/" : "", name);
}

static void set_environment(const struct bench_engine *engine, const struct bench_place *place)
{
    const bool limited = place->capacity && !place->simulated;
    char path[PATH_MAX], library[PATH_MAX + 32];

    set_libraries(place->simulated);
    set_machine(place, getppid());
    if (limited)
        set_limit(place);
    unsetenv("LD_PRELOAD");
    if (!engine->free && !limited)
        return;
    folder(path);
    snprintf(library, sizeof(library), "%s/libgpucap.so", path);
    if (access(library, R_OK) != 0)
        bench_fail("%s is not there: build it first", library);
    setenv("LD_PRELOAD", library, 1);
    setenv("GPUCAP_POOL", engine->free ? "on" : "off", 1);
    if (engine->free)
        setenv("GPUCAP_FREE", engine->free, 1);
}

pid_t bench_spawn(const struct bench_engine *engine, const struct bench_place *place, char *const arguments[],
                  const int kept[], int *from)
{
    char *all[ARGUMENTS] = {program_invocation_name};
    int pipes[2], count = 1;

    while (arguments[count - 1] && count < ARGUMENTS - 1) {
        all[count] = arguments[count - 1];
        count++;
    }
    if (pipe2(pipes, O_CLOEXEC))
        bench_fail("no pipe");
    fflush(NULL);
    const pid_t child = fork();
    if (child < 0)
        bench_fail("no child");
    if (child == 0) {
        dup2(pipes[1], STDOUT_FILENO);
        for (; *kept >= 0; kept++)
            fcntl(*kept, F_SETFD, 0);
        set_environment(engine, place);
        execv("/proc/self/exe", all);
        bench_fail("cannot start again");
    }
    close(pipes[1]);
    *from = pipes[0];
    return child;
}

bool bench_reap(pid_t child)
{
    int status;

    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* fleet_place: see fleet_place.h. */
#include "harness/fleet/fleet_place.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/gpucap/cli.h"

#define SHARED_MEMORY "/dev/shm"
#define ID_SIZE       64

static char machine[ID_SIZE]; /* simulated machine made here; empty: none */

bool fleet_beside(const char *name, char path[PATH_MAX])
{
    char folder[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);

    if (length < 0)
        return false;
    folder[length] = '\0';
    *strrchr(folder, '/') = '\0';
    const int all = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return all > 0 && all < PATH_MAX && access(path, F_OK) == 0;
}

const char *fleet_program(const char *name, char path[PATH_MAX])
{
    return !strchr(name, '/') && fleet_beside(name, path) && access(path, X_OK) == 0 ? path : name;
}

bool fleet_place_simulated(void)
{
    return getenv("GPUCAP_SIM") != NULL;
}

static bool driver_answers(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*start)(unsigned) = library ? dlsym(library, "cuInit") : NULL;
    int (*count)(int *) = library ? dlsym(library, "cuDeviceGetCount") : NULL;
    int devices = 0;

    return start && count && start(0) == 0 && count(&devices) == 0 && devices > 0;
}

bool fleet_place_has_gpu(void)
{
    int status = 0;

    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        _exit(driver_answers() ? 0 : 1);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* Puts the folder first, once. */
static int prefer_libraries(const char *folder)
{
    const char *old = getenv("LD_LIBRARY_PATH");
    const size_t length = strlen(folder);
    char *all = NULL;

    if (old && !strncmp(old, folder, length) && (old[length] == ':' || !old[length]))
        return 0;
    if (asprintf(&all, "%s%s%s", folder, old && *old ? ":" : "", old ? old : "") < 0)
        return -1;
    const int error = setenv("LD_LIBRARY_PATH", all, 1);
    free(all);
    return error;
}

int fleet_place_simulate(const char *spec)
{
    static unsigned made;
    char folder[PATH_MAX];

    fleet_place_clean();
    if (cli_use_sim("sim: ", spec, folder, sizeof folder))
        return -1;
    if (prefer_libraries(folder))
        return -1;
    if (!spec && getenv("GPUCAP_SIM_ID"))
        return 0;
    snprintf(machine, sizeof machine, "fleet-%d-%u", (int)getpid(), made++);
    return setenv("GPUCAP_SIM_ID", machine, 1);
}

void fleet_place_clean(void)
{
    DIR *dir = machine[0] ? opendir(SHARED_MEMORY) : NULL;

    if (!dir)
        return;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (strstr(entry->d_name, machine))
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
    machine[0] = '\0';
}

/* fleet_place: finds the programs of this build and the card that children see. See fleet_place.h. */
#include "harness/fleet/fleet_place.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/gpucap/cli.h"

#define SHARED_MEMORY "/dev/shm"
#define ID_SIZE       64

static char machine[ID_SIZE]; /* simulated machine made here; empty: none */
static bool own_ledger;       /* its ledgers are in a folder made for it */

bool fleet_beside(const char *name, char path[PATH_MAX])
{
    char folder[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof(folder) - 1);

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

/* Makes a folder for the ledgers: simulated cards of all machines have the same UUIDs, and a ledger of
 * another machine would have wrong sizes. */
static int use_own_ledger(void)
{
    char folder[sizeof(SHARED_MEMORY) + ID_SIZE + 16];

    if (getenv("GPUCAP_LEDGER") && !own_ledger)
        return 0;
    own_ledger = true;
    snprintf(folder, sizeof(folder), SHARED_MEMORY "/gpucap-%s", machine);
    return setenv("GPUCAP_LEDGER", folder, 1);
}

int fleet_place_simulate(const char *spec)
{
    static unsigned made;
    char folder[PATH_MAX];

    fleet_place_clean();
    if (cli_use_sim("", spec, folder, sizeof(folder)))
        return -1;
    if (prefer_libraries(folder))
        return -1;
    if (!spec && getenv("GPUCAP_SIM_ID"))
        return 0;
    snprintf(machine, sizeof(machine), "fleet-%d-%u", (int)getpid(), made++);
    return setenv("GPUCAP_SIM_ID", machine, 1) || use_own_ledger() ? -1 : 0;
}

/* Removes a file, or a folder that has only files. */
static void remove_entry(int folder, const char *name)
{
    if (unlinkat(folder, name, 0) == 0)
        return;
    const int inside = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = inside < 0 ? NULL : fdopendir(inside);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir))
        unlinkat(inside, entry->d_name, 0);
    if (dir)
        closedir(dir);
    else if (inside >= 0)
        close(inside);
    unlinkat(folder, name, AT_REMOVEDIR);
}

void fleet_place_clean(void)
{
    DIR *dir = machine[0] ? opendir(SHARED_MEMORY) : NULL;

    if (!dir)
        return;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (strstr(entry->d_name, machine))
            remove_entry(dirfd(dir), entry->d_name);
    }
    closedir(dir);
    machine[0] = '\0';
}

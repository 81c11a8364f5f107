/* spawn_env: the environment half of spawn.h.
 *
 * Keeps "NAME=value" strings that it owns. Must never change the test's own environment. Owns no lock.
 */
#include "spawn.h"
#include "spawn_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef SPAWN_SANITIZER_RUNTIME
#define SPAWN_SANITIZER_RUNTIME ""
#endif

#define DEFAULT_SIM "1x8G"
#define SHM_FOLDER  "/dev/shm"

extern char **environ;

void *spawn_alloc(void *old, size_t bytes)
{
    void *p = realloc(old, bytes);
    if (!p) {
        fputs("spawn: out of memory\n", stderr);
        abort();
    }
    return p;
}

static bool steers_the_run(const char *entry)
{
    static const char *const names[] = {"LD_PRELOAD=",
                                        "LD_LIBRARY_PATH=",
                                        "CUDA_VISIBLE_DEVICES=",
                                        "COLUMNS=",
                                        "LINES=",
                                        "NO_COLOR=",
                                        "LC_ALL=",
                                        "LANG="};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!strncmp(entry, names[i], strlen(names[i])))
            return true;
    }
    return !strncmp(entry, "GPUCAP_", 7) && strncmp(entry, "GPUCAP_BUILD=", 13) != 0;
}

/* A folder that is removed with the files of the simulated machine. */
static void set_ledger(struct spawn_env *env, const char *id)
{
    char folder[128];

    snprintf(folder, sizeof(folder), SHM_FOLDER "/ledger-%.80s", id);
    spawn_env_set(env, "GPUCAP_LEDGER", folder);
}

struct spawn_env *spawn_env_new(void)
{
    struct spawn_env *env = spawn_alloc(NULL, sizeof(*env));
    size_t n = 0;
    while (environ[n])
        n++;
    env->vars = spawn_alloc(NULL, (n + 1) * sizeof(char *));
    env->count = 0;
    for (size_t i = 0; i < n; i++) {
        if (!steers_the_run(environ[i]))
            env->vars[env->count++] = strdup(environ[i]);
    }
    env->vars[env->count] = NULL;
    spawn_env_set(env, "LANG", "C.UTF-8");
    set_ledger(env, spawn_sim_id());
    return env;
}

void spawn_env_free(struct spawn_env *env)
{
    if (!env)
        return;
    for (size_t i = 0; i < env->count; i++)
        free(env->vars[i]);
    free(env->vars);
    free(env);
}

static size_t find(const struct spawn_env *env, const char *name)
{
    size_t len = strlen(name);
    size_t i = 0;
    while (i < env->count && (strncmp(env->vars[i], name, len) != 0 || env->vars[i][len] != '='))
        i++;
    return i;
}

void spawn_env_unset(struct spawn_env *env, const char *name)
{
    size_t i = find(env, name);
    if (i == env->count)
        return;
    free(env->vars[i]);
    env->vars[i] = env->vars[--env->count];
    env->vars[env->count] = NULL;
}

void spawn_env_set(struct spawn_env *env, const char *name, const char *value)
{
    char *entry = spawn_alloc(NULL, strlen(name) + strlen(value) + 2);
    sprintf(entry, "%s=%s", name, value);
    spawn_env_unset(env, name);
    env->vars = spawn_alloc(env->vars, (env->count + 2) * sizeof(char *));
    env->vars[env->count++] = entry;
    env->vars[env->count] = NULL;
}

const char *spawn_env_get(const struct spawn_env *env, const char *name)
{
    size_t i = find(env, name);
    return i == env->count ? NULL : strchr(env->vars[i], '=') + 1;
}

void spawn_env_prepend(struct spawn_env *env, const char *name, const char *value, char separator)
{
    const char *old = spawn_env_get(env, name);
    if (!old || !*old) {
        spawn_env_set(env, name, value);
        return;
    }
    char *joined = spawn_alloc(NULL, strlen(value) + strlen(old) + 2);
    sprintf(joined, "%s%c%s", value, separator, old);
    spawn_env_set(env, name, joined);
    free(joined);
}

const char *spawn_build_path(const char *relative)
{
    static char *known[64];
    static size_t used;
    const char *build = getenv("GPUCAP_BUILD");
    if (!build) {
        fputs("spawn: GPUCAP_BUILD is not set; run the test through ctest, or set it to the build folder\n",
              stderr);
        exit(2);
    }
    char *path = spawn_alloc(NULL, strlen(build) + strlen(relative) + 2);
    sprintf(path, "%s/%s", build, relative);
    for (size_t i = 0; i < used; i++) {
        if (!strcmp(known[i], path)) {
            free(path);
            return known[i];
        }
    }
    if (used == sizeof(known) / sizeof(known[0])) {
        fputs("spawn: too many different paths\n", stderr);
        abort();
    }
    return known[used++] = path;
}

static pid_t sim_owner; /* the process whose end removes the machine: not a forked child of the test */

static void clean_own_sim(void)
{
    if (getpid() == sim_owner)
        spawn_sim_clean(spawn_sim_id());
}

const char *spawn_sim_id(void)
{
    static char id[64];
    if (!id[0]) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        snprintf(id, sizeof(id), "t%d-%llx%lx", (int)getpid(), (unsigned long long)now.tv_sec, now.tv_nsec);
        sim_owner = getpid();
        atexit(clean_own_sim);
    }
    return id;
}

/* A folder of files: a machine's ledgers. */
static void clean_folder(int around, const char *name)
{
    const int fd = openat(around, name, O_RDONLY | O_DIRECTORY);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        unlinkat(fd, e->d_name, 0);
    closedir(dir);
    unlinkat(around, name, AT_REMOVEDIR);
}

/* The simulated GPU keeps a machine in /dev/shm under a name that contains its id. */
void spawn_sim_clean(const char *id)
{
    DIR *dir = opendir(SHM_FOLDER);
    if (!dir)
        return;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        if (strstr(e->d_name, id) && unlinkat(dirfd(dir), e->d_name, 0))
            clean_folder(dirfd(dir), e->d_name);
    }
    closedir(dir);
}

void spawn_sim(struct spawn_env *env, const char *spec, const char *id)
{
    spawn_env_prepend(env, "LD_LIBRARY_PATH", spawn_build_path("sim"), ':');
    spawn_env_set(env, "GPUCAP_SIM", spec ? spec : DEFAULT_SIM);
    spawn_env_set(env, "GPUCAP_SIM_ID", id ? id : spawn_sim_id());
    set_ledger(env, id ? id : spawn_sim_id());
}

void spawn_wrapped(struct spawn_env *env)
{
    spawn_env_prepend(env, "LD_PRELOAD", spawn_build_path("libgpucap.so"), ':');
    if (!*SPAWN_SANITIZER_RUNTIME)
        return;
    spawn_env_prepend(env, "LD_PRELOAD", SPAWN_SANITIZER_RUNTIME, ':');
    if (!spawn_env_get(env, "ASAN_OPTIONS"))
        spawn_env_set(env, "ASAN_OPTIONS", "detect_leaks=0");
}

void spawn_cap(struct spawn_env *env, const char *cap)
{
    if (cap)
        spawn_env_set(env, "GPUCAP_MAX", cap);
    else
        spawn_env_unset(env, "GPUCAP_MAX");
}

const char *spawn_value(const char *text, const char *key)
{
    static char value[256];
    size_t len = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        if (strncmp(line, key, len) != 0 || line[len] != '=')
            continue;
        snprintf(value, sizeof(value), "%.*s", (int)strcspn(line + len + 1, "\n"), line + len + 1);
        return value;
    }
    return NULL;
}
